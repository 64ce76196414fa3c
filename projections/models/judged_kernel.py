"""Kernels of the record with what was said of them, and what today's rules say from the same events."""

from collections.abc import Iterator
from typing import Any, Final

from engine.errors import RunNotFound
from engine.kernel.rejudge import Measured, is_seed_proven, ran_on, rejudged, results_of, shipped_definition
from engine.kernel_mark import KernelMark, read_mark
from engine.wire import Shape, Time, wire
from events.clock import SECOND, format_time
from events.store.record import Record
from projections.models.kernel import Status, facts_of, frames_said, story_of
from projections.models.view import View
from projections.store.schema import RunRow
from projections.store.world_table import decode_run

_MOST: Final = 10_000  # judged kernels that are kept, of some 6 kB each; further ones are judged each time


class JudgedKernel(Shape, frozen=True, kw_only=True):
    """One kernel run that has its final status."""

    run_id: str
    name: str | None
    submitter: str | None
    submitted_at: Time
    problem: str
    definition: str  # `shipped`, the first digits of its hash, or `unknown`
    gpu: str  # that was timed: CPU if there was no compiler for the GPU asked for
    dtype: str
    language: str
    machine: str | None
    start: str | None  # cold or warm
    said: str  # its final status
    message: str
    now: str  # its status by today's rules
    why: tuple[str, ...]  # why that is another one
    seed_proven: bool | None  # whether the seed has the recorded hash; None: one of them is missing
    measured: tuple[Measured, ...]  # of each benchmark with evidence

    @property
    def changes(self) -> bool:
        return self.now != self.said


class ToldKernel(Shape, frozen=True, kw_only=True):
    mark: KernelMark
    story: tuple[Status, ...]
    judged: JudgedKernel | None  # None: it has no final status yet


def told_kernel(record: Record, view: View, row: RunRow, now: int) -> ToldKernel:
    """Raises `RunNotFound` if the run is not a kernel, or one of another version of Steno."""
    found = _told(record, view, row, now)
    if found is None:
        raise RunNotFound(f"{row.name or row.run_id} is not a kernel; `steno show {row.name or row.run_id}` shows it")
    return found


def judged_kernels(record: Record, view: View, now: int, *, since: int | None = None) -> Iterator[JudgedKernel]:
    """Every kernel with a final status, by first sight; only those submitted since then. No archives."""
    for row in view.store.runs.all(hidden=False):
        if row.archive is None and (since is None or row.sort_at >= since):
            told = _told(record, view, row, now)
            if told is not None and told.judged is not None:
                yield told.judged


class JudgedKernels:
    """As `judged_kernels`, for many calls: a kernel is judged again only after its run has changed. Any thread may
    call it; two at a time may judge the same kernel twice.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, JudgedKernel]] = {}
        self._others: set[str] = set()  # runs that are not kernels; none becomes one

    def read(self, record: Record, view: View, now: int) -> Iterator[JudgedKernel]:
        for run_id, changed in view.store.runs.live_changes():
            kept = self._kept.get(run_id)
            if kept is not None and kept[0] == changed:
                yield kept[1]
            elif run_id not in self._others and (row := view.store.runs.get(run_id)) is not None:
                told = _told(record, view, row, now)
                if told is None:
                    self._others.add(run_id)
                elif told.judged is not None:  # whether a story has its end may depend on the time too
                    if len(self._kept) < _MOST if kept is None else kept[0] < changed:
                        self._kept[run_id] = changed, told.judged
                    yield told.judged


def _told(record: Record, view: View, row: RunRow, now: int) -> ToldKernel | None:
    run = decode_run(row.folded)
    mark = None if run.said is None else read_mark(run.said.mark)
    if mark is None:
        return None
    facts = facts_of(record, run, until=view.position)
    story = story_of(run, facts, view.state, now)
    if not story or not story[-1].final:
        return ToldKernel(mark=mark, story=story, judged=None)
    end, frames = story[-1], frames_said(run, facts)
    verdict = rejudged(end.status, mark, frames)
    shipped = "shipped" if shipped_definition(mark) is not None else mark.definition_hash[:8]
    judged = JudgedKernel(
        run_id=run.run_id,
        name=run.name,
        submitter=row.user,
        submitted_at=row.sort_at,
        problem=mark.problem,
        definition=shipped or "unknown",
        gpu=ran_on(mark, frames),
        dtype=mark.dtype,
        language=mark.language,
        machine=None if run.vm_id is None else view.vm(run.vm_id).name,
        start=run.start,
        said=end.status,
        message=end.message,
        now=verdict.status,
        why=verdict.why,
        seed_proven=is_seed_proven(mark, frames),
        measured=tuple(one for one in results_of(frames).values() if not isinstance(one, str)),
    )
    return ToldKernel(mark=mark, story=story, judged=judged)


def kernel_object(row: RunRow, told: ToldKernel) -> dict[str, Any]:
    """The JSON of one kernel; its statuses have the names of `/api/amd`."""
    began = told.story[0].at if told.story else 0
    return {
        "run_id": row.run_id,
        "name": row.name,
        "mark": told.mark,
        "statuses": [_status(step, began) for step in told.story],
        "judged": None if told.judged is None else wire(told.judged),
    }


def _status(step: Status, began: int) -> dict[str, Any]:
    first = {
        "position": step.position,
        "status": step.status,
        "message": step.message,
        "at": format_time(step.at),
        "elapsed_seconds": max(0, step.at - began) / SECOND,
        "final": step.final,
    }
    return first | {name: value for name, value in step.facts.items() if name not in first}
