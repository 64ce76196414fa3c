"""The best times by problem, GPU and dtype. Only times that today's rules believe are ranked; pure."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import starmap

from engine.kernel.rejudge import SUSPECTED, Measured
from engine.wire import Shape
from projections.models.judged_kernel import JudgedKernel


class Place(Shape, frozen=True, kw_only=True):
    """One ranked time; the same time has the same rank."""

    rank: int
    time: Measured  # of the last benchmark
    kernel: JudgedKernel


class Board(Shape, frozen=True, kw_only=True):
    """The best times of one problem on one GPU with one dtype."""

    problem: str
    definition: str
    gpu: str
    dtype: str
    places: tuple[Place, ...]  # best first
    more: int  # ranked kernels beyond the limit


class Leaderboard(Shape, frozen=True, kw_only=True):
    boards: tuple[Board, ...]
    suspected: tuple[JudgedKernel, ...]  # by what was said, or by today's rules
    unproven: tuple[JudgedKernel, ...]  # ended BENCHMARKED; the record does not prove it by today's rules


def leaderboard(
    kernels: Iterable[JudgedKernel],
    *,
    problem: str | None = None,
    gpu: str | None = None,
    dtype: str | None = None,
    limit: int,
) -> Leaderboard:
    """`limit`: places of one board."""
    wanted = [
        one
        for one in kernels
        if problem in (None, one.problem) and gpu in (None, one.gpu) and dtype in (None, one.dtype)
    ]
    groups: dict[tuple[str, str, str, str], list[JudgedKernel]] = defaultdict(list)
    for one in wanted:
        if one.said == one.now == "BENCHMARKED" and one.measured:
            groups[one.problem, one.definition, one.gpu, one.dtype].append(one)
    suspected = tuple(one for one in wanted if SUSPECTED in (one.said, one.now))
    return Leaderboard(
        boards=tuple(starmap(lambda key, found: _board(key, found, limit), sorted(groups.items()))),
        suspected=suspected,
        unproven=tuple(one for one in wanted if one.said == "BENCHMARKED" != one.now and one not in suspected),
    )


def _board(key: tuple[str, str, str, str], kernels: Iterable[JudgedKernel], limit: int) -> Board:
    timed = [(one, max(one.measured, key=lambda result: result.benchmark)) for one in kernels]
    timed.sort(key=lambda pair: (pair[1].median_ms, pair[0].submitted_at, pair[0].run_id))
    medians = [time.median_ms for _, time in timed]
    places = tuple(Place(rank=medians.index(time.median_ms) + 1, time=time, kernel=one) for one, time in timed[:limit])
    problem, definition, gpu, dtype = key
    return Board(
        problem=problem,
        definition=definition,
        gpu=gpu,
        dtype=dtype,
        places=places,
        more=max(0, len(timed) - limit),
    )
