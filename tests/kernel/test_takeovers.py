"""Solutions that take over the harness, which shares their process: they work while no clock runs, or lie about how
long an answer takes. Each fails, and each succeeds where the defence is taken away.
"""

from __future__ import annotations

import pytest
from stenotest.kernels import SLOW_MATMUL, briefly, judged_without

pytestmark = pytest.mark.slow

TIMED = briefly("matmul", repeats=5, M=96, N=96, K=96)
BUSY = "its clock says "
"""Also seen of a call that is short, where the machine has other work."""
HONEST = SLOW_MATMUL.replace("void solution", "void honest")
HOOKED = (
    """
#include <sys/syscall.h>
#include <unistd.h>
#include <chrono>
#include <vector>
static void beyond_the_floor() {
  const auto began = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - began < std::chrono::microseconds(20)) {}
}
static struct { const float *A, *B; float* C; } sets[2];
static size_t m, n, k;
static int calls;
static bool answers = false;
static long out(const void* from, size_t bytes) { return syscall(SYS_write, 4, from, bytes); }
"""
    + HONEST
)
SOLUTION = 'extern "C" void solution(const float* A, const float* B, float* C, size_t M, size_t N, size_t K)'
EARLY = (
    HOOKED
    + """
extern "C" ssize_t write(int, const void* from, size_t bytes) {
  if (bytes == 8 && calls > 1) honest(sets[calls % 2].A, sets[calls % 2].B, sets[calls % 2].C, m, n, k);
  return out(from, bytes);
}
"""
    + SOLUTION
    + """ {
  m = M, n = N, k = K;
  sets[calls % 2] = {A, B, C};
  if (M != 96 || calls++ < 2) return honest(A, B, C, M, N, K);
  beyond_the_floor();
}
"""
)
"""Works as soon as the inputs are there, before it says so."""
LATE = (
    HOOKED
    + """
extern "C" ssize_t write(int, const void* from, size_t bytes) {
  if (!answers || bytes == 16 || bytes == 8) return out(from, bytes);
  answers = false;
  static std::vector<float> made;
  made.resize(m * n);
  honest(sets[0].A, sets[0].B, made.data(), m, n, k);
  for (size_t done = 0; done < bytes;) done += out(reinterpret_cast<const char*>(made.data()) + done, bytes - done);
  return bytes;
}
"""
    + SOLUTION
    + """ {
  m = M, n = N, k = K;
  sets[0] = {A, B, C};
  answers = true;
  beyond_the_floor();
}
"""
)
"""Works once the clocks have stopped, before it sends its outputs."""
SLUGGISH = (
    """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static bool called = false;
extern "C" int clock_gettime(clockid_t, struct timespec* now) noexcept {
  static long ticks;
  *now = {1000, ++ticks * 20000};
  return 0;
}
extern "C" ssize_t write(int, const void* from, size_t bytes) {
  if (bytes == 16 && !called) usleep(200000);
  if (bytes == 16) called = false;
  return syscall(SYS_write, 4, from, bytes);
}
"""
    + HONEST
    + SOLUTION
    + """ {
  called = true;
  honest(A, B, C, M, N, K);
}
"""
)
"""Answers slowly where it is only asked, so that a stopped clock seems to be the way there and back."""


@pytest.mark.parametrize(
    ("source", "seen", "defences"),
    [
        (EARLY, ("it works before or after its calls", BUSY), ["around"]),
        (LATE, ("it works before or after its calls", BUSY), ["around"]),
        (SLUGGISH, (BUSY,), ["twin"]),
    ],
    ids=["early", "late", "sluggish"],
)
def test_work_that_no_clock_sees_gives_no_time(source: str, seen: tuple[str, ...], defences: list[str]) -> None:
    """Though every output is right."""
    said = judged_without([], source, "matmul", problem_def=TIMED)
    assert (said.code, said.statuses[-1]) == (1, "CHEATING_SUSPECTED"), said.output
    assert any(one in said.last["message"] for one in seen)
    without = judged_without(defences, source, "matmul", problem_def=TIMED)
    assert without.statuses[-1] == "BENCHMARKED", without.output
    assert without.last["median_ms"][0] < 0.5
