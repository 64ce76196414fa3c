"""A machine's life cut into phases, and into who was on it.

Inner edges are the first poll that shows the new phase, outer edges the life's own, so that the spans fill the life
exactly. A clock that jumps back makes no negative span: an edge never lies before the one before it.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from engine.money.holds import Holds, blocks_of
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


class Begun(NamedTuple):
    """Where a machine's life is taken up: what lies before is known."""

    step: int
    """How many of its steps lie behind."""
    edge: int
    """Where the next phase begins."""
    phase: Phase | None
    """The phase before; None: there is none."""


def spans(vm: Vm, until: int, begun: Begun | None = None) -> Iterator[tuple[int, Span]]:
    """The phases of its life in order, each with how many steps led to it; they fill it exactly. None for a machine
    nobody has seen yet.
    """
    begun = Begun(0, vm.created, None) if begun is None else begun
    end = life_end(vm, until)
    steps = vm.steps[begun.step :]
    if begun.phase is None and (not steps or (len(steps) == 1 and steps[0].after is VmState.TERMINATED)):
        phase = Phase.IDLE if steps else PHASE_OF.get(vm.state)
        if phase is not None:
            yield 0, Span(phase, vm.created, end, vm.created, end, watched=not steps)
        return
    edge, before = begun.edge, begun.phase
    for index, step in enumerate(steps):
        first = index == 0 and begun.step == 0
        entered_low = vm.created if first else _within(step.low_at, vm.created, edge)
        following = steps[index + 1] if index + 1 < len(steps) else None
        leaving = end if following is None else _within(following.at, edge, end)
        last = following is None or (following.after is VmState.TERMINATED and index + 2 == len(steps))
        left_low = leaving if last or following is None else _within(following.low_at, edge, leaving)
        # An end the provider took back: the machine had been there all along, as far as anybody can tell.
        phase = PHASE_OF.get(step.after, Phase.UNCONFIRMED)
        if step.after is VmState.TERMINATED and following is None:
            phase = Phase.UNCONFIRMED if before is None else before
        if leaving > edge:
            yield begun.step + index, Span(phase, edge, leaving, min(entered_low, edge), left_low)
            before = phase
        edge = leaving
    if before is None:
        phase = PHASE_OF.get(steps[-1].after, Phase.TERMINATING)
        yield 0, Span(phase, vm.created, end, vm.created, end)


def slices(vm: Vm, until: int, holds: Holds, begun: Begun | None = None) -> Iterator[tuple[int, Slice]]:
    """The spans cut at every change of who is on the machine, each with how many steps led to its span.

    A busy machine is its occupants'; what is busy between a run's end and the next poll is still that run's (the
    machine is cleaning up behind it), unless we were blind. Provisioning belongs to the run it was made for.
    """
    total = blocks_of(vm)
    for number, span in spans(vm, until, begun):
        if span.phase is Phase.PROVISIONING:
            made_for = () if vm.made_for is None else ((vm.made_for, 1),)
            yield number, Slice(span.phase, span.since, span.until, made_for, 1, span)
        elif span.phase is not Phase.BUSY and span.watched:
            yield number, Slice(span.phase, span.since, span.until, (), 1, span)
        else:
            for cut in _shared(span, holds, total):
                yield number, cut


def _shared(span: Span, holds: Holds, total: int) -> Iterator[Slice]:
    """A span cut at the edges of the runs in it."""
    covered = span.left_low if span.until - span.left_low > BLIND_AFTER else span.until
    there = holds.between(span.entered_low, span.until)
    inner = {edge for hold in there for edge in (hold.since, hold.until)} | {covered}
    edges = [span.since, *sorted(edge for edge in inner if span.since < edge < span.until), span.until]
    found: Slice | None = None
    for start, end in pairwise(edges):
        here = holds.at(start)
        if not here and span.watched and start < covered:
            here = holds.left(span.entered_low, start)
        runs = tuple([(hold.run_id, hold.blocks) for hold in here])
        phase = Phase.BUSY if runs or span.watched else Phase.IDLE
        cut = Slice(phase, start, end, runs, max(total, sum([hold.blocks for hold in here])), span)
        if found is not None and cut == found._replace(since=start, until=end):
            found = found._replace(until=end)
            continue
        if found is not None:
            yield found
        found = cut
    if found is not None:
        yield found


def _within(moment: int, low: int, high: int) -> int:
    return max(low, min(moment, high))
