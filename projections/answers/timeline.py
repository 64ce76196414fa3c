"""The timeline of a run: its states as spans, its attempts, and gaps without polls."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta

from steno.engine.objects import BlindObject, IntervalObject, RunObject, VmObject
from steno.engine.run_spans import state_spans
from steno.engine.state.changes import GapKind
from steno.engine.state.run import Attempt, Said, phases_of
from steno.engine.wire import Position, Shape, Stretched, Time
from steno.events.clock import SECOND, parse_time
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.view import View


class TimelineSpan(Stretched, frozen=True, kw_only=True):
    """A state, held from `start` to `end`; None: still held."""

    state: str
    attempt: int
    start: Time
    end: Time | None
    seconds: float  # an open one is counted to the timeline's `until`
    position: Position | None  # the poll that began it; None for the time before the first poll


class Gap(Stretched, frozen=True, kw_only=True):
    """A stretch of the run's life in which its source was not seen."""

    source: str
    start: Time
    end: Time
    kind: GapKind


class TimedGap(Gap, frozen=True, kw_only=True):
    """A gap with its length."""

    seconds: float


class BilledPhase(Stretched, frozen=True, kw_only=True):
    """A phase in which the run's machine was billed, within the run's own time."""

    phase: str
    start: Time
    end: Time
    seconds: float


class TaskPhase(BilledPhase, frozen=True, kw_only=True):
    """A phase that the task itself reports."""

    position: Position


class MachineOfRun(Shape, frozen=True, kw_only=True):
    """The machine a run was on, while it was asked for or went on."""

    vm_id: str | None
    start: Annotated[str | None, Meta(description="cold or warm")]
    phases: tuple[BilledPhase, ...]


class Timeline(
    Shape, frozen=True, kw_only=True, rename={"start": "from", "unwatched": "first_poll_at", "gaps": "blind"}
):
    """A run's life from its submission to `until`: its verdict, or the last poll of it."""

    run_id: str
    name: str | None
    state: str
    reason: str | None
    start: Time
    until: Time
    unwatched: Time | None  # first poll of a run submitted elsewhere, if it is older
    spans: tuple[TimelineSpan, ...]
    gaps: tuple[TimedGap, ...]
    machine: MachineOfRun
    phases: tuple[TaskPhase, ...]  # as the task reports them; empty without reports


def timeline(
    run: RunObject,
    blind: Iterable[BlindObject],
    now: int,
    vm: VmObject | None = None,
    report: Said | None = None,
    later: Sequence[Attempt] = (),
    phases: Sequence[tuple[str, int]] = (),
    *,
    foreign: bool = False,
) -> Timeline:
    """The life of a run up to its verdict, or up to `now` (microseconds UTC) if open. `report`: the task's own;
    `later`: attempts after the first; `phases`: (name, start) as the provider reports them; `foreign`: it was submitted
    outside Steno.
    """
    moves = [parse_time(move.at) for move in run.transitions]
    submitted = parse_time(run.submitted_at) if run.submitted_at else None
    first = moves[0] if moves else submitted if submitted is not None else now
    start = first if submitted is None else min(submitted, first)
    waited = first > start and not foreign
    held, verdict = state_spans(run, later, (start, first) if waited else None)
    if report is not None:
        steps = [(step.phase.value, step.at, step.position) for step in report.phases]
    else:  # none for a run with one phase only
        decided = run.evidence[-1] if run.evidence else 0
        steps = [(name, at, decided) for name, at in phases] if len(phases) > 1 else []
    until = max(start, verdict if verdict is not None else now, held[-1][2] if held else start)
    return Timeline(
        run_id=run.run_id,
        name=run.name,
        state=run.state,
        reason=run.reason,
        start=start,
        until=until,
        unwatched=first if first > start and not waited else None,
        spans=tuple(
            TimelineSpan(
                state=state,
                attempt=attempt,
                start=begin,
                end=end,
                seconds=((until if end is None else end) - begin) / SECOND,
                position=position,
            )
            for state, attempt, begin, end, position in held
        ),
        gaps=tuple(
            TimedGap(source=gap.source, start=begin, end=end, kind=gap.kind, seconds=(end - begin) / SECOND)
            for gap, begin, end in _within(blind, first, until)
        ),
        machine=MachineOfRun(
            vm_id=run.vm_id,
            start=run.start,
            phases=tuple(
                BilledPhase(phase=interval.phase, start=begin, end=end, seconds=(end - begin) / SECOND)
                for interval, begin, end in _within(() if vm is None else vm.intervals, start, until)
            ),
        ),
        phases=_phases(steps, until),
    )


def timeline_of(view: View, row: RunRow, now: int) -> Timeline:
    """The life of a stored run, with its machine; of a run in an archive up to the archive's last poll."""
    folded, run, end = row.decoded, row.public, view.clock(row.archive, now)
    return timeline(
        run,
        view.blind_of(row, end),
        end,
        None if run.vm_id is None else view.vm(run.vm_id),
        folded.said,
        folded.later_attempts,
        phases_of(folded),
        foreign=row.is_foreign,
    )


def _phases(steps: Sequence[tuple[str, int, int]], until: int) -> tuple[TaskPhase, ...]:
    """The phases of these (name, start, position): each ends at the next, the last at the end, as lines are read a
    moment after they were written.
    """
    ends = [*(at for _, at, _ in steps), until][1:]
    return tuple(
        TaskPhase(phase=name, start=at, end=max(at, end), seconds=max(0, end - at) / SECOND, position=position)
        for (name, at, position), end in zip(steps, ends, strict=True)
    )


_Stretch = TypeVar("_Stretch", BlindObject, IntervalObject)


def _within(stretches: Iterable[_Stretch], start: int, until: int) -> Iterator[tuple[_Stretch, int, int]]:
    for stretch in stretches:
        begin = max(start, parse_time(stretch.start))
        end = min(until, parse_time(stretch.end) if stretch.end is not None else until)
        if end > begin:
            yield stretch, begin, end
