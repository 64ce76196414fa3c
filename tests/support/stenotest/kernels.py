"""For tests: requests as a front end posts them, and a kernel's task run as its provider runs it."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from steno.engine.control.task_reports import frames_of
from steno.engine.kernel.definition import KernelProblem, problems
from steno.engine.kernel.executor import VARIABLE, job_of, order_of
from steno.engine.kernel.submission import KernelSubmission, read_submission

SHIPPED: Final[Mapping[str, KernelProblem]] = {each.problem: each for each in problems()}
DOING: Final = """
__global__ void add(const float* a, const float* b, float* c, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  %s
  add<<<(N + 255) / 256, 256>>>(A, B, C, N);
}
"""
"""A right answer to vector-add that does something else first."""
ADDITION: Final = """
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
}
"""
"""A right answer to vector-add in C++."""
SLOW_MATMUL: Final = """
extern "C" void solution(const float* A, const float* B, float* C, size_t M, size_t N, size_t K) {
  for (int again = 0; again < 20; ++again) {
    for (size_t i = 0; i < M; ++i)
      for (size_t j = 0; j < N; ++j) {
        double sum = 0;
        for (size_t k = 0; k < K; ++k) sum += static_cast<double>(A[i * K + k]) * B[k * N + j];
        C[i * N + j] = static_cast<float>(sum);
      }
    asm volatile("" ::: "memory");
  }
}
"""
"""A right answer to matmul in C++, twenty times: slow where the reference, which is Python, is not."""
FAKE_GPU: Final = Path(__file__).with_name("fake_gpu")
"""The folder of a `hipcc` whose device is memory of this machine."""
AT_ONCE: Final = """
from steno.engine.kernel import executor
executor.LIMITS["measure"] = 0
from steno.cli.main import main
main()
"""
"""Steno whose judge times no longer than it must: it waits for no steady time, which a busy machine does not have."""
PATIENT: Final = {"compile": 1200, "reference": 1200, "case": 1200, "measure": 0, "batch": 4 << 20}
"""Limits that no step that ends reaches, however busy the machine is."""


def briefly(problem: str, repeats: int = 5, **sizes: int) -> dict[str, Any]:
    """A shipped problem's definition whose benchmark is of these sizes."""
    definition: dict[str, Any] = msgspec.to_builtins(SHIPPED[problem].problem_def)
    timed = [{**benchmark, "sizes": sizes, "repeats": repeats} for benchmark in definition["benchmarks"]]
    return definition | {"benchmarks": timed}


BRIEF: Final = briefly("vector-add", N=131_072)
"""Vector addition, for tests that only need it timed; its benchmark is larger than any of its tests."""


def asked(problem: object = "vector-add", **changes: object) -> dict[str, Any]:
    """The body that a front end posts: by default the shipped example of a shipped problem."""
    body: dict[str, Any] = {
        "solution_code": SHIPPED[str(problem)].example if str(problem) in SHIPPED else "int nothing;",
        "problem": problem,
        "gpu_type": "MI300X",
        "dtype": "float32",
        "language": "hip",
        "endpoint": "benchmark",
    }
    return body | changes


def submission(problem: str = "vector-add", **changes: object) -> KernelSubmission:
    """The same, read.

    Raises:
        Wrong: it is not as it must be.
    """
    return read_submission(json.dumps(asked(problem, **changes)).encode())


class Judgement:
    """The end of a task's process."""

    def __init__(self, process: "subprocess.CompletedProcess[bytes]") -> None:
        self.code = process.returncode
        self.output = process.stdout
        self.complaints = process.stderr
        lines = frames_of([process.stdout + b"\n"])
        self.frames: list[dict[str, Any]] = [msgspec.json.decode(line) for line in lines]

    @property
    def statuses(self) -> list[str]:
        """The statuses of its frames."""
        return [frame["status"] for frame in self.frames]

    @property
    def last(self) -> dict[str, Any]:
        """Its last word."""
        return self.frames[-1]


def judge(wanted: KernelSubmission, folder: Path, *, compiler: str = "g++", **job: object) -> Judgement:
    """Run the task of one's own kernel in a shell; its scratch files are in `folder`.

    Args:
        job: what is to be otherwise in what the judge reads.
    """
    configuration, _ = order_of(wanted, "source", compiler=compiler, max_duration=600, isolated=False)
    commands = msgspec.convert(configuration["commands"], list[str])
    text = json.dumps(job_of(wanted, compiler=compiler) | {"limits": PATIENT} | job)
    process = subprocess.run(
        ["/bin/sh", "-c", " && ".join(commands)],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), VARIABLE: text},
        capture_output=True,
        timeout=3600,
        check=False,
    )
    return Judgement(process)


def told(url: str, source: str = ADDITION, *, patience: float = 240, **changes: object) -> list[dict[str, Any]]:
    """Every status of a kernel, as `POST /api/amd/submit` streams them; by default a C++ vector-add that is checked."""
    usual = {"solution_code": source, "gpu_type": "CPU", "language": "cpp", "endpoint": "checker"}
    address, body = f"{url}/api/amd/submit", asked(**usual | changes)
    with httpx.stream("POST", address, json=body, timeout=patience, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line for line in answer.iter_lines() if line.startswith("data:")]
    return [json.loads(line.removeprefix("data:")) for line in lines]
