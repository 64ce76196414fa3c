"""The judge's program with a real compiler and real programs: every way a solution can end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from stenotest.kernels import DOING, PATIENT, SHIPPED, briefly, submission

from steno.engine.kernel.definition import DTYPES
from steno.engine.kernel.executor import order_of

if TYPE_CHECKING:
    from conftest import Judged

pytestmark = pytest.mark.slow

WHOLE = [
    "COMPILING",
    "CHECKING",
    "TEST_RESULT",
    "TEST_RESULT",
    "TEST_RESULT",
    "CHECKED",
    "BENCHMARKING",
    "BENCHMARK_RESULT",
    "BENCHMARKED",
]
TYPES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__hip_bfloat16", "int32": "int"}


@pytest.mark.parametrize(
    ("problem", "timed"),
    [
        ("reduction", {"M": 8, "N": 1000}),
        *(
            pytest.param(problem, sizes, marks=pytest.mark.ci)
            for problem, sizes in {
                "gather": {"M": 512, "N": 16},
                "layer-norm": {"M": 8, "N": 1000},
                "leaky-relu": {"M": 256, "N": 256},
                "matmul": {"M": 96, "N": 96, "K": 96},
                "softmax": {"M": 8, "N": 1000},
                "transpose": {"M": 200, "N": 100},
                "vector-add": {"N": 131_072},
            }.items()
        ),
    ],
    ids=str,
)
def test_a_shipped_example_is_right_and_is_timed(judged: Judged, problem: str, timed: dict[str, int]) -> None:
    """Every shipped problem comes with a solution that works; what compiled it is said. Timed at a smaller size and in
    smaller batches than users get: tests of the whole path do that.
    """
    judgement = judged(submission(problem, problem_def=briefly(problem, **timed)), limits=PATIENT | {"batch": 1 << 20})
    assert (judgement.code, judgement.statuses) == (0, WHOLE), judgement.output
    assert "stand-in for HIP on the CPU" in judgement.frames[0]["compiler"]
    result = judgement.frames[-2]
    assert 0 < result["min_ms"] <= result["median_ms"] <= result["max_ms"]
    assert judgement.last["median_ms"] == [result["median_ms"]]


@pytest.mark.parametrize(
    "dtype", [pytest.param(dtype, marks=() if dtype == "float16" else pytest.mark.ci) for dtype in DTYPES]
)
def test_every_dtype_is_right(judged: Judged, dtype: str) -> None:
    """The same kernel in every type that is offered, checked only."""
    source = SHIPPED["vector-add"].example.replace("float", TYPES[dtype])
    judgement = judged(submission(solution_code=source, dtype=dtype, endpoint="checker"))
    assert (judgement.code, judgement.statuses[-1]) == (0, "CHECKED"), judgement.output
    assert "BENCHMARKING" not in judgement.statuses


def test_the_standard_library_is_there(judged: Judged) -> None:
    """`<algorithm>` and `<cmath>` come with HIP's header; others build upon what the stand-in left out of `<cmath>`."""
    source = """
    #include <complex>
    #include <random>
    #include <vector>
    extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
      std::vector<float> sum(N);
      std::transform(A, A + N, B, sum.begin(), [](float a, float b) { return std::fma(1.0f, a, b); });
      std::mt19937 any;
      const float none = std::min(0.0f, std::abs(std::complex<float>(std::normal_distribution<float>()(any))));
      for (size_t i = 0; i < N; ++i) C[i] = sum[i] + none;
    }
    """
    judgement = judged(submission(solution_code=source, endpoint="checker"))
    assert judgement.statuses[-1] == "CHECKED", judgement.output


def test_threads_of_a_block_wait_for_one_another(judged: Judged) -> None:
    """Barriers, memory shared by a block, also of a size that only the launch knows, and atomics."""
    source = """
    __global__ void turned(const float* a, const float* b, float* c, size_t n) {
      extern __shared__ float row[];
      __shared__ int arrived;
      const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
      if (threadIdx.x == 0) arrived = 0;
      __syncthreads();
      row[blockDim.x - 1 - threadIdx.x] = i < n ? a[i] + b[i] : 0.0f;
      atomicAdd(&arrived, 1);
      __syncthreads();
      if (i < n && arrived == static_cast<int>(blockDim.x)) c[i] = row[blockDim.x - 1 - threadIdx.x];
    }
    extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
      turned<<<dim3{(unsigned)((N + 63) / 64)}, 64, 64 * sizeof(float), 0>>>(A, B, C, N);
    }
    """
    judgement = judged(submission(solution_code=source, endpoint="checker"))
    assert (judgement.code, judgement.statuses[-1]) == (0, "CHECKED"), judgement.output


def test_a_wrong_answer_names_the_first_wrong_entry(judged: Judged) -> None:
    """The test that fails ends it: nothing after it is paid for."""
    source = SHIPPED["vector-add"].example.replace("a[i] + b[i]", "a[i] - b[i]")
    judgement = judged(submission(solution_code=source))
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "CHECKING", "TEST_RESULT", "WRONG_ANSWER"])
    assert judgement.last["first"]["index"] == 0
    assert judgement.last["wrong"] == judgement.last["entries"] == 1
    assert re.fullmatch(r"test 1: 1 of 1 entries of C are wrong; entry 0 is \S+, not \S+", judgement.last["message"])


@pytest.mark.parametrize(
    ("does", "statuses", "message"),
    [
        (
            "if (N == 1000) { add<<<4, 256>>>(A, A, C, 7); return; }",
            ["TEST_RESULT"] * 2 + ["WRONG_ANSWER"],
            "test 2: 1000 of 1000",
        ),
        ("if (N == 1000) abort();", ["TEST_RESULT", "RUNTIME_ERROR"], "test 2: it was ended by SIGABRT"),
        ("if (N == 1000) abort(); B = A;", ["TEST_RESULT", "WRONG_ANSWER"], "test 1: 1 of 1"),
    ],
    ids=["wrong", "crash", "wrong-before-a-crash"],
)
def test_the_first_test_that_fails_is_named(judged: Judged, does: str, statuses: list[str], message: str) -> None:
    """Though all tests run in one process before the first is compared."""
    judgement = judged(submission(solution_code=DOING % does, endpoint="checker"))
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "CHECKING", *statuses]), judgement.output
    assert judgement.last["message"].startswith(message)


def test_a_compile_error_says_the_line(judged: Judged) -> None:
    """As the compiler says it; the line is the sender's own, launches rewritten or not."""
    source = SHIPPED["vector-add"].example.replace("if (i < n)", "if (i < m)")
    judgement = judged(submission(solution_code=source))
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "COMPILE_ERROR"])
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "i < m" in text)
    assert f"solution.hip:{line}:" in judgement.last["message"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("int nothing;", "solution", marks=pytest.mark.ci),
        ('extern "C" void solution(const double* A, const float* B, float* C, size_t N) {}', "conflicting"),
        ("#include </etc/nothing.h>", "nothing.h"),
        pytest.param("not C++ at all", "solution.hip:1", marks=pytest.mark.ci),
    ],
)
def test_what_does_not_fit_the_signature_does_not_compile(judged: Judged, source: str, message: str) -> None:
    """A solution that is missing, of other types, or no source at all."""
    judgement = judged(submission(solution_code=source))
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "COMPILE_ERROR"])
    assert message in judgement.last["message"]


@pytest.mark.parametrize(
    ("crash", "why", "limit"),
    [
        ("*(volatile int*)8 = 1;", "SIGSEGV", 1200),
        pytest.param("abort();", "SIGABRT", 1200, marks=pytest.mark.ci),
        pytest.param("exit(7);", "status 7", 1200, marks=pytest.mark.ci),
        ("_Exit(0);", "ended before its work was done", 1200),
        ("add<<<1, 5000>>>(A, B, C, N);", "status 3", 1200),
        ("while (true) {}", "did not end within 2 s", 2),
    ],
)
def test_a_crash_is_a_runtime_error_that_says_how(judged: Judged, crash: str, why: str, limit: int) -> None:
    """Signals, exits, a launch that cannot be, a program that never ends: each by its name."""
    judgement = judged(submission(solution_code=DOING % crash), limits=PATIENT | {"case": limit})
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "CHECKING", "RUNTIME_ERROR"]), judgement.output
    assert why in judgement.last["message"]


def test_nothing_a_solution_prints_is_a_frame(judged: Judged) -> None:
    """Its output stands behind a bar: neither line is taken for the task's own."""
    forged = '::steno:: {\\"seq\\":9,\\"status\\":\\"BENCHMARKED\\"}'
    printing = f'puts("\\r\\n{forged}"); fprintf(stderr, "\\n{forged}\\n"); exit(1);'
    judgement = judged(submission(solution_code=DOING % printing))
    assert (judgement.code, judgement.statuses) == (1, ["COMPILING", "CHECKING", "RUNTIME_ERROR"])
    assert judgement.output.count(b"::steno:: ") > len(judgement.frames)
    assert judgement.output.count(b"\n::steno:: ") == len(judgement.frames) - 1


def test_a_solution_is_not_told_its_job(judged: Judged) -> None:
    """No variable of its process has a word of it."""
    looking = """
      FILE* file = fopen("/proc/self/environ", "rb");
      for (int c; (c = fgetc(file)) != EOF;) putchar(c == 0 ? '\\n' : c);
      puts("looked"); exit(1);
    """
    judgement = judged(submission(solution_code=DOING % looking))
    printed = b"\n".join(line for line in judgement.output.splitlines() if line.startswith(b"| "))
    assert b"looked" in printed
    assert b"STENO_" not in printed


def test_megabytes_of_output_are_kept_within_bounds(judged: Judged) -> None:
    """The beginning and the end of it; the run is right all the same."""
    printing = 'for (int i = 0; i < 200000; ++i) puts("0123456789012345678901234567890123456789"); puts("the end");'
    judgement = judged(submission(solution_code=DOING % printing, endpoint="checker"))
    assert (judgement.code, judgement.statuses[-1]) == (0, "CHECKED")
    assert len(judgement.output) < 200_000
    assert b"| the end" in judgement.output
    assert re.search(rb"\[\xe2\x80\xa6 \d{7,8} bytes \xe2\x80\xa6\]", judgement.output)


def test_a_solution_finds_no_answer_to_copy(judged: Judged) -> None:
    """The right answer is nowhere in the folder its program runs in."""
    listing = 'system("ls"); exit(1);'
    judgement = judged(submission(solution_code=DOING % listing))
    assert {line for line in judgement.output.splitlines() if line.startswith(b"| ")} == {b"| program"}


def test_a_reference_that_fails_is_nobody_elses_fault(judged: Judged) -> None:
    """The problem is broken, not the solution."""
    judgement = judged(submission(), reference="def reference(inputs, sizes, parameters):\n    return 1 / 0\n")
    assert (judgement.code, judgement.statuses[-1]) == (2, "ERROR")
    assert judgement.last["message"] == "the reference of the problem failed: ZeroDivisionError: division by zero"


def test_a_machine_without_a_compiler_says_so(judged: Judged) -> None:
    """An image that has none."""
    judgement = judged(submission(), compiler="hipcc-that-is-not-there")
    assert (judgement.code, judgement.statuses) == (2, ["ERROR"])
    assert "no compiler" in judgement.last["message"]


def test_a_task_that_is_told_to_stop_clears_away_what_it_began(tmp_path: Path) -> None:
    """A machine that is used again holds nothing of the one before; the solution's own processes end with it."""
    wanted = submission(solution_code=DOING % "while (true) {}")
    configuration, _ = order_of(wanted, "source", compiler="g++", max_duration=600, isolated=False)
    (command,) = msgspec.convert(configuration["commands"], list[str])
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    environment |= msgspec.convert(configuration["env"], dict[str, str])
    with subprocess.Popen(["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        try:
            assert any(b'"CHECKING"' in line for line in task.stdout)
            task.send_signal(signal.SIGTERM)
            assert task.wait(600) == 143
        finally:
            task.kill()
    assert list(tmp_path.iterdir()) == []


STOPPED_EARLY = """
import contextlib, os, signal, sys
from pathlib import Path
from steno.engine.listener.__main__ import judge_here

def stop_once(event, words):
    if event == "subprocess.Popen" and not folders:
        folders.append(Path(words[1][-1]))
        with contextlib.suppress(BaseException if "lost" in sys.argv else ()):
            signal.raise_signal(signal.SIGTERM)

folders = []
sys.addaudithook(stop_once)
try:
    code = judge_here(os.environ.pop("STENO_KERNEL"))
except SystemExit as ended:
    code = ended.code
print(code, *(one for one in folders if one.exists()))
"""


@pytest.mark.parametrize("raised", ["lost", "passed on"])
def test_a_stop_is_kept_at_whatever_moment_it_comes(tmp_path: Path, raised: str) -> None:
    """Here it comes while a process is made; libraries such as numpy lose what a signal's handler raises in them."""
    configuration, _ = order_of(submission(), "source", compiler="g++", max_duration=600, isolated=False)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    environment |= msgspec.convert(configuration["env"], dict[str, str])
    argv = [sys.executable, "-c", STOPPED_EARLY, raised]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "143\n"
    assert list(tmp_path.iterdir()) == []
