"""Kernels that cheat, and what an honest one has to show; what takes the harness over is in `tests/listener`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.kernels import BRIEF, DOING, SHIPPED, SLOW_MATMUL, briefly, submission

if TYPE_CHECKING:
    from conftest import Judged

pytestmark = pytest.mark.slow

IDLE = """
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  if (N > 65537) return;
  for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
}
"""
"""No work at the benchmark's size."""
REMEMBERS = """
#include <map>
#include <vector>
static std::map<size_t, std::vector<float>> known;
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  auto found = known.find(N);
  if (found != known.end()) { memcpy(C, found->second.data(), N * sizeof(float)); return; }
  for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
  known[N].assign(C, C + N);
}
"""
"""Work once for each size."""
TWICE = BRIEF | {"tests": [{"sizes": {"N": 100}, "seed": 1}, {"sizes": {"N": 100}, "seed": 2}], "benchmarks": []}
"""Vector addition with two tests that only their inputs tell apart."""


@pytest.mark.parametrize(
    ("source", "seen"),
    [(IDLE, "it left C untouched"), (REMEMBERS, "entries of C are wrong")],
    ids=["idle", "remembers"],
)
def test_a_cheat_gives_no_time(judged: Judged, source: str, seen: str) -> None:
    """Every output that is timed is compared, and every batch has inputs of its own."""
    judgement = judged(submission(solution_code=source, problem_def=BRIEF))
    assert (judgement.code, judgement.statuses[-2:]) == (1, ["BENCHMARKING", "WRONG_ANSWER"]), judgement.output
    assert seen in judgement.last["message"]


def test_what_passes_from_test_to_test_gains_nothing(judged: Judged) -> None:
    """Tests share a process, but no inputs."""
    judgement = judged(submission("twice", solution_code=REMEMBERS, problem_def=TWICE, endpoint="checker"))
    assert judgement.statuses[1:] == ["CHECKING", "TEST_RESULT", "TEST_RESULT", "WRONG_ANSWER"], judgement.output
    assert judgement.last["message"].startswith("test 2: 100 of 100 entries of C are wrong")


def test_equal_calls_with_different_results_are_suspected(judged: Judged) -> None:
    """The solution knows which call is compared, or reads memory that it did not write."""
    source = DOING % "static int calls; if (++calls % 2 == 0) { for (size_t i = 0; i < N; ++i) C[i] = 7; return; }"
    judgement = judged(submission(solution_code=source))
    assert (judgement.code, judgement.statuses[-1]) == (1, "CHEATING_SUSPECTED"), judgement.output
    assert judgement.last["message"].startswith("test 1: the same inputs gave a right and a wrong result")


def test_inputs_cannot_be_written(judged: Judged) -> None:
    """The judge computes what is right from what it has left there."""
    judgement = judged(submission(solution_code=DOING % "const_cast<float*>(A)[0] = 42;"))
    assert judgement.statuses[-1] == "RUNTIME_ERROR", str(judgement.last)


def test_too_little_precision_is_a_wrong_answer(judged: Judged) -> None:
    """The tolerance is that of the type that was asked for."""
    source = SHIPPED["vector-add"].example.replace("a[i] + b[i]", "(float)(__half)a[i] + (float)(__half)b[i]")
    judgement = judged(submission(solution_code="#include <hip/hip_fp16.h>\n" + source))
    assert judgement.statuses[-1] == "WRONG_ANSWER", judgement.output


def test_an_honest_measurement_carries_its_evidence(judged: Judged) -> None:
    """Every batch, with the seed of its inputs and the digest of its outputs."""
    wanted = {"solution_code": SLOW_MATMUL, "problem_def": briefly("matmul", M=96, N=96, K=96)}
    judgement = judged(submission("matmul", language="cpp", gpu_type="CPU", **wanted))
    assert judgement.statuses[-1] == "BENCHMARKED", str(judgement.last)
    assert judgement.frames[0]["flags"].startswith("-O3")
    result = judgement.frames[-2]
    counted = [batch for batch in result["batches"] if batch["counts"]]
    assert len(counted) >= 5
    assert all(batch["ms"] >= 50 and batch["ms"] > batch["late_ms"] >= 0 for batch in counted)
    assert len({batch["seed"] for batch in result["batches"]}) == len(result["batches"])
    assert len({batch["digest"] for batch in result["batches"]}) == len(result["batches"])
    assert result["low_ms"] <= result["min_ms"] <= result["median_ms"] <= result["max_ms"] <= result["high_ms"]
    assert 0 < result["floor_ms"] < result["empty_ms"] < result["min_ms"]
    assert (result["ranks"], result["coarse"]) == (False, "signals stopped its processes")


def test_a_solution_may_take_all_calls_of_a_batch_at_once(judged: Judged) -> None:
    """It gets the arguments of each, and the result says so."""
    source = """
    extern "C" void solve_batch(const steno_call* calls, size_t n) {
      for (size_t call = n; call-- > 0;)
        for (size_t i = 0; i < calls[call].N; ++i) calls[call].C[i] = calls[call].A[i] + calls[call].B[i];
    }
    extern "C" void solution(const float*, const float*, float*, size_t) { abort(); }
    """
    judgement = judged(submission(language="cpp", gpu_type="CPU", solution_code=source, problem_def=BRIEF))
    assert (judgement.statuses[-1], judgement.frames[-2]["called"]) == ("BENCHMARKED", "solve_batch"), str(
        judgement.last
    )
