"""The best times by problem, GPU and dtype. Only times that today's rules believe are ranked; pure."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import starmap

from engine.kernel.rejudge import SUSPECTED, Measured
from engine.wire import Shape, Time
from projections.models.judged_kernel import JudgedKernel

HISTORY = 500  # newest times of a board that its history has


class Place(Shape, frozen=True, kw_only=True):
    """One ranked time; the same time has the same rank."""

    rank: int
    time: Measured  # of the last benchmark
    kernel: JudgedKernel


class BoardTime(Shape, frozen=True, kw_only=True):
    """One time of a board's history."""

    run_id: str
    name: str | None
    submitted_at: Time
    median_ms: float  # of the last benchmark


class Board(Shape, frozen=True, kw_only=True):
    """The best times of one problem on one GPU with one dtype."""

    problem: str
    definition: str
    gpu: str
    dtype: str
    places: tuple[Place, ...]  # best first
    more: int  # ranked kernels beyond the limit
    history: tuple[BoardTime, ...]  # of ranked kernels by time of submission, the newest last


class Leaderboard(Shape, frozen=True, kw_only=True):
    boards: tuple[Board, ...]
    suspected: tuple[JudgedKernel, ...]  # by what was said, or by today's rules; newest first
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
    """`limit`: places of one board, and length of either list. `gpu`: upper or lower case."""
    gpu = None if gpu is None else gpu.upper()
    wanted = [
        one
        for one in kernels
        if problem in (None, one.problem) and gpu in (None, one.gpu) and dtype in (None, one.dtype)
    ]
    groups: dict[tuple[str, str, str, str], list[JudgedKernel]] = defaultdict(list)
    for one in wanted:
        if one.said == one.now == "BENCHMARKED" and one.measured:
            groups[one.problem, one.definition, one.gpu, one.dtype].append(one)
    wanted.sort(key=lambda one: (one.submitted_at, one.run_id), reverse=True)
    suspected = [one for one in wanted if SUSPECTED in (one.said, one.now)]
    unproven = [one for one in wanted if one.said == "BENCHMARKED" and one.now not in (one.said, SUSPECTED)]
    return Leaderboard(
        boards=tuple(starmap(lambda key, found: _board(key, found, limit), sorted(groups.items()))),
        suspected=tuple(suspected[:limit]),
        more_suspected=max(0, len(suspected) - limit),
        unproven=tuple(unproven[:limit]),
        more_unproven=max(0, len(unproven) - limit),
    )


def _board(key: tuple[str, str, str, str], kernels: Iterable[JudgedKernel], limit: int) -> Board:
    timed = [(one, max(one.measured, key=lambda result: result.benchmark)) for one in kernels]
    timed.sort(key=lambda pair: (pair[1].median_ms, pair[0].submitted_at, pair[0].run_id))
    medians = [time.median_ms for _, time in timed]
    places = tuple(Place(rank=medians.index(time.median_ms) + 1, time=time, kernel=one) for one, time in timed[:limit])
    history = (
        BoardTime(run_id=one.run_id, name=one.name, submitted_at=one.submitted_at, median_ms=time.median_ms)
        for one, time in sorted(timed, key=lambda pair: (pair[0].submitted_at, pair[0].run_id))[-HISTORY:]
    )
    problem, definition, gpu, dtype = key
    return Board(
        problem=problem,
        definition=definition,
        gpu=gpu,
        dtype=dtype,
        places=places,
        more=max(0, len(timed) - limit),
        history=tuple(history),
    )
