"""Kernels that cheat: each fails, and each succeeds where the defence against it is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from stenotest.kernels import BRIEF, DOING, SHIPPED, SLOW_MATMUL, briefly, judged_without, submission

if TYPE_CHECKING:
    from conftest import Judged

pytestmark = pytest.mark.slow

MATMUL = SHIPPED["matmul"].example
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
TIMED = {"vector-add": BRIEF, "matmul": briefly("matmul", M=96, N=96, K=96)}
"""Large enough for a time that a false clock contradicts."""
TWICE = BRIEF | {"tests": [{"sizes": {"N": 100}, "seed": 1}, {"sizes": {"N": 100}, "seed": 2}], "benchmarks": []}
"""Vector addition with two tests that only their inputs tell apart."""
IN_PARALLEL = """
#include <thread>
static void rows(const float* A, const float* B, float* C, size_t from, size_t to, size_t N, size_t K) {
  for (size_t i = from; i < to; ++i)
    for (size_t j = 0; j < N; ++j) {
      double sum = 0;
      for (size_t k = 0; k < K; ++k) sum += static_cast<double>(A[i * K + k]) * B[k * N + j];
      C[i * N + j] = static_cast<float>(sum);
    }
}
extern "C" void solution(const float* A, const float* B, float* C, size_t M, size_t N, size_t K) {
  std::thread other(rows, A, B, C, 0, M / 2, N, K);
  rows(A, B, C, M / 2, M, N, K);
  other.join();
}
"""
"""An honest solution: its processors work twice as long as its call takes."""
STOPPED_CLOCK = (
    """
#include <time.h>
extern "C" int clock_gettime(clockid_t, struct timespec* now) noexcept {
  static long ticks;
  *now = {1000, ++ticks * 20000};
  return 0;
}
"""
    + SLOW_MATMUL
)
"""A clock of its own, in place of the C library's: 0.02 ms between any two looks at it."""
FORGES = """
#include <unistd.h>
#include <cstdint>
__attribute__((constructor)) static void forge() {
  uint64_t one = 1;
  for (int i = 0; i < 64; ++i) write(4, &one, 8);
  _exit(0);
}
extern "C" void solution(const float*, const float*, float*, size_t) {}
"""
"""Answers before anything was asked, then leaves."""
LATER = """
#include <atomic>
#include <thread>
#include <unistd.h>
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  std::atomic<bool> done{false};
  std::thread([=, &done] {
    for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
    done = true;
    for (;;) pause();
  }).detach();
  while (!done) usleep(1000);
}
"""
"""Leaves a thread behind that could work between the calls."""
STEALS = """
#include <fcntl.h>
#include <unistd.h>
#include <string>
static void look() {
  const std::string judge = "/proc/" + std::to_string(getppid());
  printf("memory %d\\n", open((judge + "/mem").c_str(), O_RDONLY) >= 0);
  printf("output %d\\n", open((judge + "/fd/1").c_str(), O_WRONLY) >= 0);
  printf("variables %d\\n", open((judge + "/environ").c_str(), O_RDONLY) >= 0);
}
"""
"""Looks for the key, and for a way to print frames."""


@pytest.mark.parametrize(
    ("source", "problem", "seen", "defences"),
    [
        (
            IDLE,
            "vector-add",
            "it left C untouched, though it passed the tests",
            ["comparison", "clock"],
        ),
        (
            REMEMBERS,
            "vector-add",
            "it gave the result of the call before, whose inputs were others",
            ["comparison", "clock"],
        ),
        (STOPPED_CLOCK, "matmul", "its clock says 0.02", ["clock"]),
        (LATER, "vector-add", "threads or processes that it started still run after it returned", ["threads"]),
    ],
    ids=["idle", "remembers", "stops-the-clock", "leaves-a-thread"],
)
def test_a_cheat_gives_no_time(source: str, problem: str, seen: str, defences: list[str]) -> None:
    """And would have, without the defence."""
    timed = TIMED[problem]
    said = judged_without([], source, problem, problem_def=timed)
    assert (said.code, said.statuses[-1]) == (1, "CHEATING_SUSPECTED"), said.output
    assert seen in said.last["message"]
    assert said.last["seed"]
    assert judged_without(defences, source, problem, problem_def=timed).statuses[-1] == "BENCHMARKED"


def test_what_passes_from_test_to_test_gains_nothing() -> None:
    """Tests share a process, but no inputs; where each has a process of its own nothing passes."""
    changes = {"problem_def": TWICE, "endpoint": "checker"}
    said = judged_without([], REMEMBERS, "twice", **changes)
    assert said.statuses[1:] == ["CHECKING", "TEST_RESULT", "TEST_RESULT", "WRONG_ANSWER"], said.output
    assert said.last["message"].startswith("test 2: 100 of 100 entries of C are wrong")
    assert judged_without(["room"], REMEMBERS, "twice", **changes).statuses[-1] == "CHECKED"


def test_a_forged_answer_is_no_result() -> None:
    """What it writes to the channel before it is asked cannot hold the word that it is asked with."""
    said = judged_without([], FORGES)
    assert (said.code, said.statuses[:2]) == (1, ["COMPILING", "CHECKING"]), said.output
    assert said.last["message"] in {
        "test 1: it wrote to the channel of its results",
        "test 1: it ended before its work was done",  # seen first
    }


def test_the_judges_memory_output_and_variables_are_closed() -> None:
    """So neither the key nor the way of its frames can be had; with one user for both they can."""
    source = STEALS + DOING.replace("__global__", "") % "look(); exit(1);"
    source = source.replace("add<<<(N + 255) / 256, 256>>>(A, B, C, N);", "")
    source = source.replace("const size_t i = blockIdx.x * blockDim.x + threadIdx.x;", "size_t i = 0;")
    looked = judged_without([], source).last["output"].split("\n")
    assert looked[:3] == ["memory 0", "output 0", "variables 0"]
    looked = judged_without(["users"], source).last["output"].split("\n")
    assert looked[:3] == ["memory 1", "output 1", "variables 1"]


@pytest.mark.parametrize(
    "does",
    [
        'mkfifo("-times.out", 0666); mkfifo("C.out", 0666); symlink("/etc/passwd", "expected"); mkdir("A.in", 0700);',
        "const_cast<float*>(A)[0] = 42; const_cast<float*>(B)[0] = -42;",
    ],
    ids=["files", "inputs"],
)
def test_what_gains_nothing_changes_nothing(judged: Judged, does: str) -> None:
    """No file is a result, and the inputs that count are the judge's own."""
    after = does.startswith("const_cast")
    source = "#include <sys/stat.h>\n#include <unistd.h>\n" + DOING % ("" if after else does)
    if after:
        source = source.replace(
            "add<<<(N + 255) / 256, 256>>>(A, B, C, N);", f"add<<<(N + 255) / 256, 256>>>(A, B, C, N); {does}"
        )
    said = judged(submission(solution_code=source, problem_def=BRIEF))
    assert said.statuses[-1] == "BENCHMARKED", str(said.last)


def test_too_little_precision_is_a_wrong_answer(judged: Judged) -> None:
    """The tolerance is that of the type that was asked for."""
    source = SHIPPED["vector-add"].example.replace("a[i] + b[i]", "(float)(__half)a[i] + (float)(__half)b[i]")
    said = judged(submission(solution_code="#include <hip/hip_fp16.h>\n" + source))
    assert said.statuses[-1] == "WRONG_ANSWER", said.output


def test_an_honest_measurement_carries_its_evidence(judged: Judged) -> None:
    """Both clocks, the digests of all outputs, compiler, flags and, at the end, the seed."""
    wanted = {"solution_code": SLOW_MATMUL, "problem_def": briefly("matmul", M=96, N=96, K=96)}
    said = judged(submission("matmul", language="cpp", gpu_type="CPU", **wanted))
    assert said.statuses[-1] == "BENCHMARKED", str(said.last)
    assert said.frames[0]["flags"].startswith("-O3")
    found = said.frames[-2]
    assert len(found["times_ms"]) == len(found["walls_ms"]) == found["repeats"] >= 10
    assert len(found["digests"]) == found["repeats"] + found["warm_ups"] == len(set(found["digests"]))
    assert all(own <= wall for own, wall in zip(found["times_ms"], found["walls_ms"], strict=True))
    assert 0 < found["floor_ms"] < found["min_ms"] <= found["median_ms"] <= found["max_ms"]
    assert found["overhead_ms"] > 0
    assert len(found["works_ms"]) == found["repeats"]
    assert all(work <= wall for work, wall in zip(found["works_ms"], found["walls_ms"], strict=True))


@pytest.mark.long
@pytest.mark.parametrize("source", [SLOW_MATMUL, IN_PARALLEL], ids=["one-thread", "two-threads"])
def test_an_honest_kernel_is_believed_beside_much_other_work(source: str) -> None:
    """Twice as many loops as processors."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for _ in range(10):
            said = judged_without([], source, "matmul", problem_def=briefly("matmul", M=192, N=192, K=192))
            assert said.statuses[-1] == "BENCHMARKED", said.output
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
