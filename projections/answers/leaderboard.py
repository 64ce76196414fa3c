"""The best times by problem, GPU, dtype and processors. Only times that today's rules believe are ranked; pure."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from steno.engine.kernel.rejudge import SUSPECTED, Measured
from steno.engine.state.gpu_name import model_of
from steno.engine.wire import Shape, Time
from steno.projections.answers.judged_kernel import JudgedKernel

HISTORY = 500  # newest times of a board that its history has


class Place(Shape, frozen=True, kw_only=True):
    """A ranked time. Its rank is one more than the number of faster times: times whose intervals overlap tie."""

    rank: int
    time: Measured  # of the last benchmark
    kernel: JudgedKernel


class BoardTime(Shape, frozen=True, kw_only=True):
    """A time of a board's history."""

    run_id: str
    name: str | None
    submitted_at: Time
    median_ms: float  # of the last benchmark


class Board(Shape, frozen=True, kw_only=True):
    """The best times of one problem on one GPU with one dtype, and of so many processors."""

    problem: str
    definition: str
    gpu: str
    dtype: str
    cpus: int  # processors that each solution could use
    places: tuple[Place, ...]  # best first; of equal rank by time of submission
    more: int  # ranked kernels beyond the limit
    history: tuple[BoardTime, ...]  # of ranked kernels by time of submission, the newest last


class Leaderboard(Shape, frozen=True, kw_only=True):
    boards: tuple[Board, ...]
    suspected: tuple[JudgedKernel, ...]  # by its status, or by today's rules; newest first
    more_suspected: int  # beyond the limit
    unproven: tuple[JudgedKernel, ...]  # ended BENCHMARKED; the record does not prove it by today's rules
    more_unproven: int


def leaderboard(
    kernels: Iterable[JudgedKernel],
    *,
    problem: str | None = None,
    gpu: str | None = None,
    dtype: str | None = None,
    limit: int,
) -> Leaderboard:
    """`limit`: places of one board, and length of either list. `gpu`: as `model_of` reads it."""
    gpu = None if gpu is None else model_of(gpu)
    wanted = [
        kernel
        for kernel in kernels
        if problem in (None, kernel.problem) and gpu in (None, kernel.gpu) and dtype in (None, kernel.dtype)
    ]
    groups: dict[tuple[str, str, str, str, int], list[JudgedKernel]] = defaultdict(list)
    for kernel in wanted:
        if kernel.status == kernel.now == "BENCHMARKED" and kernel.isolated and kernel.measured:
            last = _last(kernel)
            if last.ranks:
                groups[kernel.problem, kernel.definition, kernel.gpu, kernel.dtype, last.cpus].append(kernel)
    wanted.sort(key=lambda kernel: (kernel.submitted_at, kernel.run_id), reverse=True)
    suspected = [kernel for kernel in wanted if SUSPECTED in (kernel.status, kernel.now)]
    unproven = [each for each in wanted if each.status == "BENCHMARKED" and each.now not in (each.status, SUSPECTED)]
    return Leaderboard(
        boards=tuple(_board(key, group, limit) for key, group in sorted(groups.items())),
        suspected=tuple(suspected[:limit]),
        more_suspected=max(0, len(suspected) - limit),
        unproven=tuple(unproven[:limit]),
        more_unproven=max(0, len(unproven) - limit),
    )


def _last(kernel: JudgedKernel) -> Measured:
    return max(kernel.measured, key=lambda result: result.benchmark)


def _newest(kernels: Iterable[JudgedKernel]) -> list[JudgedKernel]:
    """The newest kernel of each source, by time of submission."""
    newest: dict[str, JudgedKernel] = {}
    for kernel in sorted(kernels, key=lambda kernel: (kernel.submitted_at, kernel.run_id)):
        key = kernel.source or kernel.run_id
        newest.pop(key, None)
        newest[key] = kernel
    return list(newest.values())


def _board(key: tuple[str, str, str, str, int], kernels: Iterable[JudgedKernel], limit: int) -> Board:
    timed = [(kernel, _last(kernel)) for kernel in _newest(kernels)]
    bounds = sorted(time.high_ms for _, time in timed)
    ranked = [(bisect_left(bounds, time.low_ms) + 1, kernel, time) for kernel, time in timed]
    ranked.sort(key=lambda row: row[0])  # stable: by time of submission
    history = (
        BoardTime(run_id=kernel.run_id, name=kernel.name, submitted_at=kernel.submitted_at, median_ms=time.median_ms)
        for kernel, time in timed[-HISTORY:]
    )
    problem, definition, gpu, dtype, cpus = key
    return Board(
        problem=problem,
        definition=definition,
        gpu=gpu,
        dtype=dtype,
        cpus=cpus,
        places=tuple(Place(rank=rank, time=time, kernel=kernel) for rank, kernel, time in ranked[:limit]),
        more=max(0, len(timed) - limit),
        history=tuple(history),
    )
