"""The leaderboard is a pure function of judged kernels: only believed times have a place, the best is first."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.kernel.rejudge import SUSPECTED, UNPROVEN, Measured
from projections.models.judged_kernel import JudgedKernel
from projections.models.leaderboard import leaderboard


def time(number: int, median: float) -> Measured:
    return Measured(
        benchmark=number,
        sizes={"N": number},
        warm_ups=0,
        min_ms=median,
        median_ms=median,
        max_ms=median,
        spread=0.0,
        overhead_ms=0.0,
        floor_ms=0.0,
        times_ms=(median,),
        walls_ms=(median,),
        digests=("d",),
    )


BEST = JudgedKernel(
    run_id="r",
    name="n",
    submitter="ada",
    submitted_at=1,
    problem="matmul",
    definition="shipped",
    gpu="MI300X",
    dtype="float32",
    language="hip",
    machine="vm",
    start="warm",
    said="BENCHMARKED",
    message="",
    now="BENCHMARKED",
    why=(),
    seed_proven=True,
    measured=(time(1, 9.0), time(2, 1.0)),
)

KERNELS = st.lists(
    st.builds(
        msgspec.structs.replace,
        st.just(BEST),
        run_id=st.text("abc", min_size=3, max_size=3),
        submitted_at=st.integers(0, 3),
        problem=st.sampled_from(["matmul", "vector-add"]),
        definition=st.sampled_from(["shipped", "12345678"]),
        gpu=st.sampled_from(["MI300X", "CPU"]),
        said=st.sampled_from(["BENCHMARKED", "CHECKED", SUSPECTED, "WRONG_ANSWER"]),
        now=st.sampled_from(["BENCHMARKED", SUSPECTED, UNPROVEN]),
        measured=st.sampled_from([(), (time(1, 1.0),), (time(1, 2.0), time(2, 0.5)), (time(1, 0.5),)]),
    ),
    max_size=12,
)


@given(KERNELS, st.integers(1, 5))
def test_the_best_believed_times_are_ranked_and_nothing_is_in_two_places(
    kernels: list[JudgedKernel], limit: int
) -> None:
    """Order of submission decides between equal times, and they share a rank."""
    found = leaderboard(kernels, limit=limit)
    for board in found.boards:
        times = [place.time.median_ms for place in board.places]
        assert times == sorted(times)
        assert [place.rank for place in board.places] == [times.index(one) + 1 for one in times]
        assert len(times) <= limit
        assert board.more == 0 or len(times) == limit
        for place in board.places:
            assert place.kernel.said == place.kernel.now == "BENCHMARKED"
            assert (place.kernel.problem, place.kernel.gpu) == (board.problem, board.gpu)
            assert place.kernel.definition == board.definition
        assert len(board.history) == len(board.places) + board.more
        assert list(board.history) == sorted(board.history, key=lambda one: (one.submitted_at, one.run_id))
    for listed in (found.suspected, found.unproven):
        times_of = [one.submitted_at for one in listed]
        assert times_of == sorted(times_of, reverse=True)
        assert len(times_of) <= limit
    suspected = [one for one in kernels if SUSPECTED in (one.said, one.now)]
    assert len(found.suspected) + found.more_suspected == len(suspected)
    assert all(SUSPECTED in (one.said, one.now) for one in found.suspected)
    assert all((one.said, one.now) == ("BENCHMARKED", UNPROVEN) for one in found.unproven)
    ranked = sum(len(board.places) + board.more for board in found.boards)
    believed = [one for one in kernels if one.said == one.now == "BENCHMARKED" and one.measured]
    assert ranked == len(believed)
    assert leaderboard(kernels, problem="none", limit=limit) == leaderboard((), limit=limit)


def test_the_last_benchmark_decides() -> None:
    """Not the first, nor the best of them."""
    other = msgspec.structs.replace(BEST, run_id="o", measured=(time(1, 0.1), time(2, 2.0)))
    (board,) = leaderboard([other, BEST], limit=9).boards
    assert [place.kernel.run_id for place in board.places] == ["r", "o"]
    (only,) = leaderboard([other, BEST], limit=1).boards
    assert (len(only.places), only.more) == (1, 1)
