"""A machine's life cut into phases, and into who was on it.

Inner edges are the first poll that shows the new phase, outer edges the life's own, so that the spans fill the life
exactly. A clock that jumps back makes no negative span: an edge never lies before the one before it.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from engine.vm.states import PHASE_OF, Phase, VmState
from engine.world.sources import BLIND_AFTER
from engine.world.vms import Vm

_NEVER: Final = 1 << 62


class Span(NamedTuple):
    """One phase."""

    phase: Phase
    since: int
    until: int
    entered_low: int
    """The earliest it can have begun."""
    left_low: int
    """The earliest it can have ended."""
    watched: bool = True
    """A poll showed it; False for the life of a machine first seen when it was over."""


class Hold(NamedTuple):
    """One run on the machine."""

    run_id: str
    since: int
    until: int
    blocks: int
    """Of the machine's `total_blocks`."""


class Slice(NamedTuple):
    """A part of a span in which the same runs are on the machine."""

    phase: Phase
    since: int
    until: int
    runs: tuple[tuple[str, int], ...]
    """(run, blocks)."""
    of: int
    """The blocks the price is split by."""
    span: Span


def life_end(vm: Vm, until: int) -> int:
    """Where the bill ends: the machine's end, else `until`; never before it was created."""
    if vm.state is VmState.TERMINATED and vm.finished_at is not None:
        return max(vm.created, vm.finished_at)
    return max(vm.created, until)


def possible_end(vm: Vm, until: int) -> int:
    """Up to where it can have been there: the high bound of its bill ends here.

    Later than its end only where nobody says that, and a poll first showed it when it was over.
    """
    end = life_end(vm, until)
    return max(end, vm.first_at) if vm.unseen_end and vm.state is VmState.TERMINATED else end


def certain_end(vm: Vm, until: int) -> int:
    """Up to where it was certainly there: the low bound of its bill ends here.

    An end somebody saw in the cloud's own console is certain. An open machine: its last sight. Unconfirmed: where that
    began, or its last sight if earlier. Unreachable and not answering again before it was told to go: the first sight
    of that.
    """
    end = life_end(vm, until)
    if vm.confirmed:
        return end
    match vm.state:
        case VmState.TERMINATED:
            low = end if vm.finished_low is None else vm.finished_low
        case VmState.UNCONFIRMED:
            began = [step.at for step in vm.steps if step.after is VmState.UNCONFIRMED]
            low = min(vm.last_at, *began[-1:])
        case _:
            low = vm.last_at
    for silence in vm.unreachable:
        going = (
            step.at
            for step in vm.steps
            if step.at >= silence.since and step.after in (VmState.TERMINATING, VmState.TERMINATED)
        )
        if silence.until is None or silence.until >= next(going, _NEVER):
            low = min(low, silence.since)
            break
    return min(end, max(vm.created, low))


def spans(vm: Vm, until: int) -> tuple[Span, ...]:
    """The phases of its life in order; they fill it exactly. Empty for a machine nobody has seen yet."""
    end = life_end(vm, until)
    steps = [step for step in vm.steps if step.after is not VmState.REQUESTED]
    if not steps:
        phase = PHASE_OF.get(vm.state)
        return () if phase is None else (Span(phase, vm.created, end, vm.created, end),)
    if steps[0].after is VmState.TERMINATED and len(steps) == 1:
        return (Span(Phase.IDLE, vm.created, end, vm.created, end, watched=False),)
    found: list[Span] = []
    edge = vm.created
    for index, step in enumerate(steps):
        entered_low = vm.created if index == 0 else _within(step.low_at, vm.created, edge)
        following = steps[index + 1] if index + 1 < len(steps) else None
        leaving = end if following is None else _within(following.at, edge, end)
        last = following is None or (following.after is VmState.TERMINATED and index + 2 == len(steps))
        left_low = leaving if last or following is None else _within(following.low_at, edge, leaving)
        # An end the provider took back: the machine had been there all along, as far as anybody can tell.
        phase = PHASE_OF.get(step.after, Phase.UNCONFIRMED)
        if step.after is VmState.TERMINATED and following is None:
            phase = found[-1].phase if found else Phase.UNCONFIRMED
        if leaving > edge:
            found.append(Span(phase, edge, leaving, min(entered_low, edge), left_low))
        edge = leaving
    if not found:
        phase = PHASE_OF.get(steps[-1].after, Phase.TERMINATING)
        found.append(Span(phase, vm.created, end, vm.created, end))
    return tuple(found)


def slices(vm: Vm, until: int) -> Iterator[Slice]:
    """The spans cut at every change of who is on the machine.

    A busy machine is its occupants'; what is busy between a run's end and the next poll is still that run's (the
    machine is cleaning up behind it), unless we were blind. Provisioning belongs to the run it was made for.
    """
    holds = _holds(vm)
    total = max(1, vm.facts.total_blocks or 1)
    for span in spans(vm, until):
        if span.phase is Phase.PROVISIONING:
            made_for = () if vm.made_for is None else ((vm.made_for, 1),)
            yield Slice(span.phase, span.since, span.until, made_for, 1, span)
        elif span.phase is not Phase.BUSY and span.watched:
            yield Slice(span.phase, span.since, span.until, (), 1, span)
        else:
            yield from _shared(span, holds, total)


def _shared(span: Span, holds: tuple[Hold, ...], total: int) -> Iterator[Slice]:
    """A span cut at the edges of the runs in it."""
    covered = span.left_low if span.until - span.left_low > BLIND_AFTER else span.until
    holds = tuple(hold for hold in holds if hold.since < span.until and hold.until > span.entered_low)
    inner = {edge for hold in holds for edge in (hold.since, hold.until)} | {covered}
    edges = [span.since, *sorted(edge for edge in inner if span.since < edge < span.until), span.until]
    found: Slice | None = None
    for start, end in pairwise(edges):
        here = [hold for hold in holds if hold.since <= start < hold.until]
        if not here and span.watched and start < covered:
            here = _just_left(span, holds, start)
        runs = tuple((hold.run_id, hold.blocks) for hold in here)
        phase = Phase.BUSY if runs or span.watched else Phase.IDLE
        cut = Slice(phase, start, end, runs, max(total, sum(hold.blocks for hold in here)), span)
        if found is not None and cut == found._replace(since=start, until=end):
            found = found._replace(until=end)
            continue
        if found is not None:
            yield found
        found = cut
    if found is not None:
        yield found


def _just_left(span: Span, holds: tuple[Hold, ...], moment: int) -> list[Hold]:
    """The run that ended last before a moment of a busy span, if it was on the machine in it."""
    ended = [hold for hold in holds if span.entered_low < hold.until <= moment]
    return sorted(ended, key=lambda hold: hold.until)[-1:]


def _holds(vm: Vm) -> tuple[Hold, ...]:
    """Who was on it when. Where a machine takes one run at a time, the next begins when the one before has left: what
    lies before in its submission was waiting for it.
    """
    occupancies = sorted(vm.occupancies, key=lambda one: (one.seen_at, one.since))
    total = max(1, vm.facts.total_blocks or 1)
    found: list[Hold] = []
    for one in occupancies:
        since, until = one.since, _NEVER if one.until is None else max(one.since, one.until)
        if total == 1 and found:
            before = found[-1]
            handover = max(before.since, min(before.until, one.seen_at))
            found[-1] = before._replace(until=handover)
            since = max(since, handover)
        found.append(Hold(one.run_id, since, max(since, until), _blocks(one.blocks, total)))
    return tuple(found)


def _blocks(blocks: int | None, total: int) -> int:
    return max(1, min(total, 1 if blocks is None else blocks))


def _within(moment: int, low: int, high: int) -> int:
    return max(low, min(moment, high))
