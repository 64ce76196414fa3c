"""Folds one event into one machine: stores what it says and moves the state machine. Idle evidence and graces are
measured in the time in which the machine's own source answered.
"""

from typing import Final

from msgspec.structs import replace

from steno.engine.fold.step import FoldStep
from steno.engine.state.changes import AnomalyKind, VmStep
from steno.engine.state.facts import VmFacts
from steno.engine.state.reading import Tick
from steno.engine.state.sources import surely_until
from steno.engine.state.state_machines import VmTrigger
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import PriceStep, SilentSpan, Vm, last_asked, paused
from steno.events.clock import SECOND

ALIVE: Final = frozenset({VmState.PROVISIONING, VmState.IDLE, VmState.BUSY})
"""States of a machine that nobody has told to stop."""

_TRIGGER: Final = {
    VmState.PROVISIONING: VmTrigger.PROVISION,
    VmState.IDLE: VmTrigger.IDLE,
    VmState.BUSY: VmTrigger.BUSY,
    VmState.TERMINATING: VmTrigger.TERMINATE,
    VmState.TERMINATED: VmTrigger.TERMINATED,
}
"""The state of a row → its trigger."""

_BY_US: Final = {"idle": VmReason.IDLE_TIMEOUT, "user": VmReason.STOPPED_BY_USER}
"""Why we ended it, if not for another policy."""

LAG: Final = 120 * SECOND  # a server sees the end of a run up to 85 s later than that of its machine's work
SILENT_FOR: Final = 60 * SECOND  # after this long without an answer a machine is reported; shorter gaps are common

EMPTY: Final = frozenset({VmState.IDLE, VmState.DRAINING})


def see(turn: FoldStep, vm: Vm, facts: VmFacts, tick: Tick, *, new: bool) -> None:
    """Record one row. One older than the newest applied from the same source moves nothing."""
    before, begin, over_at = vm.facts, len(turn.changes), vm.over_at
    low = min(vm.created if new else last_asked(vm), turn.at)
    back = vm.missing is not None
    if not turn.sees(vm, tick, facts) or (facts == before and not new and not back):
        return
    vm.facts = facts
    if not vm.prices and facts.price is not None:
        vm.prices = (PriceStep(at=vm.created, low_at=vm.created, hourly=facts.price),)
    elif facts.price is not None and vm.prices[-1].hourly != facts.price:
        at = max(turn.at, vm.prices[-1].at)
        vm.prices = (*vm.prices, PriceStep(at=at, low_at=min(low, at), hourly=facts.price))
    if facts.suspended or vm.pauses:
        end = turn.at if facts.finished_at is None else min(turn.at, facts.finished_at)
        vm.pauses = paused(vm.pauses, facts.suspended, since=vm.created, low=low, until=end)
    _reach(turn, vm, facts, None if new else low)
    if facts.health is not None and facts.state in ALIVE:
        turn.note(vm, AnomalyKind.UNHEALTHY, f"the health check of its provider says {facts.health}", once=True)
    for drift in facts.drift:
        turn.note(vm, AnomalyKind.SCHEMA_DRIFT, drift, once=True)
    _judge(turn, vm, None if new else before.state, low, back=back, new=new)
    if over_at is not None and over_at != vm.over_at:
        turn.end_moved(vm, over_at)
    turn.changed(vm, begin)


def _reach(turn: FoldStep, vm: Vm, facts: VmFacts, shown_at: int | None) -> None:
    """`shown_at`: the newest poll before that showed it."""
    away = vm.silence
    if facts.unreachable and away is None:
        vm.unreachable = (*vm.unreachable, SilentSpan(since=turn.at, until=None, reached_at=shown_at))
    elif away is not None and not facts.unreachable and facts.state in ALIVE:
        vm.unreachable = (*vm.unreachable[:-1], replace(away, until=max(away.since, turn.at)))


def is_doubtful(vm: Vm) -> bool:
    """True if a repeated poll may make `compare` report it."""
    silence = vm.silence
    if silence is not None:
        return f"{AnomalyKind.UNREACHABLE.value}: {silence}" not in vm.noted
    return vm.state is VmState.IDLE and bool(vm.occupants)


def compare(turn: FoldStep, vm: Vm) -> None:
    """Report a machine that stopped answering, or that its row calls idle for longer than a server lags: it is busy."""
    silence = vm.silence
    if silence is not None and vm.last_at - silence.since >= SILENT_FOR:
        turn.note(vm, AnomalyKind.UNREACHABLE, str(silence), once=True)
    if vm.state is not VmState.IDLE or vm.idle_since is None or silence is not None:
        return
    for occupancy in vm.occupants:
        run = turn.state.runs.get(occupancy.run_id)
        if run is not None and run.state is State.RUNNING and run.last_at - vm.idle_since >= LAG:
            detail = f"idle for {LAG // (60 * SECOND)} minutes, while run {run.name or run.run_id} is running on it"
            turn.note(vm, AnomalyKind.CONTRADICTION, detail, once=True)
            since = vm.steps[-1].at if len(vm.steps) > 1 else vm.created  # no time of it was idle
            step(turn, vm, VmTrigger.BUSY, vm.steps[-1].low_at, at=since)
            return


def emptied(turn: FoldStep, vm: Vm, low: int) -> None:
    """The last run on it is over: the row that called it idle all along is right now."""
    if vm.state is VmState.BUSY and vm.facts.state is VmState.IDLE and not vm.occupants:
        step(turn, vm, VmTrigger.IDLE, low)


def _judge(turn: FoldStep, vm: Vm, before: VmState | None, low: int, *, back: bool, new: bool) -> None:
    """Move the machine to where the row shows it. `before`: where the last row did; `back`: it was missing since."""
    state, word = vm.facts.state, vm.facts.status
    trigger = None if state is None else _TRIGGER.get(state)
    if trigger is None:
        if state is None and vm.state is VmState.REQUESTED:  # it has a price, and its first word is unknown: billed
            step(turn, vm, VmTrigger.DOUBT, low)
        return
    if trigger is VmTrigger.TERMINATED:
        _end(turn, vm, low, new=new)
        return
    said_again = state is before and not back
    match vm.state:
        case VmState.TERMINATED:
            if state not in ALIVE or state is before:
                return
            turn.note(vm, AnomalyKind.CONTRADICTION, f"terminated, now {word}")
            vm.finished_at = vm.finished_low = None
            vm.confirmed = vm.unseen_end = False
            step(turn, vm, VmTrigger.REAPPEAR, low)
        case VmState.UNCONFIRMED if said_again or (trigger is VmTrigger.TERMINATE and not back and before is not None):
            return
        case VmState.TERMINATING if state in ALIVE:
            turn.note(vm, AnomalyKind.ILLEGAL_TRANSITION, f"terminating → {word}", once=True)
            step(turn, vm, VmTrigger.DOUBT, low)
        case VmState.DRAINING if trigger is VmTrigger.IDLE:
            return
        case VmState.BUSY if trigger is VmTrigger.IDLE and said_again and vm.occupants:  # see `compare`
            return
        case _:
            pass
    if not step(turn, vm, trigger, low):
        turn.note(vm, AnomalyKind.ILLEGAL_TRANSITION, f"{vm.state.value} → {word}", once=True)
    elif trigger is VmTrigger.TERMINATE:
        begin_ending(turn, vm)
        vm.reason = _reason(vm)


def _end(turn: FoldStep, vm: Vm, low: int, *, new: bool) -> None:
    if vm.confirmed:
        return
    facts, gone = vm.facts, vm.state is VmState.TERMINATED
    step(turn, vm, VmTrigger.TERMINATED, low)
    vm.reason = _reason(vm)
    if vm.silence is not None and vm.facts.cause is not vm.reason is VmReason.UNREACHABLE:
        turn.note(vm, AnomalyKind.UNREACHABLE, str(vm.silence), once=True)
    # If the clocks' offset changed since it was made, its provider's two times are not of one clock.
    if facts.finished_at is not None and (new or vm.skew == turn.source(vm.source).skew):
        vm.finished_at, vm.unseen_end = max(facts.finished_at, vm.created), False
        vm.finished_low = max(surely_until(turn.source(vm.source), vm.finished_at), vm.created)
    elif new:
        vm.finished_at = vm.finished_low = vm.created
        vm.unseen_end = True
    elif not gone:
        vm.finished_at = max(turn.at, vm.created)
        vm.finished_low = max(min(low, vm.finished_at), vm.created)


def confirm_gone(turn: FoldStep, vm: Vm, ended_at: int) -> None:
    """A user saw in the cloud's own console that it is gone."""
    over_at = vm.over_at
    step(turn, vm, VmTrigger.TERMINATED, min(vm.last_at, turn.at))
    vm.finished_at = vm.finished_low = max(ended_at, vm.created)
    vm.confirmed, vm.unseen_end, vm.missing = True, False, None
    vm.reason = _reason(vm)
    if over_at is not None:
        turn.end_moved(vm, over_at)


def begin_ending(turn: FoldStep, vm: Vm) -> None:
    """It was told to stop, or is seen ending: from here on it has 14 minutes."""
    if vm.ending_from is None:
        vm.ending_since, vm.ending_from = turn.at, turn.source(vm.source).answered_time


def listed_again(turn: FoldStep, vm: Vm) -> None:
    """The run on it, whose source had left it out, is listed again: a doubt that came of this is over."""
    if vm.state is VmState.UNCONFIRMED and vm.facts.state is VmState.BUSY and vm.told is None:
        step(turn, vm, VmTrigger.BUSY, turn.at)


def doubt(turn: FoldStep, vm: Vm, detail: str, low: int | None = None) -> None:
    """It should be gone and nobody saw it end. `low`: when it was certainly there, if not at its newest poll."""
    if step(turn, vm, VmTrigger.DOUBT, min(vm.last_at if low is None else low, turn.at)):
        if vm.told is not None or vm.facts.reason is not None:
            vm.reason = _reason(vm)
        turn.note(vm, AnomalyKind.ORPHAN_SUSPECTED, detail)


def step(turn: FoldStep, vm: Vm, trigger: VmTrigger, low: int, at: int | None = None) -> bool:
    """Move the machine if the table allows it; returns whether it moved. `low`: the earliest time of the move; `at`:
    its own, if that is not now.
    """
    before, after = vm.state, turn.fold.step_vm(vm.state, trigger)
    if after is None:
        return False
    if after is before:
        return True
    if at is None:
        at = max(turn.at, vm.steps[-1].at) if vm.steps else turn.at
    low = max(low, vm.steps[-1].low_at) if vm.steps else low
    made = VmStep(position=turn.position, at=at, low_at=min(low, at), before=before, after=after)
    vm.state, vm.steps = after, (*vm.steps, made)
    turn.changes.append(vm.moved(made))
    if after not in EMPTY:
        vm.idle_from = vm.idle_since = None
    elif before not in EMPTY:
        vm.idle_from, vm.idle_since = turn.source(vm.source).answered_time, turn.at
    if after in ALIVE:  # what was said of its end is void if it lives on
        vm.reason = None
        vm.drain = None if after is VmState.BUSY else vm.drain
        if after is VmState.BUSY or before is VmState.UNCONFIRMED:
            vm.ending_since = vm.ending_from = None
            answered = vm.told is not None and (vm.told.taken_at is not None or vm.told.refused_at is not None)
            vm.told = None if answered else vm.told
    return True


def _reason(vm: Vm) -> VmReason:
    stop = vm.told
    if stop is not None and stop.refused_at is None and (stop.taken_at is not None or vm.facts.by_request):
        reason = _BY_US.get(stop.by, VmReason.STOPPED_BY_POLICY)
    else:
        reason = vm.facts.cause
    if vm.silence is not None and reason is VmReason.IDLE_TIMEOUT:
        return VmReason.UNREACHABLE  # it may have been idle, also if it was ended for that
    return reason
