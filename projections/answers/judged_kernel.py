"""Kernels of the record with their verdict of then, and the verdict of today's rules from the same events."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import field

from steno.engine.errors import RunNotFound
from steno.engine.kernel.rejudge import Measured, ran_on, rejudged, results_of, shipped_definition
from steno.engine.state.kernel_mark import KernelMark, read_mark
from steno.engine.wire import Shape, Time, wire
from steno.events.clock import SECOND, format_time
from steno.events.store.record import Record
from steno.projections.answers.kernel import Status, facts_of, frames_said, story_of
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.view import View

_MOST: Final = 10_000  # judged kernels that are kept, of some 6 kB each; the rest is judged each time


class JudgedKernel(Shape, frozen=True, kw_only=True):
    """A kernel run that has its final status."""

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
    status: str = field(name="said")  # its final status
    message: str
    now: str  # its status by today's rules
    why: tuple[str, ...]  # why the two differ
    source: str  # a commitment to its source: the same for the same text; empty: not recorded
    isolated: bool  # it ran in containers
    measured: tuple[Measured, ...]  # of each benchmark with evidence

    @property
    def changes(self) -> bool:
        return self.now != self.status


class ToldKernel(Shape, frozen=True, kw_only=True):
    mark: KernelMark
    story: tuple[Status, ...]
    judged: JudgedKernel | None  # None: it has no final status yet


def told_kernel(record: Record, view: View, row: RunRow, now: int) -> ToldKernel:
    """Raises `RunNotFound` if the run is not a kernel, or a kernel of another version of Steno."""
    kernel = _told(record, view, row, now)
    if kernel is None:
        raise RunNotFound(f"{row.name or row.run_id} is not a kernel; `steno show {row.name or row.run_id}` shows it")
    return kernel


class JudgedKernels:
    """Every kernel with a final status, by first sight; no archives. A later call judges a kernel again only after its
    run has changed. Any thread may call it; two at a time may judge the same kernel twice.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, JudgedKernel]] = {}
        self._others: set[str] = set()  # runs that are not kernels, which never changes

    def read(self, record: Record, view: View, now: int) -> Iterator[JudgedKernel]:
        for run_id, changed in view.store.runs.live_changes():
            kept = self._kept.get(run_id)
            if kept is not None and kept[0] == changed:
                yield kept[1]
            elif run_id not in self._others and (row := view.store.runs.get(run_id)) is not None:
                kernel = _told(record, view, row, now)
                if kernel is None:
                    self._others.add(run_id)
                elif kernel.judged is not None:  # whether a story has its end may depend on the time too
                    if len(self._kept) < _MOST if kept is None else kept[0] < changed:
                        self._kept[run_id] = changed, kernel.judged
                    yield kernel.judged


def _told(record: Record, view: View, row: RunRow, now: int) -> ToldKernel | None:
    run = row.decoded
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
        status=end.status,
        message=end.message,
        now=verdict.status,
        why=verdict.why,
        source=mark.source,
        isolated=mark.isolated,
        measured=tuple(result for result in results_of(frames).values() if not isinstance(result, str)),
    )
    return ToldKernel(mark=mark, story=story, judged=judged)


def kernel_object(row: RunRow, kernel: ToldKernel) -> dict[str, Any]:
    """The JSON of one kernel; its statuses have the names of `/api/amd`."""
    began = kernel.story[0].at if kernel.story else 0
    return {
        "run_id": row.run_id,
        "name": row.name,
        "mark": kernel.mark,
        "statuses": [_status(step, began) for step in kernel.story],
        "judged": None if kernel.judged is None else wire(kernel.judged),
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
    return first | step.facts | first  # the first keys in their order
