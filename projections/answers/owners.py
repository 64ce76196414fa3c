"""Where the owners of runs stand: what each has spent and may still cost at most, has running, and may have."""

from typing import Annotated

from msgspec import Meta

from steno.engine.decide.limits import OwnerLimits, budget_of, hours, owners_of_run
from steno.engine.money.prices import GpuHours
from steno.engine.state.policy import OwnerLimit, Policy
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR, Shape, Usd, usd
from steno.projections.read_models.view import View, waits


class OwnerStanding(
    Shape,
    frozen=True,
    kw_only=True,
    rename={name: f"{name}_usd" for name in ("budget", "moved", "spent", "committed", "left", "daily", "today")},
):
    """An owner of runs. Spent is the high bound of bills, committed the worst still to come; null: no limit."""

    owner: Annotated[str, Meta(description="`user/NAME`, `project/NAME`, `gpu/MODEL` or `label/KEY=VALUE`.")]
    budget: Usd | None  # what was moved included
    moved: Usd  # received from other owners, less what was given
    spent: Usd
    committed: Usd
    left: Usd | None  # below zero if the limit is below what is spent and committed
    daily: Usd | None
    today: Usd  # spent since midnight, UTC
    gpu_hours: float  # used
    gpu_hours_committed: float
    gpu_hours_limit: float | None
    machines: int  # busy, idle, and still to come
    machines_limit: int | None
    runs: int  # with a place
    runs_limit: int | None
    waiting: int  # in Steno's queue
    notes: tuple[str, ...]  # what is above its limit


def owner_standings(view: View, policy: Policy, now: int, by: str | None = None) -> tuple[OwnerStanding, ...]:
    """The owners with a limit; or all of a kind."""
    if by is None and not policy.limits:
        return ()
    state, limits = view.state, {limit.owner: limit for limit in policy.limits}
    facts = _Facts(state, policy, now)
    owners = list(limits)
    if by is not None:
        known = {*limits, *facts.limits.spent, *facts.committed, *facts.limits.runs, *facts.waiting}
        owners = sorted(owner for owner in known if owner.startswith(f"{by}/"))
    return tuple(facts.standing(limits.get(owner, OwnerLimit(owner=owner))) for owner in owners)


class _Facts:
    def __init__(self, state: World, policy: Policy, now: int) -> None:
        self.state, self.limits = state, OwnerLimits(state, policy, now)
        self.committed, self._gpu_committed = self.limits.committed(), self.limits.committed(GpuHours())
        self.waiting = [owner for run in state.runs.open() if waits(run) for owner in owners_of_run(run)]

    def standing(self, limit: OwnerLimit) -> OwnerStanding:
        owner, limits, budget = limit.owner, self.limits, budget_of(limit, self.state)
        spent, committed, gpu_time = limits.spent[owner], self.committed[owner], limits.gpu_time[owner]
        today, reserved, gpu_committed = limits.today[owner], limits.reserved[owner], self._gpu_committed[owner]
        above = (
            ("budget", budget, spent + committed, usd),
            ("daily", limit.daily, today + reserved, usd),
            ("gpu_hours", limit.gpu_hours, gpu_time + gpu_committed, hours),
            ("machines", limit.machines, limits.machines[owner], str),
            ("runs", limit.runs, limits.runs[owner], str),
        )
        return OwnerStanding(
            owner=owner,
            budget=budget,
            moved=self.state.moved_budget.get(owner, 0),
            spent=spent,
            committed=committed,
            left=None if budget is None else budget - spent - committed,
            daily=limit.daily,
            today=today,
            gpu_hours=gpu_time / DOLLAR,
            gpu_hours_committed=gpu_committed / DOLLAR,
            gpu_hours_limit=None if limit.gpu_hours is None else limit.gpu_hours / DOLLAR,
            machines=limits.machines[owner],
            machines_limit=limit.machines,
            runs=limits.runs[owner],
            runs_limit=limit.runs,
            waiting=self.waiting.count(owner),
            notes=tuple(
                f"{owner} has {text(has)} of {text(most)} (`{key}`): nothing is stopped, and nothing of it starts"
                for key, most, has, text in above
                if most is not None and has > most
            ),
        )
