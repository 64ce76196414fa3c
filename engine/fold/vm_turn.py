"""What one observation does to one machine: its words are taken down and the machine is moved."""

from typing import Final

from engine.facts import VmFacts
from engine.fold.change import Anomaly, AnomalyKind, Change, VmMoved
from engine.fold.sources import Source
from engine.fold.tick import Tick
from engine.fold.vm import PriceStep, SilentSpan, Told, Vm, VmStep
from engine.fold.vm_machine import VmStepper, VmTrigger
from engine.states import VmReason, VmState

ALIVE: Final = frozenset({VmState.PROVISIONING, VmState.IDLE, VmState.BUSY})
"""Where a machine is that nobody has told to go."""

_TRIGGER: Final = {
    VmState.PROVISIONING: VmTrigger.PROVISION,
    VmState.IDLE: VmTrigger.IDLE,
    VmState.BUSY: VmTrigger.BUSY,
    VmState.TERMINATING: VmTrigger.TERMINATE,
    VmState.TERMINATED: VmTrigger.TERMINATED,
}
"""Where a row shows a machine → how that moves it."""

EMPTY: Final = frozenset({VmState.IDLE, VmState.DRAINING})


class VmTurn:
    """One machine's turn at one tick. `changes` collects what came of it.

    `clock` is the machine's own source: idle evidence and graces are measured in the time in which that one answered.
    """

    __slots__ = ("at", "changes", "clock", "position", "stepper", "vm")

    def __init__(self, vm: Vm, *, position: int, at: int, clock: Source, stepper: VmStepper) -> None:
        self.vm = vm
        self.position = position
        self.at = at
        self.clock = clock
        self.stepper = stepper
        self.changes: list[Change] = []

    # -- the provider's words ----------------------------------------------------------------------------------------

    def see(self, facts: VmFacts, tick: Tick, *, new: bool, unlike: str | None = None) -> None:
        """Take one row down. One older than the newest applied from the same source moves nothing.

        `unlike`: how the answer contradicts itself about this machine.
        """
        vm, before = self.vm, self.vm.facts
        if tick.started_at < vm.started.get(tick.source, tick.started_at):
            return
        low = min(vm.created if new else last_asked(vm), self.at)
        back = vm.missing is not None
        vm.started[tick.source] = tick.started_at
        vm.last_position, vm.last_at, vm.missing = tick.position, tick.observed_at, None
        if unlike is not None:
            self.note(AnomalyKind.CONTRADICTION, unlike, once=True)
        if facts == before and not new and not back:
            return
        vm.facts = facts
        self._price(facts, low)
        self._reach(facts)
        for drift in facts.drift:
            self.note(AnomalyKind.SCHEMA_DRIFT, drift, once=True)
        self._judge(facts, None if new else before.state, low, back=back, new=new)
        if not any(isinstance(change, VmMoved) for change in self.changes):
            self.changes.append(VmMoved(vm_id=vm.vm_id, step=None))

    def _price(self, facts: VmFacts, low: int) -> None:
        vm = self.vm
        if facts.price is None:
            return
        if not vm.prices:
            vm.prices = (PriceStep(at=vm.created, low_at=vm.created, hourly=facts.price),)
        elif vm.prices[-1].hourly != facts.price:
            at = max(self.at, vm.prices[-1].at)
            vm.prices = (*vm.prices, PriceStep(at=at, low_at=min(low, at), hourly=facts.price))

    def _reach(self, facts: VmFacts) -> None:
        vm = self.vm
        away = bool(vm.unreachable) and vm.unreachable[-1].until is None
        if facts.unreachable and not away:
            vm.unreachable = (*vm.unreachable, SilentSpan(since=self.at, until=None))
        elif away and not facts.unreachable and facts.state in ALIVE:
            since = vm.unreachable[-1].since
            vm.unreachable = (*vm.unreachable[:-1], SilentSpan(since=since, until=max(since, self.at)))

    # -- the machine -------------------------------------------------------------------------------------------------

    def _judge(self, facts: VmFacts, before: VmState | None, low: int, *, back: bool, new: bool) -> None:
        """Move the machine to where the row shows it. `back`: it is listed again after it was not."""
        vm, shown, word = self.vm, facts.state, facts.status
        trigger = None if shown is None else _TRIGGER.get(shown)
        if trigger is None:
            return
        if trigger is VmTrigger.TERMINATED:
            self._end(facts, low, new=new)
            return
        said_again = shown is before and not back
        match vm.state:
            case VmState.TERMINATED:
                if shown not in ALIVE or shown is before:
                    return
                self.note(AnomalyKind.CONTRADICTION, f"terminated, now {word}")
                vm.finished_at = vm.finished_low = None
                vm.confirmed = vm.unseen_end = False
                self._step(VmTrigger.REAPPEAR, low)
            case VmState.UNCONFIRMED if said_again or (trigger is VmTrigger.TERMINATE and not back):
                return
            case VmState.TERMINATING if shown in ALIVE:
                self.note(AnomalyKind.ILLEGAL_TRANSITION, f"terminating → {word}", once=True)
                self._step(VmTrigger.DOUBT, low)
            case VmState.DRAINING if trigger is VmTrigger.IDLE:
                return
            case _:
                pass
        if not self._step(trigger, low):
            self.note(AnomalyKind.ILLEGAL_TRANSITION, f"{vm.state.value} → {word}", once=True)
        elif trigger is VmTrigger.TERMINATE:
            self.begin_ending()
            vm.reason = self._reason(facts)

    def _end(self, facts: VmFacts, low: int, *, new: bool) -> None:
        """A row says that the machine is gone."""
        vm = self.vm
        if vm.confirmed:
            return
        gone = vm.state is VmState.TERMINATED
        self._step(VmTrigger.TERMINATED, low)
        vm.reason = self._reason(facts)
        # Where the clocks have moved apart since it was made, its provider's two times are not of one clock.
        if facts.finished_at is not None and (new or vm.skew == self.clock.skew):
            vm.finished_at = vm.finished_low = max(facts.finished_at, vm.created)
            vm.unseen_end = False
        elif new:
            vm.finished_at = vm.finished_low = vm.created
            vm.unseen_end = True
        elif not gone:
            vm.finished_at = max(self.at, vm.created)
            vm.finished_low = max(min(low, vm.finished_at), vm.created)

    def confirm_gone(self, ended_at: int) -> None:
        """Somebody saw in the cloud's own console that it is gone."""
        vm = self.vm
        self._step(VmTrigger.TERMINATED, min(vm.last_at, self.at))
        vm.finished_at = vm.finished_low = max(ended_at, vm.created)
        vm.confirmed, vm.unseen_end, vm.missing = True, False, None
        vm.reason = self._reason(vm.facts)

    def begin_ending(self) -> None:
        """It was told to go, or is seen going: from here on it has 14 minutes."""
        vm = self.vm
        if vm.ending_from is None:
            vm.ending_since, vm.ending_from = self.at, self.clock.answered_time

    def doubt(self, detail: str) -> None:
        """It should be gone and nobody saw it go."""
        vm = self.vm
        if self._step(VmTrigger.DOUBT, min(vm.last_at, self.at)):
            if vm.told is not None or vm.facts.reason is not None:
                vm.reason = self._reason(vm.facts)
            self.note(AnomalyKind.ORPHAN_SUSPECTED, detail)

    def drain(self) -> bool:
        """Our intent that no run come any more; whether the machine is one that can be drained."""
        return self._step(VmTrigger.DRAIN, self.at)

    def keep(self) -> None:
        """The drain was taken back."""
        if self.vm.state is VmState.DRAINING:
            self._step(VmTrigger.KEEP, self.at)

    def _step(self, trigger: VmTrigger, low: int) -> bool:
        """Move the machine if the table allows it; whether it does."""
        vm = self.vm
        before, after = vm.state, self.stepper.step(vm.state, trigger)
        if after is None:
            return False
        if after is before:
            return True
        at = max(self.at, vm.steps[-1].at) if vm.steps else self.at
        low = max(low, vm.steps[-1].low_at) if vm.steps else low
        step = VmStep(position=self.position, at=at, low_at=min(low, at), before=before, after=after)
        vm.state, vm.steps = after, (*vm.steps, step)
        self.changes.append(VmMoved(vm_id=vm.vm_id, step=step))
        self._idle(before, after)
        if after in (VmState.PROVISIONING, VmState.IDLE, VmState.BUSY):
            self._alive(before, after)
        return True

    def _idle(self, before: VmState, after: VmState) -> None:
        vm = self.vm
        if after not in EMPTY:
            vm.idle_from = vm.idle_since = None
        elif before not in EMPTY:
            vm.idle_from, vm.idle_since = self.clock.answered_time, self.at

    def _alive(self, before: VmState, after: VmState) -> None:
        """What was said of its end is void where it lives on."""
        vm = self.vm
        vm.reason = None
        if after is VmState.BUSY:
            vm.drain = None
        if after is VmState.BUSY or before is VmState.UNCONFIRMED:
            vm.ending_since = vm.ending_from = None
            if vm.told is not None and (vm.told.taken_at is not None or vm.told.refused_at is not None):
                vm.told = None

    def _reason(self, facts: VmFacts) -> VmReason:
        told = self.vm.told
        ours = told is not None and told.refused_at is None
        if told is not None and ours and (told.taken_at is not None or facts.by_request):
            return _by_us(told)
        return facts.cause

    def note(self, kind: AnomalyKind, detail: str, *, once: bool = False) -> None:
        """Write down an anomaly of this machine; with `once` only the first of its wording."""
        mark = f"{kind.value}: {detail}"
        if once:
            if mark in self.vm.noted:
                return
            self.vm.noted = (*self.vm.noted, mark)
        self.changes.append(Anomaly(kind=kind, subject=f"vm/{self.vm.vm_id}", position=self.position, detail=detail))


def last_asked(vm: Vm) -> int:
    """When the newest poll that showed the machine was asked: its answer may be as old as that."""
    return min(vm.last_at, max(vm.started.values(), default=vm.last_at))


def _by_us(told: Told) -> VmReason:
    match told.by:
        case "idle":
            return VmReason.IDLE_TIMEOUT
        case "user":
            return VmReason.STOPPED_BY_USER
        case "create" | "room" | "orphan":
            return VmReason.STOPPED_BY_POLICY
