"""A recorded kernel judged again: the same events give the same result, and each defect of the evidence changes it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.kernel.definition import definition_hash, shipped
from steno.engine.kernel.machine.measure import summary
from steno.engine.kernel.rejudge import OLD_CLOCK, SUSPECTED, UNPROVEN, ran_on, rejudged, results_of
from steno.engine.state.kernel_mark import KernelMark

PROBLEM = shipped()["vector-add"]
MARK = KernelMark(
    problem="vector-add",
    gpu_type="MI300X",
    dtype="float32",
    language="hip",
    endpoint="benchmark",
    tests=1,
    benchmarks=1,
    definition_hash=definition_hash(PROBLEM),
)


def batch(number: int, **changes: Any) -> dict[str, Any]:
    usual = {"calls": 10, "ms": 60.0 + number, "late_ms": 0.1, "cpu_ms": 59.0, "counts": True}
    return usual | {"seed": f"{number:064x}", "digest": f"{number:016x}"} | changes


BATCHES = [batch(number) for number in range(5)]
RESULT: dict[str, Any] = {
    "status": "BENCHMARK_RESULT",
    "benchmark": 1,
    "sizes": dict(PROBLEM.benchmarks[0].sizes),
    **summary(BATCHES),
    "empty_ms": 0.01,
    "floor_ms": 0.0,
    "calls": 10,
    "called": "solution",
    "cpus": 4,
    "coarse": "",
    "ranks": True,
    "batches": BATCHES,
}


def frames(**changes: Any) -> list[dict[str, Any]]:
    """The frames of an honest kernel; a result's fact that is None is left out."""
    result = {name: value for name, value in (RESULT | changes).items() if value is not None}
    return [
        {"status": "COMPILING", "compiler": "hipcc", "flags": "-O3 --offload-arch=gfx942 -x hip"},
        {"status": "TEST_RESULT", "test": 1, "passed": True},
        result,
        {"status": "BENCHMARKED", "median_ms": [6.2]},
    ]


def test_an_honest_kernel_keeps_its_result() -> None:
    """By either endpoint."""
    assert rejudged("BENCHMARKED", MARK, frames()) == rejudged("BENCHMARKED", MARK, frames())
    assert rejudged("BENCHMARKED", MARK, frames()).status == "BENCHMARKED"
    assert rejudged("BENCHMARKED", MARK, frames()).why == ()
    assert rejudged("CHECKED", MARK, frames()[:2] + frames()[3:]).status == "CHECKED"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"median_ms": 0.4}, "its median_ms is 6.200000, not 0.400000"),
        ({"low_ms": 0.4}, "its low_ms is 5.928000, not 0.400000"),
        ({"high_ms": 6.3}, "its high_ms is 6.472000, not 6.300000"),
        ({"batches": BATCHES[:4]}, "4 batches were timed, at least 5 are needed"),
        ({"batches": [*BATCHES[:4], batch(4, counts=False)]}, "4 batches were timed, at least 5 are needed"),
        ({"batches": [*BATCHES[:4], batch(4, seed="0" * 64)]}, "batches had the same inputs"),
        ({"batches": [batch(0, ms=0)]}, "its evidence cannot be read"),
        ({"batches": "fast"}, "its evidence cannot be read"),
        ({"sizes": {"N": 1}}, "no benchmark of these sizes"),
        ({"batches": None}, f"benchmark 1: {OLD_CLOCK}"),
        ({"benchmark": 2}, "the record has 1 of 1 benchmarks"),
    ],
)
def test_each_defect_of_the_evidence_changes_it(changes: dict[str, Any], why: str) -> None:
    """And is named."""
    verdict = rejudged("BENCHMARKED", MARK, frames(**changes))
    assert (verdict.status, any(why in reason for reason in verdict.why)) == (UNPROVEN, True), verdict


def test_a_time_by_the_clock_of_before_is_unproven() -> None:
    """It is not called a cheat; and who was suspected then still is."""
    old = [*frames()[:2], {"status": "BENCHMARK_RESULT", "benchmark": 1, "times_ms": [0.5], "walls_ms": [0.5]}]
    assert rejudged("BENCHMARKED", MARK, old).why == (f"benchmark 1: {OLD_CLOCK}",)
    assert rejudged(SUSPECTED, MARK, old).status == SUSPECTED
    assert rejudged("CHECKED", MARK, old).status == "CHECKED"


def test_a_kernel_that_no_gpus_compiler_compiled_was_timed_on_the_cpu() -> None:
    """Whatever GPU was asked for: the judge told no compiler an architecture."""
    on_gpu = frames()
    assert ran_on(MARK, on_gpu) == "MI300X"
    assert ran_on(MARK, [on_gpu[0] | {"flags": "-O2 -x c++"}, *on_gpu[1:]]) == "CPU"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["CHECKED", "BENCHMARKED", SUSPECTED, "WRONG_ANSWER", "ERROR"]),
    st.dictionaries(st.sampled_from([*RESULT, "seed", "test", "passed", "flags"]), JSON),
)
def test_no_frame_breaks_it_and_no_odd_one_makes_it_better(status: str, odd: dict[str, Any]) -> None:
    """A bad result never becomes a good result."""
    honest = frames()
    for place in range(len(honest)):
        verdict = rejudged(status, MARK, [*honest[:place], honest[place] | odd, *honest[place + 1 :]])
        assert verdict.status in {status, UNPROVEN}
        assert verdict.status == status or status in {"CHECKED", "BENCHMARKED"}
        results_of([odd])


def test_what_is_right_has_a_hash_and_its_description_has_none() -> None:
    """Two problems of one name are told apart; a corrected text changes nothing."""
    problem = shipped()["matmul"]
    renamed = msgspec.structs.replace(problem, title="", description="multiply")
    other = msgspec.structs.replace(problem, tests=problem.tests[:1])
    assert definition_hash(renamed) == definition_hash(problem) != definition_hash(other)
