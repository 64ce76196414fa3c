"""A machine's life cut into phases, and by who was on it.

Two polls bracket each inner edge. Within the bracket it lies where the provider's own log dates it, else where the
runs' own times put it, else at the first poll that shows the new phase. What the provider dates between two polls of
the same phase is a spell that no poll saw. Outer edges are the life's own, so the spans fill the life exactly. An edge
never lies before the one before it, so a clock that jumps back makes no negative span.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from steno.engine.money.life import NEVER, Holds, blocks_of, life_end, silent_from
from steno.engine.state.changes import VmStep
from steno.engine.state.sources import BLIND_AFTER
from steno.engine.state.states import VmState
from steno.engine.state.vm import PHASE_OF, Phase, Vm, VmDate

_PHASES: Final = {phase.value: phase for phase in Phase}
_LIVE: Final = frozenset({Phase.PROVISIONING, Phase.BUSY, Phase.IDLE})


class Span(NamedTuple):
    """A phase. It began between `entered_low` and `entered_high`, and did not end before `left_low`."""

    phase: Phase
    since: int
    until: int
    entered_low: int
    entered_high: int
    left_low: int


class Slice(NamedTuple):
    """A part of a span with the same runs on the machine: (run, blocks); `of`: blocks by which the price is split."""

    phase: Phase
    since: int
    until: int
    runs: tuple[tuple[str, int], ...]
    of: int
    span: Span


class _Edge(NamedTuple):
    at: int
    phase: Phase
    low: int
    high: int


class Begun(NamedTuple):
    """A point from which a machine's life can be continued: what lies before is known."""

    step: int  # how many of its steps are past
    edge: _Edge  # the beginning of the phase that the last of them shows
    since: int  # when that was shown: later dates of the provider are still to come
    dates: tuple[VmDate, ...] = ()  # dates before it that no poll showed by then
    shifts: tuple[VmDate, ...] = ()  # as `dates`, of the runs' own times


Marked = tuple[Begun | None, _Edge]


def spans(vm: Vm, until: int, holds: Holds, begun: Begun | None = None) -> Iterator[tuple[Begun | None, Span]]:
    """The phases of its life in order, filling it exactly, each with the point to continue from, if there is one. None:
    no poll has shown the machine.
    """
    end, silent = life_end(vm, until), silent_from(vm)
    here: Marked | None = None if begun is None else (begun, begun.edge)
    empty = begun is None
    for mark, edge in _edges(vm, end, holds, begun):
        if here is not None and silent is not None and edge.at >= silent and {here[1].phase, edge.phase} <= _LIVE:
            continue
        if here is not None and edge.at > here[1].at:
            yield from _span(*here, edge.at, edge.low, silent)
            empty = False
        here = mark, edge
    if here is not None and (end > here[1].at or empty):
        yield from _span(*here, end, end, silent)


def _span(
    mark: Begun | None, edge: _Edge, until: int, left_low: int, silent: int | None
) -> Iterator[tuple[Begun | None, Span]]:
    """A phase; unconfirmed after the machine fell silent for good."""
    cut = until if silent is None or edge.phase not in _LIVE else _within(silent, edge.at, until)
    if cut > edge.at or until == edge.at:
        yield mark, Span(edge.phase, edge.at, cut, edge.low, edge.high, min(cut, left_low))
    if until > cut:
        yield None, Span(Phase.UNCONFIRMED, cut, until, cut, cut, until)


class _Dates:
    """Dates in order of time, taken piece by piece. `left`: those taken that lie after the edge found last."""

    def __init__(self, dates: Sequence[VmDate], left: Sequence[VmDate] = ()) -> None:
        self._dates = dates
        self._times = [date.at for date in dates]
        self.left = tuple(left)

    def take(self, after: int, until: int, phase: Phase | None) -> tuple[VmDate, ...]:
        """The dates that were left, and those after `after`, up to `until`, as far as the last in `phase`: a poll
        at `until` shows that phase.
        """
        if not self._dates and not self.left:
            return ()
        dates = (*self.left, *self._dates[bisect_right(self._times, after) : bisect_right(self._times, until)])
        count = len(dates)
        for place in reversed(range(count if phase is not None else 0)):
            if phase in (dates[place].after, dates[place].before):
                count = place + (dates[place].after == phase)
                break
        self.left = dates[count:]
        return dates[:count]


def _edges(vm: Vm, end: int, holds: Holds, begun: Begun | None) -> Iterator[Marked]:
    """Where each phase begins, up to each step in turn, and after the last."""
    if not vm.steps:
        phase = PHASE_OF.get(vm.state)
        if phase is not None:
            yield None, _Edge(vm.created, phase, vm.created, vm.created)
        return
    start, edge, since = (0, None, vm.created) if begun is None else (begun.step, begun.edge, begun.since)
    dates = _Dates(vm.dates, () if begun is None else begun.dates)
    shifts = _Dates(holds.shifts(vm.created), () if begun is None else begun.shifts)
    for index, step in enumerate(vm.steps[start:], start + 1):
        target = PHASE_OF.get(step.after)
        if step.after is VmState.TERMINATED and index < len(vm.steps):
            # The provider took back an end: the machine had existed all along, as far as anybody can tell.
            target = Phase.UNCONFIRMED
        own = dates.take(since, step.at, target)
        edges = _up_to(step, target, edge, vm.created, end, own, shifts.take(since, step.at, target))
        since = max(since, step.at)
        for inner in edges[:-1]:
            yield None, inner
        if edges:
            edge = edges[-1]
            is_target = target is not None and edge.phase is target
            yield (Begun(index, edge, since, dates.left, shifts.left) if is_target else None), edge
    if vm.state is not VmState.TERMINATED and edge is not None:
        # A provider's clock may be ahead, so a date behind `end` counts, else a later poll would change a phase.
        own, runs = dates.take(since, NEVER, edge.phase), shifts.take(since, NEVER, edge.phase)
        edges = _dated(own, runs, edge.phase, edge.phase, edge.at, NEVER, NEVER)
        if edges and edges[-1].phase is edge.phase:
            yield from ((None, inner._replace(high=min(inner.high, end))) for inner in edges if inner.at < end)


def _up_to(
    step: VmStep,
    target: Phase | None,
    edge: _Edge | None,
    created: int,
    end: int,
    own: tuple[VmDate, ...],
    runs: tuple[VmDate, ...],
) -> list[_Edge]:
    """The edges after `edge` up to that of one step, which begins `target`; None: it ends the life."""
    before, first = (None, created) if edge is None else (edge.phase, edge.at)
    at = end if target is None else _within(step.at, first, end)
    low = first if edge is None else _within(step.low_at, first, at)
    if target is not None and not own and not runs:
        return [_Edge(first, target, first, first) if edge is None else _Edge(at, target, low, at)]
    if target is not None and len(own) == 1 and own[0].before == before and own[0].after == target:
        at = _within(own[0].at, low, at)
        return [_Edge(at, target, at, at)]
    edges = _dated(own, runs, before, target, first, low, at)
    phase = edges[-1].phase if edges else before
    if phase is None:
        edges.append(_Edge(first, target or Phase.IDLE, first, first))
    elif target is not None and (phase is not target or not edges):
        edges.append(_Edge(at, target, low, at))
    # The last poll before the step showed the phase before, so its final end is after that poll.
    if before is not None:
        gone = 1 + max((place for place, inner in enumerate(edges) if inner.phase is before), default=-1)
        edges[gone:] = [
            _Edge(max(low, inner.at), inner.phase, max(low, inner.low), max(low, inner.high)) for inner in edges[gone:]
        ]
    return edges


def _dated(
    own: tuple[VmDate, ...],
    runs: tuple[VmDate, ...],
    before: Phase | None,
    target: Phase | None,
    first: int,
    low: int,
    at: int,
) -> list[_Edge]:
    """The edges that dates give on the way from one phase to another, from `first` to `at`. Only the provider's `own`
    dates, if none is missing; else those of the `runs` too. A phase that the dates skip began at `low`, the last poll
    that shows the one before.
    """
    if not own and not runs:
        return []
    words = [before, *(date.after for date in own)]
    joined = all(date.before == word for word, date in zip(words, own, strict=False) if word is not None)
    if own and joined and (target is None or words[-1] == target):
        runs = ()
    edges: list[_Edge] = []
    phase = before
    for date in sorted((*own, *runs), key=lambda date: date.at) if runs else own:
        was, after = _PHASES.get(date.before), _PHASES.get(date.after)
        if after is None or after is phase:
            continue
        moment = edges[-1].at if edges else first
        begins = _within(date.at, moment, at)
        if phase is None:
            edges.append(_Edge(first, was or after, first, first))
        elif was is not None and was is not phase:
            missed = _within(low, moment, begins)
            edges.append(_Edge(missed, was, missed, begins))
        # A run was submitted, and came some time later.
        edges.append(_Edge(begins, after, begins, at if date in runs and after is Phase.BUSY else begins))
        phase = after
    return edges


def slices(vm: Vm, until: int, holds: Holds, begun: Begun | None = None) -> Iterator[tuple[Begun | None, Slice]]:
    """The spans cut at every change of who is on the machine, each with the point to continue from at its span. Busy
    time belongs to the occupants; busy time between a run's end and the next poll is still that run's (the machine
    cleans up after it), unless we were blind. Provisioning belongs to the run it was made for.
    """
    total = blocks_of(vm)
    for mark, span in spans(vm, until, holds, begun):
        if span.phase is Phase.BUSY:
            for cut in _shared(span, holds, total):
                yield mark, cut
        else:
            runs = ((vm.made_for, 1),) if span.phase is Phase.PROVISIONING and vm.made_for is not None else ()
            yield mark, Slice(span.phase, span.since, span.until, runs, 1, span)


def _shared(span: Span, holds: Holds, total: int) -> Iterator[Slice]:
    """A busy span cut at the edges of the runs in it."""
    covered = span.left_low if span.until - span.left_low > BLIND_AFTER else span.until
    there = holds.between(span.entered_low, span.until)
    inner = {edge for hold in there for edge in (hold.since, hold.until)} | {covered}
    edges = [span.since, *sorted(edge for edge in inner if span.since < edge < span.until), span.until]
    piece: Slice | None = None
    for start, end in pairwise(edges):
        here = holds.at(start)
        if not here and start < covered:
            here = holds.left(span.entered_low, start)
        runs = tuple([(hold.run_id, hold.blocks) for hold in here])
        if piece is not None and runs == piece.runs:
            piece = piece._replace(until=end)
            continue
        if piece is not None:
            yield piece
        piece = Slice(span.phase, start, end, runs, max(total, sum([hold.blocks for hold in here])), span)
    if piece is not None:
        yield piece


def _within(moment: int, low: int, high: int) -> int:
    return max(low, min(moment, high))
