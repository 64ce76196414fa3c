"""Folds one event into one machine: stores what it says and moves the state machine. Idle evidence and graces are
measured in the time in which the machine's own source answered.
"""

from typing import Final

from engine.facts import VmFacts
from engine.fold.change import AnomalyKind, VmStep
from engine.fold.sources import surely_until
from engine.fold.state_machines import VmTrigger
from engine.fold.suspension import paused
from engine.fold.tick import Tick
from engine.fold.turn import Turn
from engine.fold.vm import PriceStep, SilentSpan, Vm
from engine.states import VmReason, VmState

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

EMPTY: Final = frozenset({VmState.IDLE, VmState.DRAINING})


def see(turn: Turn, vm: Vm, facts: VmFacts, tick: Tick, *, new: bool) -> None:
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
    _reach(turn, vm, facts)
    for drift in facts.drift:
        turn.note(vm, AnomalyKind.SCHEMA_DRIFT, drift, once=True)
    _judge(turn, vm, None if new else before.state, low, back=back, new=new)
    if over_at is not None and over_at != vm.over_at:
        turn.end_moved(vm, over_at)
    turn.changed(vm, begin)


def _reach(turn: Turn, vm: Vm, facts: VmFacts) -> None:
    away = bool(vm.unreachable) and vm.unreachable[-1].until is None
    if facts.unreachable and not away:
        vm.unreachable = (*vm.unreachable, SilentSpan(since=turn.at, until=None))
    elif away and not facts.unreachable and facts.state in ALIVE:
        since = vm.unreachable[-1].since
        vm.unreachable = (*vm.unreachable[:-1], SilentSpan(since=since, until=max(since, turn.at)))


def _judge(turn: Turn, vm: Vm, before: VmState | None, low: int, *, back: bool, new: bool) -> None:
    """Move the machine to where the row shows it. `before`: where the last row did; `back`: it was missing since."""
    shown, word = vm.facts.state, vm.facts.status
    trigger = None if shown is None else _TRIGGER.get(shown)
    if trigger is None:
        if shown is None and vm.state is VmState.REQUESTED:  # it has a price, and its first word is unknown: billed
            step(turn, vm, VmTrigger.DOUBT, low)
        return
    if trigger is VmTrigger.TERMINATED:
        _end(turn, vm, low, new=new)
        return
    said_again = shown is before and not back
    match vm.state:
        case VmState.TERMINATED:
            if shown not in ALIVE or shown is before:
                return
            turn.note(vm, AnomalyKind.CONTRADICTION, f"terminated, now {word}")
            vm.finished_at = vm.finished_low = None
            vm.confirmed = vm.unseen_end = False
            step(turn, vm, VmTrigger.REAPPEAR, low)
        case VmState.UNCONFIRMED if said_again or (trigger is VmTrigger.TERMINATE and not back and before is not None):
            return
        case VmState.TERMINATING if shown in ALIVE:
            turn.note(vm, AnomalyKind.ILLEGAL_TRANSITION, f"terminating → {word}", once=True)
            step(turn, vm, VmTrigger.DOUBT, low)
        case VmState.DRAINING if trigger is VmTrigger.IDLE:
            return
        case _:
            pass
    if not step(turn, vm, trigger, low):
        turn.note(vm, AnomalyKind.ILLEGAL_TRANSITION, f"{vm.state.value} → {word}", once=True)
    elif trigger is VmTrigger.TERMINATE:
        begin_ending(turn, vm)
        vm.reason = _reason(vm)


def _end(turn: Turn, vm: Vm, low: int, *, new: bool) -> None:
    if vm.confirmed:
        return
    facts, gone = vm.facts, vm.state is VmState.TERMINATED
    step(turn, vm, VmTrigger.TERMINATED, low)
    vm.reason = _reason(vm)
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


def confirm_gone(turn: Turn, vm: Vm, ended_at: int) -> None:
    """A user saw in the cloud's own console that it is gone."""
    over_at = vm.over_at
    step(turn, vm, VmTrigger.TERMINATED, min(vm.last_at, turn.at))
    vm.finished_at = vm.finished_low = max(ended_at, vm.created)
    vm.confirmed, vm.unseen_end, vm.missing = True, False, None
    vm.reason = _reason(vm)
    if over_at is not None:
        turn.end_moved(vm, over_at)


def begin_ending(turn: Turn, vm: Vm) -> None:
    """It was told to stop, or is seen ending: from here on it has 14 minutes."""
    if vm.ending_from is None:
        vm.ending_since, vm.ending_from = turn.at, turn.source(vm.source).answered_time


def listed_again(turn: Turn, vm: Vm) -> None:
    """The run on it, whose source had left it out, is listed again: a doubt that came of this is over."""
    if vm.state is VmState.UNCONFIRMED and vm.facts.state is VmState.BUSY and vm.told is None:
        step(turn, vm, VmTrigger.BUSY, turn.at)


def doubt(turn: Turn, vm: Vm, detail: str, low: int | None = None) -> None:
    """It should be gone and nobody saw it end. `low`: when it was certainly there, if not at its newest poll."""
    if step(turn, vm, VmTrigger.DOUBT, min(vm.last_at if low is None else low, turn.at)):
        if vm.told is not None or vm.facts.reason is not None:
            vm.reason = _reason(vm)
        turn.note(vm, AnomalyKind.ORPHAN_SUSPECTED, detail)


def step(turn: Turn, vm: Vm, trigger: VmTrigger, low: int) -> bool:
    """Move the machine if the table allows it; whether it does. `low`: the earliest time of the move."""
    before, after = vm.state, turn.fold.step_vm(vm.state, trigger)
    if after is None:
        return False
    if after is before:
        return True
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
    told = vm.told
    if told is not None and told.refused_at is None and (told.taken_at is not None or vm.facts.by_request):
        return _BY_US.get(told.by, VmReason.STOPPED_BY_POLICY)
    return vm.facts.cause


def last_asked(vm: Vm) -> int:
    """When the newest poll that showed the machine was asked: its answer may be that old."""
    return vm.last_at if vm.asked_at is None else min(vm.last_at, vm.asked_at)
