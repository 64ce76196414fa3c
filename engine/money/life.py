"""When a machine's life began and ended: certain, possible and best known times; and which runs were on it when."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import Occupancy, Phase, Vm, VmDate, last_asked
from steno.events.clock import SECOND

NOTICE: Final = 300 * SECOND
"""Longest time in which a provider notices that a machine no longer answers. Measured: one was marked `unreachable`
after 8 to 10 s, a busy server noticed the end of a task up to 85 s late, and gave up a lost machine after 2.5 to 3.5
minutes.
"""
CREATE_CALL: Final = 60 * SECOND  # the longest call that makes a machine, if nothing else dates its beginning
NEVER: Final = 1 << 62
_PHASES: Final = frozenset(phase.value for phase in Phase)
_ENDING: Final = frozenset({VmState.TERMINATING, VmState.UNCONFIRMED, VmState.TERMINATED})
_LOST: Final = frozenset({VmReason.UNREACHABLE, VmReason.INTERRUPTED, VmReason.PROVISIONING_FAILED})


def life_end(vm: Vm, until: int) -> int:
    """Where the bill ends: the machine's end, else `until`; never before it was created."""
    if vm.state is VmState.TERMINATED and vm.finished_at is not None:
        return max(vm.created, vm.finished_at)
    return max(vm.created, until)


def possible_end(vm: Vm, until: int) -> int:
    """The latest end, that of the high bound; later than its end only if it was over when first shown, undated."""
    end = life_end(vm, until)
    return max(end, vm.first_at) if vm.unseen_end and vm.state is VmState.TERMINATED else end


def possible_start(vm: Vm) -> int:
    """The earliest the cloud can have charged it: the high bound of its bill begins here. A provider that gives a
    machine's end writes `created` before it asks the cloud. Another writes it when the cloud's call for a run has
    returned: such a machine began between the submission and `created`.
    """
    if vm.facts.gives_end:
        return vm.created
    requested = [stay.since for stay in vm.occupancies if stay.cold and stay.run_id == vm.made_for]
    return min(vm.created, *requested) if requested else vm.created - CREATE_CALL


def certain_start(vm: Vm) -> int:
    """The latest the cloud can have begun to charge it: the low bound of its bill begins here. By then the provider
    said that it was being made, a poll showed it, or the first run on it was over.
    """
    if vm.facts.charged or (not vm.facts.gives_end and vm.made_for is not None):
        return vm.created
    dated = [date.at for date in vm.dates[:1] if date.after in _PHASES]
    return max(vm.created, min([vm.first_at, *dated, *_proofs(vm.occupancies[:1])]))


def certain_end(vm: Vm, until: int) -> int:
    """Up to when it certainly existed: the low bound of its bill ends here. An end that somebody saw in the cloud's own
    console is certain. Otherwise it is the last sight, but not after it was told to stop: the provider dates the
    cloud's answer, not when the cloud stopped charging. For a machine that stopped answering: its last certain answer,
    or `NOTICE` before the provider noticed, if that is later.
    """
    end = life_end(vm, until)
    if vm.confirmed:
        return end
    if vm.facts.charged and vm.finished_low is not None and vm.state is VmState.TERMINATED:
        return min(end, vm.finished_low)
    low = _told_to_go(vm) if vm.state in _ENDING else last_asked(vm)
    if vm.finished_low is not None and vm.state is VmState.TERMINATED:
        low = min(low, vm.finished_low)
    lost = _lost_at(vm)
    if lost is not None:
        low = min(low, max(_answered(vm), lost - NOTICE))
    return min(end, max(certain_start(vm), low))


def _proofs(occupancies: Sequence[Occupancy]) -> list[int]:
    """Ends of runs that prove that their machine existed."""
    return [stay.until for stay in occupancies if stay.until is not None and not (stay.cut_off or stay.forgotten)]


def _told_to_go(vm: Vm) -> int:
    """The latest moment at which it was certainly not told to stop yet."""
    ending = len(vm.steps)
    while ending and vm.steps[ending - 1].after in _ENDING:
        ending -= 1
    if ending == len(vm.steps):
        return last_asked(vm)
    step = vm.steps[ending]
    if step.after is VmState.UNCONFIRMED:
        return step.low_at
    dated = (date.at for date in vm.dates if date.after in (VmState.TERMINATING, VmState.TERMINATED))
    moments = [moment for moment in dated if step.low_at <= moment <= step.at][:1]
    moments += [moment for moment in _proofs(vm.occupancies) if moment <= step.at]
    return max([step.low_at, *moments])


def _lost_at(vm: Vm) -> int | None:
    """When the provider first knew that it no longer answered; None: it answered to the end."""
    given_up = [stay.until for stay in vm.occupancies if stay.cut_off and stay.until is not None]
    answered = _answered(vm) if given_up else 0
    moments = [moment for moment in given_up if moment > answered]
    silence = silent_from(vm)
    if silence is not None:
        moments.append(silence)
    if vm.reason is not None and vm.facts.cause in _LOST and vm.steps:  # the provider's word, whoever stopped it
        moments.append(vm.steps[-1].at)
    return min(moments, default=None)


def silent_from(vm: Vm) -> int | None:
    """Since when it did not answer, and never did again before it was told to stop; None: it answered."""
    for silence in vm.unreachable:
        going = (
            step.at
            for step in vm.steps
            if step.at >= silence.since and step.after in (VmState.TERMINATING, VmState.TERMINATED)
        )
        if silence.until is None or silence.until >= next(going, NEVER):
            return silence.since
    return None


def _answered(vm: Vm) -> int:
    """The newest moment at which it certainly answered: it became ready, or a job on it went on."""
    moments = [stay.answered_at for stay in vm.occupancies if stay.answered_at is not None]
    for step in vm.steps:
        if step.after in (VmState.IDLE, VmState.BUSY) and step.before in (VmState.REQUESTED, VmState.PROVISIONING):
            dated = (date.at for date in vm.dates if date.before == VmState.PROVISIONING)
            ready = [moment for moment in dated if step.low_at <= moment <= step.at]
            moments.append(ready[0] if ready else step.low_at)
    return max([vm.created, *moments])


class RunOccupancy(NamedTuple):
    """A run on some blocks of the machine. `forgotten`: we lost sight of the run at `until`, and the machine may
    have been busy with it longer.
    """

    run_id: str
    since: int
    until: int
    blocks: int
    forgotten: bool = False


class Holds:
    """The holds of a machine. If it takes one run at a time they follow one another: found by binary search."""

    def __init__(self, holds: Sequence[RunOccupancy], *, in_turn: bool) -> None:
        self._holds = holds
        self._in_turn = in_turn
        self._sinces = [hold.since for hold in holds] if in_turn else []
        self._untils = [hold.until for hold in holds] if in_turn else []

    def shifts(self, created: int) -> list[VmDate]:
        """When the runs' own times make the machine busy and idle, in order of time. A run submitted before the machine
        was created does not say when it was ready.
        """
        shifts: list[VmDate] = []
        over: int | None = None
        for hold in sorted((hold for hold in self._holds if not hold.forgotten), key=lambda hold: hold.since):
            if over is None or hold.since >= over:
                if over is not None:
                    shifts.append(VmDate(at=over, before="busy", after="idle"))
                if over is not None or hold.since > created:
                    shifts.append(VmDate(at=hold.since, before="idle", after="busy"))
            over = hold.until if over is None else max(over, hold.until)
        if over is not None and over < NEVER:
            shifts.append(VmDate(at=over, before="busy", after="idle"))
        return shifts

    def between(self, after: int, before: int) -> Sequence[RunOccupancy]:
        """The holds that ended after `after` and began before `before`, in order."""
        if self._in_turn:
            return self._holds[bisect_right(self._untils, after) : bisect_left(self._sinces, before)]
        return [hold for hold in self._holds if hold.since < before and hold.until > after]

    def at(self, moment: int) -> Sequence[RunOccupancy]:
        if self._in_turn:
            place = bisect_right(self._sinces, moment) - 1
            return self._holds[place : place + 1] if place >= 0 and self._untils[place] > moment else ()
        return [hold for hold in self._holds if hold.since <= moment < hold.until]

    def left(self, after: int, moment: int) -> Sequence[RunOccupancy]:
        """The hold that ended last, after `after` and not after `moment`."""
        if self._in_turn:
            place = bisect_right(self._untils, moment) - 1
            return self._holds[place : place + 1] if place >= 0 and self._untils[place] > after else ()
        return sorted((hold for hold in self._holds if after < hold.until <= moment), key=lambda hold: hold.until)[-1:]


def blocks_of(vm: Vm) -> int:
    return max(1, vm.facts.total_blocks or 1)


def order_of(occupancy: Occupancy) -> tuple[int, int]:
    return occupancy.seen_at, occupancy.since


def holds_of(occupancies: Iterable[Occupancy], total: int, before: Iterable[RunOccupancy] = ()) -> list[RunOccupancy]:
    """The runs on a machine of `total` blocks, in order of arrival, after those of `before`. A run begins at its
    submission, or at the newest sight of the machine without it. If a machine takes one run at a time, the next begins
    when the one before has left: until then its submission waited.
    """
    holds = [*before]
    for stay in occupancies:
        since, until = stay.since, NEVER if stay.until is None else max(stay.since, stay.until)
        if stay.free_at is not None and stay.free_at < until:
            since = max(since, stay.free_at)
        if total == 1 and holds:
            last = holds[-1]
            handover = max(last.since, min(last.until, stay.seen_at))
            holds[-1] = last._replace(until=handover)
            since = max(since, handover)
        blocks = max(1, min(total, 1 if stay.blocks is None else stay.blocks))
        holds.append(RunOccupancy(stay.run_id, since, max(since, until), blocks, forgotten=stay.forgotten))
    return holds
