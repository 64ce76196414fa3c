"""A recorded kernel judged again by today's rules, from its mark and what its judge said."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from engine.kernel.definition import Definition, definition_hash, entries, product, shipped
from engine.kernel.machine.measure import GPUS, floor_ms, suspicion
from engine.kernel.machine.tensors import SIZES
from engine.kernel_mark import KernelMark, hashed

SUSPECTED: Final = "CHEATING_SUSPECTED"
UNPROVEN: Final = "UNPROVEN"
"""What a good result becomes if the record does not have the evidence that today's rules ask for."""
NO_EVIDENCE: Final = "no evidence: judged before it was recorded"
_GOOD: Final = frozenset({"CHECKED", "BENCHMARKED"})
_FEW: Final = 64  # entries of all outputs; different inputs may have the same result if there are fewer
_ROUNDING: Final = 1e-5  # milliseconds

_Ms = Annotated[float, msgspec.Meta(ge=0)]
_Times = Annotated[tuple[_Ms, ...], msgspec.Meta(min_length=1)]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A BENCHMARK_RESULT with its evidence."""

    benchmark: int
    sizes: dict[str, int]
    warm_ups: int
    min_ms: _Ms
    median_ms: _Ms
    max_ms: _Ms
    spread: float
    overhead_ms: _Ms
    floor_ms: _Ms
    times_ms: _Times  # of each timed call, by the solution's clock
    walls_ms: _Times  # by the judge's
    works_ms: tuple[_Ms, ...] = ()  # of processors in them, at most; on a GPU none
    overhead_work_ms: _Ms = 0.0
    around_ms: tuple[_Ms, ...] = ()  # from inputs to outputs of each call, without the call
    idle_ms: _Ms = 0.0  # the same of a program that does nothing
    digests: tuple[str, ...]  # of each call's outputs, warm-ups too

    @property
    def wall_ms(self) -> float:
        """The median by the judge's clock."""
        return statistics.median(self.walls_ms)


class Rejudgement(msgspec.Struct, frozen=True, kw_only=True):
    """What today's rules say, and why if it is not what was said."""

    status: str
    why: tuple[str, ...] = ()


def rejudged(said: str, mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> Rejudgement:
    """`said`: the final status of the run; `frames`: what its task said, in order. Only good results and suspicions can
    change: the others need no proof.
    """
    if said == SUSPECTED:
        return _suspected_again(mark, frames)
    if said not in _GOOD:
        return Rejudgement(status=said)
    if not mark.seed_hash:
        return Rejudgement(status=UNPROVEN, why=(NO_EVIDENCE,))
    cheats, gaps = [], []
    proven = is_seed_proven(mark, frames)
    if proven is None:
        gaps.append("the seed of its inputs was not recorded")
    elif not proven:
        cheats.append("the seed of its inputs is not the one whose hash was recorded before the run")
    passed = [frame.get("test") for frame in frames if frame.get("status") == "TEST_RESULT" and frame.get("passed")]
    right = sum(number in passed for number in range(1, mark.tests + 1))
    if right < mark.tests:
        gaps.append(f"the record has {right} of {mark.tests} tests as passed")
    if said == "BENCHMARKED":
        results = results_of(frames)
        if set(results) != set(range(1, mark.benchmarks + 1)):
            gaps.append(f"the record has {len(results)} of {mark.benchmarks} benchmarks")
        for number, result in sorted(results.items()):
            if isinstance(result, str):
                gaps.append(f"benchmark {number}: {result}")
                continue
            gaps += [f"benchmark {number}: {gap}" for gap in _gaps(result, mark)]
            cheats += [f"benchmark {number}: {cheat}" for cheat in _cheats(result, mark, ran_on(mark, frames))]
    if cheats:
        return Rejudgement(status=SUSPECTED, why=(*cheats, *gaps))
    return Rejudgement(status=UNPROVEN if gaps else said, why=tuple(gaps))


def is_seed_proven(mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the seed that was told has the hash recorded before the run; None: one of the two is missing."""
    seed = next((frame["seed"] for frame in reversed(frames) if "seed" in frame), None)
    return hashed(seed) == mark.seed_hash if isinstance(seed, str) and mark.seed_hash else None


def results_of(frames: Sequence[Mapping[str, Any]]) -> dict[object, Measured | str]:
    """The result of each benchmark by its number; a text says why its evidence cannot be used."""
    found = [frame for frame in frames if frame.get("status") == "BENCHMARK_RESULT"]
    return {number: _measured(frame) for frame in found if isinstance(number := frame.get("benchmark"), int)}


def ran_on(mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> str:
    """The GPU that was timed: `CPU` where the judge found no compiler for a GPU, whatever was asked for."""
    if mark.language == "command":
        return mark.gpu_type  # it may use the machine's
    flags = next((str(frame.get("flags")) for frame in frames if frame.get("status") == "COMPILING"), "")
    return mark.gpu_type if "-arch=" in flags else "CPU"  # only a GPU's compiler is told an architecture


def shipped_definition(mark: KernelMark) -> Definition | None:
    """The shipped problem that was solved; None: it had a definition of its own, or one of another version."""
    found = shipped().get(mark.problem)
    return found if found is not None and definition_hash(found) == mark.definition_hash else None


def _measured(frame: Mapping[str, Any]) -> Measured | str:
    if "walls_ms" not in frame:
        return NO_EVIDENCE
    try:
        return msgspec.convert(frame, Measured)
    except msgspec.ValidationError as error:
        return f"its evidence cannot be read: {error}"


def _suspected_again(mark: KernelMark, frames: Sequence[Mapping[str, Any]]) -> Rejudgement:
    """Only a suspicion about times can be judged again: the record has nothing else of what was seen."""
    last = frames[-1] if frames else {}
    found = _measured(last) if last.get("status") == SUSPECTED else NO_EVIDENCE
    if isinstance(found, str) or any(_cheats(found, mark, ran_on(mark, frames))):
        return Rejudgement(status=SUSPECTED)
    why = f"benchmark {found.benchmark}: its times are not suspicious any more; the run ended there, so submit it again"
    return Rejudgement(status=UNPROVEN, why=(why,))


def _gaps(found: Measured, mark: KernelMark) -> Iterator[str]:
    """What is missing or contradicts itself."""
    calls = found.warm_ups + len(found.times_ms)
    if len(found.walls_ms) != len(found.times_ms):
        yield f"{len(found.times_ms)} calls were timed by its clock, {len(found.walls_ms)} by the judge's"
    if len(found.works_ms) not in {0, len(found.times_ms)}:
        yield f"{len(found.times_ms)} calls were timed, the work of {len(found.works_ms)}"
    if found.idle_ms and len(found.around_ms) != len(found.times_ms):
        yield f"{len(found.times_ms)} calls were timed, the time around {len(found.around_ms)}"
    if len(found.digests) != calls:
        yield f"{len(found.digests)} of {calls} results were compared"
    median = statistics.median(found.times_ms)
    if abs(median - found.median_ms) > _ROUNDING:
        yield f"its median is {median:.6f} ms, not {found.median_ms:.6f} ms"
    problem = shipped_definition(mark)
    if problem is not None and found.sizes not in [dict(case.sizes) for case in problem.benchmarks]:
        yield "the problem has no benchmark of these sizes"


def _cheats(found: Measured, mark: KernelMark, gpu: str) -> Iterator[str]:
    problem, least = shipped_definition(mark), found.floor_ms
    known = problem is not None and set(problem.signature.sizes) <= set(found.sizes)
    if problem is not None and known and mark.dtype in SIZES and gpu in GPUS:
        signature = problem.signature
        outputs = sum(entries(one, found.sizes) for one in signature.outputs)
        moved = SIZES[mark.dtype] * (outputs + sum(entries(one, found.sizes) for one in signature.inputs))
        operations = product(problem.operations, found.sizes) if problem.operations else 0
        least = floor_ms(gpu, mark.dtype, moved, operations)
        if outputs > _FEW and len(set(found.digests)) < len(found.digests):
            yield "calls with different inputs gave the same result"
    seen = suspicion(msgspec.structs.asdict(found) | {"floor_ms": least})
    if seen is not None:
        yield seen
