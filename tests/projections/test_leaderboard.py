"""The leaderboard is a pure function of judged kernels: only believed times have a place, the best is first."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.kernel.rejudge import SUSPECTED, UNPROVEN, Measured
from steno.projections.answers.judged_kernel import JudgedKernel
from steno.projections.answers.leaderboard import leaderboard


def time(number: int, median: float, width: float = 0.0, **changes: Any) -> Measured:
    usual: dict[str, Any] = {"calls": 10, "called": "solution", "cpus": 2, "coarse": "", "ranks": True, "batches": ()}
    return Measured(
        benchmark=number,
        sizes={"N": number},
        min_ms=median,
        median_ms=median,
        max_ms=median,
        low_ms=median - width,
        high_ms=median + width,
        spread=0.0,
        empty_ms=0.0,
        floor_ms=0.0,
        **(usual | changes),
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
    status="BENCHMARKED",
    message="",
    now="BENCHMARKED",
    why=(),
    source="",
    isolated=True,
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
        status=st.sampled_from(["BENCHMARKED", "CHECKED", SUSPECTED, "WRONG_ANSWER"]),
        now=st.sampled_from(["BENCHMARKED", SUSPECTED, UNPROVEN]),
        source=st.sampled_from(["", "a", "b"]),
        isolated=st.sampled_from([True, True, False]),
        measured=st.sampled_from(
            [(), (time(1, 1.0, 0.3),), (time(1, 2.0), time(2, 0.5)), (time(1, 0.6, 0.2),), (time(1, 0.5, ranks=False),)]
        ),
    ),
    max_size=12,
)


@given(KERNELS, st.integers(1, 5))
def test_the_best_believed_times_are_ranked_and_nothing_is_in_two_places(
    kernels: list[JudgedKernel], limit: int
) -> None:
    """Only an interval that ends below another one ranks before it; order of submission decides between the others."""
    ranking = leaderboard(kernels, limit=limit)
    for board in ranking.boards:
        for place in board.places:
            faster = [other for other in board.places if other.time.high_ms < place.time.low_ms]
            assert place.rank >= len(faster) + 1
            assert place.rank == len(faster) + 1 or board.more
        keys = [(place.rank, place.kernel.submitted_at, place.kernel.run_id) for place in board.places]
        assert keys == sorted(keys)
        assert len(keys) <= limit
        assert board.more == 0 or len(keys) == limit
        sources = [place.kernel.source for place in board.places if place.kernel.source]
        assert len(sources) == len(set(sources))
        for place in board.places:
            assert place.kernel.status == place.kernel.now == "BENCHMARKED"
            assert (place.kernel.problem, place.kernel.gpu) == (board.problem, board.gpu)
            assert place.kernel.definition == board.definition
        assert len(board.history) == len(board.places) + board.more
        assert list(board.history) == sorted(board.history, key=lambda kernel: (kernel.submitted_at, kernel.run_id))
    for listed in (ranking.suspected, ranking.unproven):
        times_of = [kernel.submitted_at for kernel in listed]
        assert times_of == sorted(times_of, reverse=True)
        assert len(times_of) <= limit
    suspected = [kernel for kernel in kernels if SUSPECTED in (kernel.status, kernel.now)]
    assert len(ranking.suspected) + ranking.more_suspected == len(suspected)
    assert all(SUSPECTED in (kernel.status, kernel.now) for kernel in ranking.suspected)
    assert all((kernel.status, kernel.now) == ("BENCHMARKED", UNPROVEN) for kernel in ranking.unproven)
    ranked = sum(len(board.places) + board.more for board in ranking.boards)
    believed = [
        kernel
        for kernel in kernels
        if kernel.status == kernel.now == "BENCHMARKED"
        and kernel.isolated
        and kernel.measured
        and kernel.measured[-1].ranks
    ]
    boards = {(kernel.problem, kernel.definition, kernel.gpu, kernel.source or id(kernel)) for kernel in believed}
    unnamed = sum(not kernel.source for kernel in believed)
    assert ranked <= len(boards)
    assert ranked >= len(boards) - unnamed
    assert leaderboard(kernels, problem="none", limit=limit) == leaderboard((), limit=limit)


def test_the_last_benchmark_decides() -> None:
    """Not the first, nor the best of them."""
    other = msgspec.structs.replace(BEST, run_id="o", measured=(time(1, 0.1), time(2, 2.0)))
    (board,) = leaderboard([other, BEST], limit=9).boards
    assert [place.kernel.run_id for place in board.places] == ["r", "o"]
    (only,) = leaderboard([other, BEST], limit=1).boards
    assert (len(only.places), only.more) == (1, 1)


def test_of_one_source_the_newest_time_counts() -> None:
    """A better one of before does not: who submits often would keep the luckiest."""
    lucky = msgspec.structs.replace(BEST, run_id="a", submitted_at=1, source="s", measured=(time(1, 0.5),))
    newest = msgspec.structs.replace(BEST, run_id="b", submitted_at=2, source="s", measured=(time(1, 0.7),))
    (board,) = leaderboard([newest, lucky], limit=9).boards
    assert [place.kernel.run_id for place in board.places] == ["b"]


def test_times_that_overlap_tie_in_order_of_submission() -> None:
    first = msgspec.structs.replace(BEST, run_id="a", submitted_at=1, measured=(time(1, 1.0, 0.1),))
    second = msgspec.structs.replace(BEST, run_id="b", submitted_at=2, measured=(time(1, 0.95, 0.1),))
    faster = msgspec.structs.replace(BEST, run_id="c", submitted_at=3, measured=(time(1, 0.5, 0.1),))
    other = msgspec.structs.replace(BEST, run_id="d", submitted_at=4, measured=(time(1, 0.1, cpus=64),))
    board, wide = leaderboard([second, first, faster, other], limit=9).boards
    assert [(place.rank, place.kernel.run_id) for place in board.places] == [(1, "c"), (2, "a"), (2, "b")]
    assert (wide.cpus, len(wide.places)) == (64, 1)
