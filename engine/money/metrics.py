"""The metrics object of the first site's front end, key by key."""

import msgspec

from engine.fold.world_codec import WorldState
from engine.money.budget import Account
from engine.policy import DOLLAR


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """As `GET /api/amd/metrics` answers: every value a JSON number (null only where there is no budget)."""

    total_cost_usd: float
    remaining_credits_usd: float | None
    credits_used_pct: float | None
    """Percent, to one decimal: 5.25 of 1400 is 0.4."""
    tasks_completed: int
    """`cold_starts` + `warm_reuses`."""
    cold_starts: int
    """Finished tasks that a machine was made for."""
    warm_reuses: int
    """Finished tasks that found one."""
    active_vms: int
    """Every machine that may be billed."""


def metrics(state: WorldState, account: Account) -> Metrics:
    """The figures now."""
    starts = [run.start for run in state.runs.values() if run.terminal and run.archive is None]
    cold, warm = starts.count("cold"), starts.count("warm")
    return Metrics(
        total_cost_usd=account.spent / DOLLAR,
        remaining_credits_usd=None if account.remaining is None else account.remaining / DOLLAR,
        credits_used_pct=None if account.total is None else _percent(account.spent, account.total),
        tasks_completed=cold + warm,
        cold_starts=cold,
        warm_reuses=warm,
        active_vms=sum(vm.billed and vm.archive is None for vm in state.vms.values()),
    )


def _percent(part: int, whole: int) -> float:
    """To one decimal, half up; of nothing, all or nothing."""
    if whole <= 0:
        return 100.0 if part > 0 else 0.0
    return (2000 * part + whole) // (2 * whole) / 10
