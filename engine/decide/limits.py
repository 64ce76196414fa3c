"""Limits by owner: what a user, a project, a GPU model or a label has and may still cost at most, and whether one more
run of it fits. A machine's time is that of the run it works for; idle time, and all else that no run pays, is that of
the run before. Spent is the high bound of bills, committed as in `budget`; a limit of GPU-hours is the same by another
price book.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from steno.engine.decide.budget import WorstCase, has_place, left_of, promises, worst_case
from steno.engine.decide.machine import by_idleness, unfit
from steno.engine.decide.placement import Outcome, Plan
from steno.engine.decide.situation import places, slot_of, terms_of
from steno.engine.errors import RefusedByPolicy
from steno.engine.money.bill import portions, split
from steno.engine.money.costs import Costs
from steno.engine.money.prices import Book, GpuHours
from steno.engine.money.report import user_of
from steno.engine.state.kernel_mark import KERNELS, is_kept
from steno.engine.state.policy import DAY, OwnerLimit, Policy
from steno.engine.state.run import Requirements, Run
from steno.engine.state.states import State
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import DOLLAR, usd
from steno.events.types import RunPlaced

KINDS: Final = ("user", "project", "gpu", "label")  # an owner is `<kind>/<name>`


def owners_of(terms: Requirements, project: str | None) -> frozenset[str]:
    """Every owner of a run with these requirements."""
    several = [("gpu", model.upper()) for model in terms.gpu] + [("label", label) for label in terms.labels]
    named = (("user", terms.submitter), ("project", project), *several)
    return frozenset(f"{kind}/{name}" for kind, name in named if name)


def owners_of_run(run: Run) -> frozenset[str]:
    return owners_of(Requirements(submitter=user_of(run)) if run.terms is None else terms_of(run), run.project)


def owners_of_vm(vm: Vm, state: World, run_ids: Iterable[str] | None = None) -> frozenset[str]:
    """The owners of a machine, by its own GPU: those of the runs on it, else of the last; or of other runs of it."""
    if run_ids is None:
        run_ids = [stay.run_id for stay in vm.occupants] or vm.runs[-1:] or filter(None, [vm.made_for])
    runs = (run for run_id in run_ids if (run := state.runs.get(run_id)) is not None)
    owners = (owner for run in runs for owner in owners_of_run(run) if not owner.startswith("gpu/"))
    return frozenset((*owners, *([f"gpu/{vm.facts.gpu.upper()}"] if vm.facts.gpu else [])))


def spent_by(state: World, book: Book, since: int | None = None) -> Counter[str]:
    """Owner → the high bound of what it has spent since ever, or since a moment; without archives."""
    costs = Costs(state, book)

    def paid(vm: Vm) -> Mapping[str, int]:
        return {} if vm.archive is not None or is_kept(vm) else _paid(vm, state, costs, since or 0)

    if since is None:
        return state.vms.sums(f"spent at most by owner and {book.digest()}", paid)
    sums = Counter[str]()
    for vm in (*state.vms.open(), *state.vms.ended_since(since)):
        sums.update(paid(vm))
    return sums


def _paid(vm: Vm, state: World, costs: Costs, since: int) -> Counter[str]:
    bill, sums, known = costs.bill_of(vm), Counter[str](), dict[str | None, frozenset[str]]()
    payer = vm.made_for or next(iter(vm.runs), None)
    for interval in bill.intervals:
        until, high = bill.until if interval.until is None else interval.until, interval.high
        if interval.since < since:
            high = portions(high, [interval.since, since, until])[1] if since < until else 0
        weights = [cost for _, _, cost in interval.parts]
        for (run_id, _, _), amount in zip(interval.parts, split(high, weights if any(weights) else [1]), strict=False):
            payer = run_id or payer
            if payer not in known:
                known[payer] = owners_of_vm(vm, state, [] if payer is None else [payer])
            sums.update(dict.fromkeys(known[payer], amount))
    return sums


class OwnerLimits:
    """The limits of a policy over a world at a moment. Computes nothing where there are none."""

    def __init__(self, state: World, policy: Policy, now: int) -> None:
        self._state, self._policy, self._now = state, policy, now

    @cached_property
    def spent(self) -> Counter[str]:
        return spent_by(self._state, Book.of(self._state))

    @cached_property
    def today(self) -> Counter[str]:
        """Since midnight, UTC."""
        return spent_by(self._state, Book.of(self._state), self._now - self._now % DAY)

    @cached_property
    def gpu_time(self) -> Counter[str]:
        """Millionths of GPU-hours."""
        return spent_by(self._state, GpuHours())

    def committed(self, book: Book | None = None, before: Run | None = None, *, placed: bool = False) -> Counter[str]:
        """The worst still to come, as `budget.committed`; `placed`: without runs that wait in Steno's queue."""
        sums, book = Counter[str](), Book.of(self._state) if book is None else book
        for thing, amount in promises(self._state, self._policy, self._now, book, before):
            if isinstance(thing, Vm):
                sums.update(dict.fromkeys(owners_of_vm(thing, self._state), amount))
            elif has_place(thing) or not placed:
                sums.update(dict.fromkeys(owners_of_run(thing), amount))
        return sums

    @cached_property
    def reserved(self) -> Counter[str]:
        """The worst still to come of machines and of runs with a place."""
        return self.committed(placed=True)

    @cached_property
    def _runs(self) -> list[Run]:
        """The runs that hold a place; a schedule has none, and a task of an array is part of it."""
        runs = (run for run in self._state.runs.open() if has_place(run) and run.state is not State.LOST)
        there = (run for run in runs if run.archive is None and run.array is None and run.provider != KERNELS)
        return [run for run in there if not run.terminal and not run.is_schedule]

    @cached_property
    def runs(self) -> Counter[str]:
        return Counter(owner for run in self._runs for owner in owners_of_run(run))

    @cached_property
    def machines(self) -> Counter[str]:
        """Machines that may be billed, busy or idle, and those still to come for runs with a place."""
        there = [vm for vm in self._state.vms.open() if vm.billed and vm.archive is None and not is_kept(vm)]
        owners = {vm.vm_id: owners_of_vm(vm, self._state) for vm in there}
        sums = Counter(owner for owned in owners.values() for owner in owned)
        on = Counter(stay.run_id for vm in there for stay in vm.occupants)
        for run in self._runs:
            lacks = places(run) * left_of(run, self._state) - on[run.run_id]
            meant = owners.get(run.placed.vm_id or "", frozenset()) if run.placed is not None else frozenset()
            for owner in owners_of_run(run) - meant:  # it goes to a machine that is counted already
                sums[owner] += max(0, lacks)
        return sums

    def _of(self, owners: frozenset[str]) -> Iterator[OwnerLimit]:
        return (limit for limit in self._policy.limits if limit.owner in owners)

    def _worst(self, terms: Requirements) -> WorstCase:
        return worst_case(terms, self._policy, self._state, self._now)

    def check(self, terms: Requirements, project: str | None, run: Run | None = None) -> None:
        """Raise RefusedByPolicy if a run can never fit, or exceeds a budget now; `run`: as of `budget.check`."""
        for limit in self._of(owners_of(terms, project)):
            needed, worst = max(1, terms.nodes) * terms.tasks, self._worst(terms)
            if limit.runs == 0:
                raise RefusedByPolicy(f"{_words(limit)} may have no run ({_setting(limit, 'runs')})")
            if limit.machines is not None and needed > limit.machines:
                most = f"{_words(limit)} may have {limit.machines} ({_setting(limit, 'machines')})"
                raise RefusedByPolicy(f"it needs {needed} machines at once, and {most}")
            if limit.daily is not None and (worst.amount or 0) > limit.daily:
                most = f"{_words(limit)} may spend {usd(limit.daily)} a day ({_setting(limit, 'daily')})"
                raise RefusedByPolicy(f"{most}, and this run alone may cost more. {'; '.join(worst.lines)}")
            self._check_budget(limit, worst, run)

    def _check_budget(self, limit: OwnerLimit, worst: WorstCase, run: Run | None) -> None:
        budget, name = budget_of(limit, self._state), _words(limit)
        if budget is not None and worst.amount is not None:
            gone, promised = self.spent[limit.owner], self.committed(before=run)[limit.owner]
            left = budget - gone - promised
            if worst.amount > left:
                raise RefusedByPolicy(
                    f"The budget of {name} does not allow this run. {'; '.join(worst.lines)}; left: {usd(budget)} − "
                    f"{usd(gone)} spent at most − {usd(promised)} that its live runs and machines may still cost = "
                    f"{usd(left)}. Give the task a shorter `max_duration`, raise {_setting(limit, 'budget')}, or move "
                    "budget to it (`steno budget move`)."
                )
        if limit.gpu_hours is not None:
            gone, promised = self.gpu_time[limit.owner], self.committed(GpuHours(), run)[limit.owner]
            left = limit.gpu_hours - gone - promised
            if worst.gpu_time > left:
                raise RefusedByPolicy(
                    f"The GPU-hours of {name} do not allow this run: it may take {hours(worst.gpu_time)}, and of "
                    f"{hours(limit.gpu_hours)} ({_setting(limit, 'gpu_hours')}) {hours(gone)} are used and "
                    f"{hours(promised)} committed. Give the task a shorter `max_duration`."
                )

    def hold(self, run: Run, plan: Plan) -> str | None:
        """Why a run that may fit later waits now: the sentence names the limit; None: it does not."""
        if not self._policy.limits:
            return None
        terms = terms_of(run)
        for limit in self._of(owners_of_run(run)):
            landing = [place for place in plan.landing if limit.owner in owners_of_run(self._state.runs[place.run_id])]
            if limit.runs and self.runs[limit.owner] + len(landing) >= limit.runs:
                most = "1 run" if limit.runs == 1 else f"{limit.runs} runs"
                return f"{_words(limit)} may have {most} at once ({_setting(limit, 'runs')})"
            worst = self._worst(terms).amount or 0
            if limit.daily is not None and worst <= limit.daily:
                used = self.today[limit.owner] + self.reserved[limit.owner]
                used += sum(self._worst(terms_of(self._state.runs[place.run_id])).amount or 0 for place in landing)
                if used + worst > limit.daily:
                    return (
                        f"{_words(limit)} may spend {usd(limit.daily)} a day ({_setting(limit, 'daily')}): {usd(used)} "
                        f"are spent or committed, and this run may cost {usd(worst)}"
                    )
        full = self._full(run, plan)
        if full and self._own(run, plan, full) is None:
            most = "1 machine" if full[0].machines == 1 else f"{full[0].machines} machines"
            return (
                f"{_words(full[0])} may have {most} at once, idle machines included ({_setting(full[0], 'machines')})"
            )
        return None

    def within(self, run: Run, outcome: Outcome | None, plan: Plan) -> Outcome | None:
        """The same, but on an idle machine of its owner where the owner may have no other."""
        full = self._full(run, plan) if isinstance(outcome, RunPlaced) and self._policy.limits else []
        vm = self._own(run, plan, full) if full else None
        if not isinstance(outcome, RunPlaced) or vm is None:
            return outcome
        terms = terms_of(run)
        slot, creation = None if terms.fleets else slot_of(vm), outcome.creation if terms.retry else "reuse"
        return replace(outcome, vm_id=vm.vm_id, slot=slot, creation=creation)

    def _full(self, run: Run, plan: Plan) -> list[OwnerLimit]:
        """The limits of machines that one more machine for the run would exceed, but for those it can never fit."""
        terms, full = terms_of(run), list[OwnerLimit]()
        needed = max(1, terms.nodes) * terms.tasks
        for limit in self._of(owners_of_run(run)):
            if limit.machines is not None and needed <= limit.machines:
                landing = sum(self._takes(limit.owner, place) for place in plan.landing)
                if self.machines[limit.owner] + landing + needed > limit.machines:
                    full.append(limit)
        return full

    def _takes(self, owner: str, place: RunPlaced) -> int:
        """How many machines more the owner has by a place of this decision."""
        run, vm = self._state.runs[place.run_id], self._state.vms.get(place.vm_id or "")
        if owner not in owners_of_run(run) or (vm is not None and owner in owners_of_vm(vm, self._state)):
            return 0
        return places(run) * left_of(run, self._state)

    def _own(self, run: Run, plan: Plan, full: list[OwnerLimit]) -> Vm | None:
        """The machine that has idled longest of those that count to all these limits and that the run can go to."""
        if terms_of(run).nodes * terms_of(run).tasks > 1:
            return None
        owners, situation = {limit.owner for limit in full}, plan.situation
        own = (vm for vm in situation.vms if plan.offers(vm) and owners <= owners_of_vm(vm, self._state))
        return min((vm for vm in own if not unfit(situation, run, vm)), key=by_idleness, default=None)


def budget_of(limit: OwnerLimit, state: World) -> int | None:
    """Its budget with what was moved; below 0 if the setting was lowered after a move."""
    return None if limit.budget is None else limit.budget + state.moved_budget.get(limit.owner, 0)


def unknown_owners(state: World, policy: Policy) -> list[str]:
    """A sentence for each limit of an owner that no run and no machine ever had, with the nearest that one had."""
    named = [limit.owner for limit in policy.limits]
    return [f"limits.{owner.replace('/', '.', 1)}: {text}" for owner, text in _unknown(named, state)]


def unknown_owner(owner: str, state: World) -> str | None:
    """Such a sentence about any owner, as `user/alice`; None: a run or a machine had it."""
    return next((text for _, text in _unknown([owner], state)), None)


def _unknown(owners: list[str], state: World) -> list[tuple[str, str]]:
    if not owners:
        return []
    known = state.runs.sums("runs by owner", lambda run: dict.fromkeys(owners_of_run(run), 1))
    known += state.vms.sums("machines by GPU", lambda vm: dict.fromkeys(owners_of_vm(vm, state, []), 1))
    sentences = []
    for owner in (owner for owner in owners if owner not in known):
        kind, _, name = owner.partition("/")
        names = [other.partition("/")[2] for other in known if other.startswith(f"{kind}/")]
        near = get_close_matches(name, names, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        sentences.append((owner, f"no run of that {kind} is in the record yet{hint}"))
    return sentences


def hours(amount: int) -> str:
    """`2.5 GPU-hours` of millionths."""
    return f"{amount / DOLLAR:,.6g} GPU-hours"


def _words(limit: OwnerLimit) -> str:
    kind, _, name = limit.owner.partition("/")
    return f"{'GPU' if kind == 'gpu' else kind} {name}"


def _setting(limit: OwnerLimit, key: str) -> str:
    return f"`limits.{limit.owner.replace('/', '.', 1)}.{key}`"
