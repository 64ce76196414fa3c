"""A recorded kernel judged again: the same events give the same result, and each defect of the evidence another one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernel.definition import definition_hash, shipped
from engine.kernel.rejudge import NO_EVIDENCE, SUSPECTED, UNPROVEN, rejudged, results_of
from engine.kernel_mark import KernelMark, hashed

SEED = "a seed"
MARK = KernelMark(
    problem="vector-add",
    gpu_type="MI300X",
    dtype="float32",
    language="hip",
    endpoint="benchmark",
    tests=1,
    benchmarks=1,
    key_hash=hashed("k"),
    seed_hash=hashed(SEED),
    definition_hash=definition_hash(shipped()["vector-add"]),
)
RESULT: dict[str, Any] = {
    "status": "BENCHMARK_RESULT",
    "benchmark": 1,
    "sizes": {"N": 1048576},
    "warm_ups": 1,
    "min_ms": 0.5,
    "median_ms": 0.51,
    "max_ms": 0.52,
    "spread": 0.01,
    "overhead_ms": 0.02,
    "floor_ms": 0.0,
    "times_ms": [0.5, 0.51, 0.52],
    "walls_ms": [0.53, 0.54, 0.55],
    "works_ms": [0.51, 0.52, 0.53],
    "overhead_work_ms": 0.02,
    "around_ms": [2.0, 2.1, 2.2],
    "idle_ms": 2.0,
    "digests": ["a", "b", "c", "d"],
}


def frames(seed: str | None = SEED, **changes: Any) -> list[dict[str, Any]]:
    """What the judge of an honest kernel said; a result's fact that is None is left out."""
    result = {name: value for name, value in (RESULT | changes).items() if value is not None}
    return [
        {"status": "COMPILING", "compiler": "hipcc", "flags": "-O3 --offload-arch=gfx942 -x hip"},
        {"status": "TEST_RESULT", "test": 1, "passed": True},
        result,
        {"status": "BENCHMARKED", "median_ms": [0.51]} | ({} if seed is None else {"seed": seed}),
    ]


def test_an_honest_kernel_keeps_its_result() -> None:
    """By either endpoint."""
    assert rejudged("BENCHMARKED", MARK, frames()) == rejudged("BENCHMARKED", MARK, frames())
    assert rejudged("BENCHMARKED", MARK, frames()).status == "BENCHMARKED"
    assert rejudged("BENCHMARKED", MARK, frames()).why == ()
    assert rejudged("CHECKED", MARK, frames()[:2] + frames()[3:]).status == "CHECKED"


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"seed": "another"}, SUSPECTED, "the seed of its inputs is not the one"),
        ({"seed": None}, UNPROVEN, "the seed of its inputs was not recorded"),
        ({"walls_ms": [9.0, 9.0, 9.0]}, SUSPECTED, "its clock says"),
        ({"walls_ms": [9.0] * 3, "overhead_ms": 3.0, "works_ms": [5.0] * 3}, SUSPECTED, "it worked 5.000000 ms for it"),
        ({"works_ms": [0.5]}, UNPROVEN, "3 calls were timed, the work of 1"),
        ({"times_ms": [1e-3] * 3, "median_ms": 1e-3, "walls_ms": [0.1] * 3}, SUSPECTED, "less than this GPU"),
        ({"around_ms": [5.3, 5.4, 1.0]}, SUSPECTED, "it works before or after its calls"),
        ({"around_ms": [3.3, 9.9]}, UNPROVEN, "3 calls were timed, the time around 2"),
        ({"digests": ["a", "b", "b", "c"]}, SUSPECTED, "different inputs gave the same result"),
        ({"digests": ["a", "b", "c"]}, UNPROVEN, "3 of 4 results were compared"),
        ({"walls_ms": [0.53, 0.54]}, UNPROVEN, "3 calls were timed by its clock, 2 by the judge's"),
        ({"median_ms": 0.4}, UNPROVEN, "its median is 0.510000 ms, not 0.400000 ms"),
        ({"sizes": {"N": 1}}, UNPROVEN, "no benchmark of these sizes"),
        ({"walls_ms": None}, UNPROVEN, f"benchmark 1: {NO_EVIDENCE}"),
        ({"times_ms": "fast"}, UNPROVEN, "its evidence cannot be read"),
        ({"times_ms": []}, UNPROVEN, "its evidence cannot be read"),
        ({"benchmark": 2}, UNPROVEN, "the record has 1 of 1 benchmarks"),
    ],
)
def test_each_defect_of_the_evidence_changes_it(changes: dict[str, Any], status: str, why: str) -> None:
    """And is named."""
    found = rejudged("BENCHMARKED", MARK, frames(**changes))
    assert (found.status, any(why in one for one in found.why)) == (status, True), found


def test_a_record_of_before_the_time_around_calls_keeps_its_result() -> None:
    """Judges of before did not measure it; nothing speaks against their kernels."""
    assert rejudged("BENCHMARKED", MARK, frames(around_ms=None, idle_ms=None)).status == "BENCHMARKED"


def test_a_time_by_the_cpu_has_the_floor_of_a_cpu() -> None:
    """Whatever GPU was asked for: the judge told no compiler an architecture."""
    fast = {"times_ms": [4e-3] * 3, "median_ms": 4e-3, "walls_ms": [0.1] * 3}
    on_gpu = frames(**fast)
    on_cpu = [on_gpu[0] | {"flags": "-O2 -x c++"}, *on_gpu[1:]]
    assert rejudged("BENCHMARKED", MARK, on_gpu).status == "BENCHMARKED"
    assert rejudged("BENCHMARKED", MARK, on_cpu).status == SUSPECTED


def test_a_command_has_the_floor_of_the_gpu_it_asked_for() -> None:
    """Its judge tells no compiler an architecture; it may use the machine's GPU."""
    command = msgspec.structs.replace(MARK, language="command")
    fast = frames(times_ms=[4e-3] * 3, median_ms=4e-3, walls_ms=[0.1] * 3)
    fast[0] = {"status": "COMPILING", "compiler": "none: a command runs as it is", "flags": ""}
    assert rejudged("BENCHMARKED", command, fast).status == "BENCHMARKED"
    on_cpu = msgspec.structs.replace(command, gpu_type="CPU")
    assert rejudged("BENCHMARKED", on_cpu, fast).status == SUSPECTED


def test_few_outputs_may_be_the_same_and_own_problems_too() -> None:
    """A reference of one's own may give one result for all inputs; its floor is the recorded one."""
    own = msgspec.structs.replace(MARK, definition_hash="0" * 64)
    same = frames(digests=["a"] * 4, sizes={"N": 7})
    assert rejudged("BENCHMARKED", own, same).status == "BENCHMARKED"
    assert rejudged("BENCHMARKED", own, frames(floor_ms=1.0)).status == SUSPECTED


def test_a_kernel_of_before_the_evidence_is_unproven() -> None:
    """It is not called a cheat."""
    old = msgspec.structs.replace(MARK, seed_hash="", definition_hash="")
    assert rejudged("BENCHMARKED", old, []) == rejudged("CHECKED", old, frames())
    assert rejudged("BENCHMARKED", old, []).why == (NO_EVIDENCE,)


def test_a_suspicion_about_times_falls_with_its_rule() -> None:
    """Any other one stays: what was seen is not in the record."""
    cleared = [*frames()[:2], RESULT | {"status": SUSPECTED, "message": "…"}]
    assert rejudged(SUSPECTED, MARK, cleared).status == UNPROVEN
    assert rejudged(SUSPECTED, MARK, [*cleared[:2], cleared[2] | {"walls_ms": [9.0] * 3}]).status == SUSPECTED
    assert rejudged(SUSPECTED, MARK, [{"status": SUSPECTED, "message": "a thread"}]).status == SUSPECTED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["CHECKED", "BENCHMARKED", SUSPECTED, "WRONG_ANSWER", "ERROR"]),
    st.dictionaries(st.sampled_from([*RESULT, "seed", "test", "passed", "flags"]), JSON),
)
def test_no_frame_breaks_it_and_no_odd_one_makes_it_better(said: str, odd: dict[str, Any]) -> None:
    """Bad results never become good ones."""
    told = frames()
    for place in range(len(told)):
        found = rejudged(said, MARK, [*told[:place], told[place] | odd, *told[place + 1 :]])
        assert found.status in {said, UNPROVEN, SUSPECTED}
        assert found.status == said or said in {"CHECKED", "BENCHMARKED", SUSPECTED}
        results_of([odd])


def test_what_is_right_has_a_hash_and_its_description_has_none() -> None:
    """Two problems of one name are told apart; a corrected text changes nothing."""
    problem = shipped()["matmul"]
    renamed = msgspec.structs.replace(problem, title="", description="multiply")
    other = msgspec.structs.replace(problem, tests=problem.tests[:1])
    assert definition_hash(renamed) == definition_hash(problem) != definition_hash(other)
