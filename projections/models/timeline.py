"""Where a run's time went: its states as spans, its attempts, and the gaps in which nobody looked."""

from collections.abc import Iterable, Sequence

import msgspec

from engine.fold.run import Attempt, Said
from engine.objects import BlindObject, RunObject, VmObject
from events.clock import SECOND, foreign_run_id, format_time, parse_time


class TimelineSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One state, held from `start` to `end` (microseconds, UTC); None: still held."""

    state: str
    attempt: int
    start: int
    end: int | None
    position: int | None
    """The poll that began it; None for the time before the first poll."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the run's life in which its source told us nothing."""

    source: str
    start: int
    end: int


class BilledPhase(msgspec.Struct, frozen=True, kw_only=True):
    """What the run's machine was billed as, within the run's own time."""

    phase: str
    start: int
    end: int


class TaskPhase(msgspec.Struct, frozen=True, kw_only=True):
    """What the task itself said it did, from then on."""

    phase: str
    start: int
    end: int
    position: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run's life from its submission to `until`: its verdict, or the last word on it."""

    start: int
    until: int
    unwatched: int | None
    """When the first poll showed a run that somebody else submitted, if the provider had it before that."""
    spans: tuple[TimelineSpan, ...]
    gaps: tuple[Gap, ...]
    verdict: int | None
    """When the verdict fell; None while the run is open."""
    machine: tuple[BilledPhase, ...] = ()
    """Of the machine it was on, while it was asked for or went on."""
    task: tuple[TaskPhase, ...] = ()
    """What the task said it did; empty where it reports nothing."""


def timeline(
    run: RunObject,
    blind: Iterable[BlindObject],
    now: int,
    vm: VmObject | None = None,
    said: Said | None = None,
    later: Sequence[Attempt] = (),
) -> Timeline:
    """The life of a run up to its verdict, or up to `now` (microseconds, UTC) while it is open.

    Args:
        vm: its machine.
        said: what its task said of itself.
        later: its attempts after the first.
    """
    spans = _spans(run, later)
    moves = [parse_time(move.at) for move in run.transitions]
    submitted = parse_time(run.submitted_at) if run.submitted_at else None
    first = moves[0] if moves else submitted if submitted is not None else now
    start = first if submitted is None else min(submitted, first)
    if first > start and _is_ours(run):
        waited = TimelineSpan(state="requested", attempt=1, start=start, end=first, position=None)
        spans, seen = (waited, *spans), None
    else:
        seen = first if first > start else None
    verdict = moves[-1] if run.ended and moves else None
    until = max(start, verdict if verdict is not None else now, spans[-1].start if spans else start)
    return Timeline(
        start=start,
        until=until,
        unwatched=seen,
        spans=spans,
        gaps=_gaps(blind, first, until),
        verdict=verdict,
        machine=() if vm is None else _phases(vm, start, until),
        task=() if said is None else _task(said, until),
    )


def timeline_object(run: RunObject, life: Timeline) -> dict[str, object]:
    """The timeline as JSON values, times as text; durations are seconds, an open span is counted to `until`."""
    return {
        "run_id": run.run_id,
        "name": run.name,
        "state": run.state,
        "reason": run.reason,
        "from": format_time(life.start),
        "until": format_time(life.until),
        "first_poll_at": format_time(life.unwatched) if life.unwatched is not None else None,
        "spans": [
            {
                "state": span.state,
                "attempt": span.attempt,
                "from": format_time(span.start),
                "to": format_time(span.end) if span.end is not None else None,
                "seconds": ((span.end if span.end is not None else life.until) - span.start) / SECOND,
                "position": span.position,
            }
            for span in life.spans
        ],
        "blind": [
            {
                "source": gap.source,
                "from": format_time(gap.start),
                "to": format_time(gap.end),
                "seconds": (gap.end - gap.start) / SECOND,
            }
            for gap in life.gaps
        ],
        "machine": {
            "vm_id": run.vm_id,
            "start": run.start,
            "phases": [
                {
                    "phase": one.phase,
                    "from": format_time(one.start),
                    "to": format_time(one.end),
                    "seconds": (one.end - one.start) / SECOND,
                }
                for one in life.machine
            ],
        },
        "phases": [
            {
                "phase": one.phase,
                "from": format_time(one.start),
                "to": format_time(one.end),
                "seconds": (one.end - one.start) / SECOND,
                "position": one.position,
            }
            for one in life.task
        ],
    }


def _is_ours(run: RunObject) -> bool:
    """Whether Steno was asked for the run: one that somebody else submitted has the id all foreign ones get."""
    return run.provider_id is None or run.run_id != foreign_run_id(run.provider, run.provider_id)


def _spans(run: RunObject, later: Sequence[Attempt]) -> tuple[TimelineSpan, ...]:
    """Each state the run passed through, in order; one left at the moment it was entered took no time.

    A return to the queue belongs to the attempt it leads to, which the provider may show only later.
    """
    spans: list[TimelineSpan] = []
    moves = run.transitions
    for index, move in enumerate(moves):
        known = move.position
        if move.target == "queued" and move.origin not in {None, "requested"}:
            known = moves[index + 1].position if index + 1 < len(moves) else later[-1].position if later else known
        attempt = max((one.number for one in later if one.position <= known), default=1)
        start = parse_time(move.at)
        last = index == len(moves) - 1
        if last and run.ended:
            break
        end = None if last else parse_time(moves[index + 1].at)
        if end == start and moves[index + 1].target != move.target and not last:
            continue
        spans.append(TimelineSpan(state=move.target, attempt=attempt, start=start, end=end, position=move.position))
    return tuple(spans)


def _phases(vm: VmObject, start: int, until: int) -> tuple[BilledPhase, ...]:
    """The intervals of a machine's bill that lie within the run's time."""
    found = []
    for one in vm.intervals:
        begin = max(start, parse_time(one.start))
        end = min(until, parse_time(one.end) if one.end is not None else until)
        if end > begin:
            found.append(BilledPhase(phase=one.phase, start=begin, end=end))
    return tuple(found)


def _task(said: Said, until: int) -> tuple[TaskPhase, ...]:
    """Each phase up to the next, the last one to the end: lines are read a moment after they were written."""
    ends = [*(step.at for step in said.phases), until][1:]  # none where it has said nothing yet
    return tuple(
        TaskPhase(phase=step.phase.value, start=step.at, end=max(step.at, end), position=step.position)
        for step, end in zip(said.phases, ends, strict=True)
    )


def _gaps(blind: Iterable[BlindObject], start: int, until: int) -> tuple[Gap, ...]:
    gaps = []
    for gap in blind:
        begin = max(start, parse_time(gap.start))
        end = min(until, parse_time(gap.end) if gap.end is not None else until)
        if end > begin:
            gaps.append(Gap(source=gap.source, start=begin, end=end))
    return tuple(gaps)
