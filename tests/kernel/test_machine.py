"""What runs on the machine, with a real compiler and real programs: every way a solution can go."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from stenotest.kernels import DOING, KEY, PATIENT, SHIPPED, Judgement, briefly, submission

from engine.kernel.definition import DTYPES
from engine.kernel.executor import PACKAGE, VARIABLE, Terms, bundled, job_of, order_of, program_of

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
    [("leaky-relu", {"M": 256, "N": 256}), ("matmul", {"M": 96, "N": 96, "K": 96}), ("vector-add", {"N": 131_072})],
    ids=["leaky-relu", "matmul", "vector-add"],
)
def test_a_shipped_example_is_right_and_is_timed(judged: Judged, problem: str, timed: dict[str, int]) -> None:
    """Every shipped problem comes with a solution that works; what compiled it is said. Timed at a smaller size than
    users get: tests of the whole path do that.
    """
    said = judged(submission(problem, problem_def=briefly(problem, **timed)))
    assert (said.code, said.statuses) == (0, WHOLE), said.output
    assert "stand-in for HIP on the CPU" in said.frames[0]["compiler"]
    found = said.frames[-2]
    assert 0 < found["min_ms"] <= found["median_ms"] <= found["max_ms"]
    assert said.last["median_ms"] == [found["median_ms"]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_right(judged: Judged, dtype: str) -> None:
    """The same kernel in every type that is offered, checked only."""
    source = SHIPPED["vector-add"].example.replace("float", TYPES[dtype])
    said = judged(submission(solution_code=source, dtype=dtype, endpoint="checker"))
    assert (said.code, said.statuses[-1]) == (0, "CHECKED"), said.output
    assert "BENCHMARKING" not in said.statuses


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
    said = judged(submission(solution_code=source, endpoint="checker"))
    assert said.statuses[-1] == "CHECKED", said.output


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
    said = judged(submission(solution_code=source, endpoint="checker"))
    assert (said.code, said.statuses[-1]) == (0, "CHECKED"), said.output


def test_a_wrong_answer_names_the_first_wrong_entry(judged: Judged) -> None:
    """The test that fails ends it: nothing after it is paid for."""
    source = SHIPPED["vector-add"].example.replace("a[i] + b[i]", "a[i] - b[i]")
    said = judged(submission(solution_code=source))
    assert (said.code, said.statuses) == (1, ["COMPILING", "CHECKING", "TEST_RESULT", "WRONG_ANSWER"])
    assert said.last["first"]["index"] == 0
    assert said.last["wrong"] == said.last["entries"] == 1
    assert re.fullmatch(r"test 1: 1 of 1 entries of C are wrong; entry 0 is \S+, not \S+", said.last["message"])


@pytest.mark.parametrize(
    ("does", "statuses", "message"),
    [
        ("if (N == 1000) const_cast<float*>(A)[7] += 1;", ["TEST_RESULT"] * 2 + ["WRONG_ANSWER"], "test 2: 1 of 1000"),
        ("if (N == 1000) abort();", ["TEST_RESULT", "RUNTIME_ERROR"], "test 2: it was ended by SIGABRT"),
        (
            "if (N == 1000) abort(); const_cast<float*>(A)[0] += 1;",
            ["TEST_RESULT", "WRONG_ANSWER"],
            "test 1: 1 of 1",
        ),
    ],
    ids=["wrong", "crash", "wrong-before-a-crash"],
)
def test_the_first_test_that_fails_is_named(judged: Judged, does: str, statuses: list[str], message: str) -> None:
    """Though all tests run in one process before the first is compared."""
    said = judged(submission(solution_code=DOING % does, endpoint="checker"))
    assert (said.code, said.statuses) == (1, ["COMPILING", "CHECKING", *statuses]), said.output
    assert said.last["message"].startswith(message)


def test_what_is_left_unwritten_is_wrong(judged: Judged) -> None:
    """Outputs begin as what is no number."""
    source = 'extern "C" void solution(const float*, const float*, float*, size_t) {}'
    said = judged(submission(solution_code=source))
    assert (said.code, said.statuses[-1], said.last["first"]["actual"]) == (1, "WRONG_ANSWER", "nan")


def test_a_compile_error_says_the_line(judged: Judged) -> None:
    """As the compiler says it; the line is the sender's own, launches rewritten or not."""
    source = SHIPPED["vector-add"].example.replace("if (i < n)", "if (i < m)")
    said = judged(submission(solution_code=source))
    assert (said.code, said.statuses) == (1, ["COMPILING", "COMPILE_ERROR"])
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "i < m" in text)
    assert f"solution.hip:{line}:" in said.last["message"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("int nothing;", "solution"),
        ('extern "C" void solution(const double* A, const float* B, float* C, size_t N) {}', "conflicting"),
        ("#include </etc/nothing.h>", "nothing.h"),
        ("not C++ at all", "solution.hip:1"),
    ],
)
def test_what_does_not_fit_the_signature_does_not_compile(judged: Judged, source: str, said: str) -> None:
    """A solution that is missing, of other types, or no source at all."""
    found = judged(submission(solution_code=source))
    assert (found.code, found.statuses) == (1, ["COMPILING", "COMPILE_ERROR"])
    assert said in found.last["message"]


@pytest.mark.parametrize(
    ("crash", "why", "limit"),
    [
        ("*(volatile int*)8 = 1;", "SIGSEGV", 1200),
        ("abort();", "SIGABRT", 1200),
        ("exit(7);", "status 7", 1200),
        ("_Exit(0);", "ended before its work was done", 1200),
        ("add<<<1, 5000>>>(A, B, C, N);", "status 3", 1200),
        ("while (true) {}", "did not end within 2 s", 2),
    ],
)
def test_a_crash_is_a_runtime_error_that_says_how(judged: Judged, crash: str, why: str, limit: int) -> None:
    """Signals, exits, a launch that cannot be, a program that never ends: each by its name."""
    said = judged(submission(solution_code=DOING % crash), limits=PATIENT | {"case": limit})
    assert (said.code, said.statuses) == (1, ["COMPILING", "CHECKING", "RUNTIME_ERROR"]), said.output
    assert why in said.last["message"]


def test_nothing_a_solution_prints_is_a_frame(judged: Judged) -> None:
    """What it prints stands behind a bar, and has no key: neither line is taken for the task's own."""
    forged = f'::steno:: {{\\"key\\":\\"{"0" * 48}\\",\\"seq\\":9,\\"status\\":\\"BENCHMARKED\\"}}'
    printing = f'puts("\\r\\n{forged}"); fprintf(stderr, "\\n{forged}\\n"); exit(1);'
    said = judged(submission(solution_code=DOING % printing))
    assert (said.code, said.statuses) == (1, ["COMPILING", "CHECKING", "RUNTIME_ERROR"])
    assert said.output.count(b"::steno:: ") > len(said.frames)
    assert said.output.count(b"\n::steno:: ") == len(said.frames) - 1


def test_a_solution_is_not_told_the_key(judged: Judged) -> None:
    """It is in no file, argument or variable that the solution's own process has."""
    looking = """
      for (const char* path : {"/proc/self/environ", "/proc/self/cmdline"}) {
        FILE* file = fopen(path, "rb");
        for (int c; (c = fgetc(file)) != EOF;) putchar(c == 0 ? '\\n' : c);
        fclose(file);
      }
      puts("looked"); exit(1);
    """
    said = judged(submission(solution_code=DOING % looking))
    shown = b"\n".join(line for line in said.output.splitlines() if line.startswith(b"| "))
    assert b"looked" in shown
    assert KEY.encode() not in shown
    assert b"STENO_" not in shown


def test_megabytes_of_output_are_kept_within_bounds(judged: Judged) -> None:
    """The beginning and the end of it; the run is right all the same."""
    printing = 'for (int i = 0; i < 200000; ++i) puts("0123456789012345678901234567890123456789"); puts("the end");'
    said = judged(submission(solution_code=DOING % printing, endpoint="checker"))
    assert (said.code, said.statuses[-1]) == (0, "CHECKED")
    assert len(said.output) < 200_000
    assert b"| the end" in said.output
    assert re.search(rb"\[\xe2\x80\xa6 \d{7,8} bytes \xe2\x80\xa6\]", said.output)


def test_what_a_solution_leaves_behind_is_ended(judged: Judged) -> None:
    """A process it started, even in a session of its own, keeps neither the task nor the machine waiting."""
    started = "if (fork() == 0) { setsid(); if (fork() != 0) _exit(0); for (;;) sleep(600); }"
    said = judged(submission(solution_code="#include <unistd.h>\n" + DOING % started))
    assert said.statuses[-1] == "CHEATING_SUSPECTED", said.output
    assert "threads or processes that it started still run" in said.last["message"]


def test_a_solution_finds_no_answer_to_copy(judged: Judged) -> None:
    """What is right is nowhere in the folder its program runs in."""
    listing = 'system("ls"); exit(1);'
    said = judged(submission(solution_code=DOING % listing))
    assert {line for line in said.output.splitlines() if line.startswith(b"| ")} == {b"| program"}


def test_a_reference_that_fails_is_nobody_elses_fault(judged: Judged) -> None:
    """The problem is broken, not the solution."""
    said = judged(submission(), reference="def reference(inputs, sizes, parameters):\n    return 1 / 0\n")
    assert (said.code, said.statuses[-1]) == (2, "ERROR")
    assert said.last["message"] == "the reference of the problem failed: ZeroDivisionError: division by zero"


def test_a_machine_without_a_compiler_says_so(judged: Judged) -> None:
    """An image that has none."""
    said = judged(submission(), compiler="hipcc-that-is-not-there")
    assert (said.code, said.statuses) == (2, ["ERROR"])
    assert "no compiler" in said.last["message"]


def test_a_task_that_is_told_to_stop_clears_away_what_it_began(tmp_path: Path) -> None:
    """A machine that is used again holds nothing of the one before; the solution's own processes end with it."""
    terms = Terms(image="unused", compiler="g++", max_duration=600)
    order = order_of(submission(solution_code=DOING % "while (true) {}"), KEY, terms)
    (command,) = msgspec.convert(order.configuration["commands"], list[str])
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    environment |= msgspec.convert(order.configuration["env"], dict[str, str])
    argv = ["/bin/sh", "-c", f"exec {command}"]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        try:
            assert any(b'"CHECKING"' in line for line in task.stdout)
            task.send_signal(signal.SIGTERM)
            assert task.wait(600) == 143
        finally:
            task.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not shutil.which("python3", path="/usr/bin"), reason="no system Python: apt-get install python3")
def test_the_judge_need_not_be_root() -> None:
    """As a user without rights it judges the same, and knows less to keep from the solution."""
    python = shutil.which("python3", path="/usr/bin")
    packed = bundled(job_of(submission(endpoint="checker"), KEY, compiler="g++") | {"limits": PATIENT})
    environment = {"PATH": "/usr/bin:/bin", VARIABLE: packed}
    done = subprocess.run(
        [str(python), "-c", program_of(PACKAGE, VARIABLE)],
        env=environment,
        cwd="/",
        capture_output=True,
        user=65534 if os.geteuid() == 0 else None,
        check=False,
    )
    told = Judgement(done)
    assert (told.code, told.statuses[-1]) == (0, "CHECKED"), done.stdout + done.stderr
