"""A recorded kernel judged again by today's rules, from its mark and its judge's frames."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from steno.engine.kernel.definition import Definition, definition_hash, shipped
from steno.engine.kernel.machine.measure import FEWEST, summary
from steno.engine.state.kernel_mark import KernelMark

SUSPECTED: Final = "CHEATING_SUSPECTED"
UNPROVEN: Final = "UNPROVEN"
"""The status of a good result if the record does not have the evidence that today's rules ask for."""
OLD_CLOCK: Final = "its clock ran in the solution's process, which could lie: submit it again"
_ROUNDING: Final = 1e-5  # milliseconds

_Ms = Annotated[float, msgspec.Meta(ge=0)]


class MeasuredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that were timed together, by the judge's clock."""

    calls: Annotated[int, msgspec.Meta(ge=1)]
    ms: Annotated[float, msgspec.Meta(gt=0)]
    late_ms: _Ms  # the part of it after the solution said that it was done
    cpu_ms: _Ms | None = None  # that processors worked; None: not counted
    counts: bool  # False: to find how many calls are enough, or measured again
    seed: str  # that its inputs follow from, as hex
    digest: str  # of its outputs


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A BENCHMARK_RESULT with its evidence; times are of one call."""

    benchmark: int
    sizes: dict[str, int]
    min_ms: _Ms
    median_ms: _Ms
    max_ms: _Ms
    low_ms: _Ms  # of the interval that is compared with others
    high_ms: _Ms
    cpu_ms: _Ms | None = None
    spread: float
    empty_ms: _Ms  # of a solution that does nothing, measured in the same way
    floor_ms: _Ms
    calls: int  # of a batch
    called: str  # `solution`, or `solve_batch`
    cpus: int  # processors that it could use
    coarse: str  # why its times are not exact; empty: they are exact
    ranks: bool  # False: its judge could not freeze the solution in a way that may be compared
    batches: tuple[MeasuredBatch, ...]


class Rejudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The status by today's rules, and why it differs from the recorded status."""

    status: str
    why: tuple[str, ...] = ()


def rejudged(status: str, mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> Rejudgement:
    """`status`: the final status of the run; `frames`: those of its task, in order. Only good results can change: the
    others need no proof.
    """
    if status not in {"CHECKED", "BENCHMARKED"}:
        return Rejudgement(status=status)
    gaps = []
    passed = [frame.get("test") for frame in frames if frame.get("status") == "TEST_RESULT" and frame.get("passed")]
    right = sum(number in passed for number in range(1, mark.tests + 1))
    if right < mark.tests:
        gaps.append(f"the record has {right} of {mark.tests} tests as passed")
    if status == "BENCHMARKED":
        results = results_of(frames)
        if set(results) != set(range(1, mark.benchmarks + 1)):
            gaps.append(f"the record has {len(results)} of {mark.benchmarks} benchmarks")
        for number, result in sorted(results.items()):
            faults = [result] if isinstance(result, str) else _gaps(result, mark)
            gaps += [f"benchmark {number}: {gap}" for gap in faults]
    return Rejudgement(status=UNPROVEN if gaps else status, why=tuple(gaps))


def results_of(frames: Sequence[Mapping[str, Any]]) -> dict[int, Measured | str]:
    """The result of each benchmark by its number; a text says why its evidence cannot be used."""
    reports = [frame for frame in frames if frame.get("status") == "BENCHMARK_RESULT"]
    return {number: _measured(frame) for frame in reports if isinstance(number := frame.get("benchmark"), int)}


def ran_on(mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> str:
    """The GPU that was timed: `CPU` where the judge found no compiler for a GPU."""
    flags = next((str(frame.get("flags")) for frame in frames if frame.get("status") == "COMPILING"), "")
    return mark.gpu_type if "-arch=" in flags else "CPU"  # only a GPU's compiler is told an architecture


def shipped_definition(mark: KernelMark) -> Definition | None:
    """The shipped problem that was solved; None: it had a definition of its own, or of another version."""
    definition = shipped().get(mark.problem)
    return definition if definition is not None and definition_hash(definition) == mark.definition_hash else None


def _measured(frame: Mapping[str, Any]) -> Measured | str:
    if "batches" not in frame:
        return OLD_CLOCK
    try:
        return msgspec.convert(frame, Measured)
    except msgspec.ValidationError as error:
        return f"its evidence cannot be read: {error}"


def _gaps(measured: Measured, mark: KernelMark) -> Iterator[str]:
    """The missing and contradictory parts of the evidence."""
    counted = [batch for batch in measured.batches if batch.counts]
    if len(counted) < FEWEST:
        yield f"{len(counted)} batches were timed, at least {FEWEST} are needed"
        return
    again = summary([msgspec.structs.asdict(batch) for batch in counted])
    for name in ("median_ms", "low_ms", "high_ms"):
        if abs(again[name] - getattr(measured, name)) > _ROUNDING:
            yield f"its {name} is {again[name]:.6f}, not {getattr(measured, name):.6f}"
    if len({batch.seed for batch in measured.batches}) < len(measured.batches):
        yield "batches had the same inputs"
    problem = shipped_definition(mark)
    if problem is not None and measured.sizes not in [dict(case.sizes) for case in problem.benchmarks]:
        yield "the problem has no benchmark of these sizes"
