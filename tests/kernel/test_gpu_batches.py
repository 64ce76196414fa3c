"""Batches on a GPU, whose memory is this machine's here (`stenotest/fake_gpu`): the judge's process on the device, the
harness and all between them are those of a real one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.gpu_judge import KERNELS
from stenotest.kernels import FAKE_GPU, briefly, submission

if TYPE_CHECKING:
    from conftest import Judged

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu_judge.py"
ADDING = briefly("vector-add", N=40_000) | {"tests": [{"sizes": {"N": 40_000}}]}
TYPES = {"float64": "double", "float32": "float", "float16": "__half"}
LATE = """
#include <sys/socket.h>
#include <unistd.h>
static int turn = 0;
static int judge() {
  for (int fd = 3;; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET) return fd;
  }
}
extern "C" void solution(const REAL* A, const REAL* B, REAL* C, size_t N) {
  const size_t soon = ++turn == 3 ? N - N / 100 : N;
  for (size_t i = 0; i < soon; ++i) C[i] = A[i] + B[i];
  if (soon == N) return;
  (void)!write(judge(), "d", 1);
  for (char any; read(judge(), &any, 1) > 0;) {}  // until the judge has gathered, and closes
  for (size_t i = soon; i < N; ++i) C[i] = A[i] + B[i];
}
"""
"""It says that it is done before the last hundredth of its last call; by the time it is ended everything is right."""


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{FAKE_GPU}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    "dtype", ["float16", *(pytest.param(name, marks=pytest.mark.long) for name in ("float64", "float32"))]
)
def test_what_is_written_after_the_gather_is_seen(judged: Judged, dtype: str) -> None:
    """Though every output is right in the end, of entries of every size."""
    source = "#include <hip/hip_fp16.h>\n" + LATE.replace("REAL", TYPES[dtype])
    wanted = submission(solution_code=source, dtype=dtype, problem_def=ADDING, endpoint="checker")
    judgement = judged(wanted, compiler="hipcc")
    assert (judgement.code, judgement.statuses[-1]) == (1, "WRONG_ANSWER"), judgement.output
    matched = re.fullmatch(
        r"test 1: (\d+) entries changed after it had said that it was done", judgement.last["message"]
    )
    assert matched, judgement.last
    # a hundredth of one of two calls, each of which has half of the places
    assert 100 < int(matched[1]) < 700


@pytest.mark.long
def test_honest_kernels_are_timed_and_no_cheat_gains() -> None:
    """All kernels that anybody with a GPU can try by this script."""
    argv = [sys.executable, SCRIPT, "--entries", "4096", "--rounds", "300"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"all {len(KERNELS) + 1} are right" in done.stdout


def test_every_batch_has_a_process_of_its_own(judged: Judged) -> None:
    """It makes one call on known inputs before the two of a test."""
    source = """
    extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
      static int calls = 0;
      printf("process %d call %d: %a\\n", getpid(), ++calls, A[0]);
      for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
    }
    """
    twice = ADDING | {"tests": ADDING["tests"] * 2}
    wanted = submission(solution_code="#include <unistd.h>\n" + source, problem_def=twice, endpoint="checker")
    judgement = judged(wanted, compiler="hipcc")
    assert judgement.statuses[-1] == "CHECKED", judgement.output
    calls = re.findall(rb"\| process (\d+) call (\d): (\S+)", judgement.output)
    assert [int(number) for _, number, _ in calls] == [1, 2, 3] * 2
    first, second = calls[:3], calls[3:]
    assert (len({call[0] for call in first}), len({call[0] for call in calls})) == (1, 2)
    assert first[0][2] == second[0][2]  # known
    assert first[1][2] == first[2][2] != second[1][2]  # a test's two calls; the next test's


@pytest.mark.ci
def test_a_solution_that_ends_is_a_runtime_error_at_once(judged: Judged) -> None:
    """In the call that is not timed, and in a batch."""
    for dies in (1, 2):
        does = f"static int turn; if (++turn == {dies}) abort();"
        source = f'extern "C" void solution(const float*, const float*, float*, size_t) {{ {does} }}'
        judgement = judged(submission(solution_code=source, endpoint="checker"), compiler="hipcc")
        assert (judgement.code, judgement.statuses[-1]) == (1, "RUNTIME_ERROR"), judgement.output
        assert judgement.last["message"].startswith("test 1: it was ended by SIGABRT")
