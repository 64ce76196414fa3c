"""Folds one poll into all machines of a world: stores their rows, counts absences and grace periods, finds orphans."""

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final

from steno.engine.fold import links, vm_step
from steno.engine.fold.step import FoldContext, FoldStep, is_left_out
from steno.engine.state.archives import concerns, is_hidden, may_move
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.facts import VmFacts
from steno.engine.state.reading import Listing, Tick
from steno.engine.state.run import Run
from steno.engine.state.sources import LOST_AFTER, Source, Sweep, is_back, lists_newest
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm, VmDate, last_asked, vm_id_of
from steno.engine.state.world import World
from steno.events.clock import SECOND

ENDING_GRACE: Final = 14 * 60 * SECOND
"""Answered time after which a machine told to stop should have been seen gone: providers give up on the cloud after
about 15 minutes.
"""

_TOO_EARLY: Final = frozenset({VmState.REQUESTED, VmState.PROVISIONING, VmState.TERMINATED})
"""States that do not show, or no longer, whether anybody asked for the machine."""

UNPRICED: Final = "a machine without a price: "  # start of the anomaly of a row that lacks it

_NOT_UP: Final = frozenset({VmState.REQUESTED, VmState.PROVISIONING})
_UP: Final = frozenset({VmState.IDLE, VmState.BUSY, VmState.DRAINING})
_OVER: Final = frozenset({VmState.TERMINATING, VmState.TERMINATED})
_APART: Final = 10 * SECOND  # the order of a poll and a date that are further apart is certain

_AT: Final = attrgetter("at")
_EARLY: Final = 100  # machines of a source, not shown yet, whose dates are kept: a placeholder may never be shown


def apply(turn: FoldStep, tick: Tick, source: Source, sweep: Sweep | None) -> None:
    """Fold one answered poll of any listing; `sweep`: the complete list that it ends, if any."""
    for facts in tick.vms:
        _see(turn, facts, tick)
    if tick.scope.listing is Listing.VMS:
        if lists_newest(tick.scope):
            source.machines_position, source.machines_at = tick.position, tick.started_at
        if sweep is not None:
            _left_out(turn, sweep, tick, source)
    if tick.scope.watched:
        _graces(turn, tick, source)


def date(turn: FoldStep, tick: Tick) -> None:
    """Record the status changes that the provider dates, in any order of arrival; each once."""
    if tick.events is turn.fold.dated:
        return
    turn.fold.dated = tick.events
    early = turn.state.early_dates.setdefault(tick.source, {})
    for event in tick.events:
        vm_id = vm_id_of(tick.scope.provider, event.provider_id)
        vm = turn.state.vms.get(vm_id)
        if vm is not None and vm.archive is None and tick.archive is not None:
            continue
        date = VmDate(event.at - (0 if vm is None else vm.skew), event.before, event.after)
        known = early.get(vm_id, ()) if vm is None else vm.dates
        first, behind = (bisect(known, date.at, key=_AT) for bisect in (bisect_left, bisect_right))
        if date in known[first:behind] or (vm is not None and _is_contradicted(turn, vm, date)):
            continue
        dates = (*known[:behind], date, *known[behind:])
        if vm is not None:
            vm.dates = dates
            turn.changes.append(vm.moved())
            continue
        early[vm_id] = dates
        for forgotten in list(early)[:-_EARLY]:
            del early[forgotten]


def _is_contradicted(turn: FoldStep, vm: Vm, date: VmDate) -> bool:
    """True if polls show that a date cannot be true: the machine was up long before, or still alive long after."""
    wrong = False
    if date.before in _NOT_UP:
        up = next((step.at for step in vm.steps if step.after in _UP), None)
        wrong = up is not None and date.at > up + _APART
    elif date.after in _OVER:
        left = next((step.low_at for step in reversed(vm.steps) if step.before in _UP), 0)
        alive_at = last_asked(vm) if vm.state in _UP else left
        wrong = date.at < alive_at - _APART
    if wrong:
        turn.note(vm, AnomalyKind.CONTRADICTION, "its provider's log of it contradicts the polls", once=True)
    return wrong


def _see(turn: FoldStep, facts: VmFacts, tick: Tick) -> None:
    vm_id = vm_id_of(tick.scope.provider, facts.provider_id)
    vm = turn.state.vms.get(vm_id)
    new, had = vm is None, None if vm is None else vm.facts.hostname
    if vm is None:
        if facts.price is None:  # a placeholder, not a machine
            for drift in facts.drift:
                if drift.startswith("price: "):
                    turn.note_drift(tick.source, drift, UNPRICED)
            return
        vm = turn.state.vms[vm_id] = _meet(turn, vm_id, facts, tick)
    elif not may_move(tick, vm):
        return
    turn.fold.listed.append(vm)
    vm_step.see(turn, vm, facts, tick, new=new)
    if vm.dates and _is_contradicted(turn, vm, vm.dates[-1]):
        vm.dates = vm.dates[:-1]
    settle(turn, vm)
    if vm.facts.hostname is not None and vm.facts.hostname != had:
        links.machine_shown(turn, vm)


def _meet(turn: FoldStep, vm_id: str, facts: VmFacts, tick: Tick) -> Vm:
    provider, skew = tick.scope.provider, turn.source(tick.source).skew
    dates = (date for known in turn.state.early_dates.values() for date in known.pop(vm_id, ()))
    early = sorted(dict.fromkeys(dates), key=_AT)
    return Vm(
        vm_id=vm_id,
        provider=provider,
        provider_id=facts.provider_id,
        source=tick.source,
        facts=facts,
        created=facts.created if facts.created is not None else turn.at,
        skew=skew,
        first_position=turn.position,
        first_at=turn.at,
        last_position=turn.position,
        last_at=turn.at,
        archive=tick.archive,
        hidden=is_hidden(turn.state, tick.archive),
        dates=tuple(VmDate(date.at - skew, date.before, date.after) for date in early),
        ours=_made_by_us(turn.fold, provider, facts),
    )


def _made_by_us(fold: FoldContext, provider: str, facts: VmFacts) -> bool:
    reading = fold.readings.of(provider)
    all_ours = reading is not None and reading.makes_all_vms
    return all_ours or f"{provider}/{facts.project}/{facts.fleet}" in fold.state.fleets


def part(turn: FoldStep, run: Run, before: str) -> None:
    """This run was matched to our run `before`: a machine made for it is not ours by that."""
    links.rename(turn.state, run, before)
    for vm_id in set(run.links.values()):
        vm = turn.state.vms[vm_id]
        vm.ours = _made_by_us(turn.fold, vm.provider, vm.facts)


def settle(turn: FoldStep, vm: Vm) -> None:
    if vm.state is VmState.TERMINATED:
        turn.state.vms.open_ids.pop(vm.vm_id, None)
    else:
        turn.state.vms.open_ids.setdefault(vm.vm_id)


def _left_out(turn: FoldStep, sweep: Sweep, tick: Tick, source: Source) -> None:
    for vm in turn.state.vms.open():
        given_up = vm.missing is not None and vm.state is VmState.UNCONFIRMED
        if is_left_out(vm, sweep, tick) and not given_up and turn.misses(vm, source, sweep.started_at):
            vm_step.doubt(turn, vm, f"not listed for 10 minutes, last seen {vm.facts.status}")


def _graces(turn: FoldStep, tick: Tick, source: Source) -> None:
    for vm in turn.state.vms.open():
        due = ending_due(vm)
        if due is not None and source.answered_time >= due and vm.source == source.name and concerns(tick, vm):
            vm_step.doubt(turn, vm, f"told to go 14 minutes ago, still {vm.facts.status}")
        if vm.source == source.name and concerns(tick, vm):
            vm_step.compare(turn, vm)
    if source.silent or is_back(source, tick.started_at):
        return
    for run in turn.state.runs.open():
        gone = run.unlisted
        if gone is None or source.answered_time - gone.since < LOST_AFTER or not outlives(turn.state, run):
            continue
        for vm in (turn.state.vms[vm_id] for vm_id in run.links.values()):
            if vm.source == source.name and vm.state in vm_step.ALIVE and concerns(tick, vm):
                why = f"still {vm.facts.status}, and its run has not been listed by the {gone.source} for 10 minutes"
                vm_step.doubt(turn, vm, why, gone.at)


def outlives(state: World, run: Run) -> bool:
    """True if a machine of the run is shown as before, although one of its sources no longer lists the run."""
    return run.unlisted is not None and any(state.vms[vm_id].state in vm_step.ALIVE for vm_id in run.links.values())


def ending_due(vm: Vm) -> int | None:
    """The answered time of its source at which an ending machine should have been seen gone; None: it is not ending."""
    if vm.ending_from is None or vm.state in (VmState.TERMINATED, VmState.UNCONFIRMED):
        return None
    return vm.ending_from + ENDING_GRACE


def find_orphans(turn: FoldStep, tick: Tick) -> None:
    """Report machines that none of the newest runs, just listed, asked for, once each. Only if a policy is in force for
    the source, and no run of the project still waits for its machine.
    """
    state = turn.state
    if tick.source not in state.policies:
        return
    alone = [
        vm
        for vm in state.vms.open()
        if vm.source == tick.source and concerns(tick, vm) and not vm.runs
        if vm.state not in _TOO_EARLY and tick.started_at > vm.first_at
    ]
    for vm in alone:
        if not any(_awaits(run, vm) for run in state.runs.open()):
            turn.note(vm, AnomalyKind.ORPHAN, f"{vm.facts.status}, and no run asked for it", once=True)


def _awaits(run: Run, vm: Vm) -> bool:
    there = (run.provider, run.project) == (vm.provider, vm.facts.project)
    return there and run.provider_id is not None and run.vm_id is None
