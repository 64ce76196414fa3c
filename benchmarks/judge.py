"""The accuracy of the judge's times, in containers: beside a loop timed by hand, and one run beside the next; and how
long a judgement takes.

    DOCKER_HOST=unix:///run/docker.sock python benchmarks/judge.py [IMAGE]

IMAGE needs g++ and Python. By hand: the same function with the same flags on inputs as large, each new, in turns with
the judge. Two runs agree if their intervals overlap.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support import SIZE, Lacking, Measured, measured, report, say
from stenotest import listeners
from stenotest.kernels import SHIPPED, SLOW_MATMUL, submission
from stenotest.waiting import wait

from steno.engine.kernel.executor import LIMITS, job_of
from steno.engine.kernel.machine.cells import Cells
from steno.engine.listener.sandbox import ContainerLimits, Containers

EDGE, ROUNDS, PAIRS, CHECKS = 320, SIZE.pick(1, 5, 5), SIZE.pick(1, 20, 20), SIZE.pick(1, 9, 9)
PAUSE = SIZE.pick(0, 2, 2)  # seconds between judgements, in which containers are started again
BY_HAND = """
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
extern "C" void solution(const float*, const float*, float*, size_t, size_t, size_t);
int main() {
  const size_t n = SIZE;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  std::vector<double> times;
  for (int call = 0; call < 6; ++call) {
    for (auto& one : a) one = rand() / 1e9f;
    for (auto& one : b) one = rand() / 1e9f;
    const auto began = std::chrono::steady_clock::now();
    solution(a.data(), b.data(), c.data(), n, n, n);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    if (call > 0) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  printf("%f", times[2]);
}
"""


def by_hand(folder: Path) -> float:
    """Milliseconds of a call, the median of five."""
    (folder / "solution.cpp").write_text("#include <cstddef>\n" + SLOW_MATMUL)
    (folder / "main.cpp").write_text(BY_HAND)
    flags = ["-std=c++17", "-O3", "-w", f"-DSIZE={EDGE}"]
    subprocess.run(["g++", *flags, "solution.cpp", "main.cpp", "-o", "main"], cwd=folder, check=True)
    return float(subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout)


def judged(cells: Cells, source: str = SLOW_MATMUL, **changes: Any) -> tuple[dict[str, Any], float]:
    """The BENCHMARK_RESULT of a matmul, if there is one, and the seconds of its judgement."""
    wanted = submission("matmul", **{"solution_code": source, "language": "cpp", "gpu_type": "CPU"} | changes)
    job = job_of(wanted, compiler="auto" if wanted.language == "cpp" else "g++") | {"limits": LIMITS}
    time.sleep(PAUSE)
    began = time.monotonic()
    code, frames = listeners.judged(cells, job)
    assert code == 0, frames
    took = time.monotonic() - began
    return next((frame for frame in frames if frame["status"] == "BENCHMARK_RESULT"), {}), took


def rows(cells: Cells, hand: Path) -> Iterator[Measured]:
    """The time of an honest kernel beside a loop by hand, in turns; then pairs of runs, and whole judgements."""
    turns = [(by_hand(hand), judged(cells)[0]["median_ms"]) for _ in range(ROUNDS)]
    say(f"a call by hand: {min(alone for alone, _ in turns):.2f} ms")
    ratios = [time / alone for alone, time in turns]
    off = 100 * abs(statistics.median(ratios) - 1)
    yield measured("judge-time", f"a product of {EDGE} × {EDGE}", [100 * abs(ratio - 1) for ratio in ratios], value=off)
    agree = 0
    for _ in range(PAIRS):
        first, second = judged(cells)[0], judged(cells)[0]
        agree += first["low_ms"] <= second["high_ms"] and second["low_ms"] <= first["high_ms"]
    yield measured("judge-agree", f"{PAIRS} pairs of runs", [100 * agree / PAIRS])
    example = SHIPPED["matmul"].example
    whole = [judged(cells, example, language="hip", gpu_type="MI300X")[1] for _ in range(ROUNDS)]
    yield measured("judge-benchmark", "the shipped matmul, HIP's stand-in", whole)
    yield measured("judge-check", "three tests", [judged(cells, endpoint="checker")[1] for _ in range(CHECKS)])


def cancels(containers: Containers, folder: Path) -> Iterator[float]:
    """Seconds from the request until a task has ended whose reference sleeps."""
    with listeners.listening(containers, folder) as machine:
        for name in map(str, range(CHECKS)):
            machine.execute(name, reference=listeners.SLEEPING)
            wait(lambda name=name: "CHECKING" in machine.client.get(f"/tasks/{name}").text, "its reference")
            began = time.monotonic()
            machine.client.post(f"/cancel/{name}")
            machine.read(name)
            yield time.monotonic() - began


def main(image: str) -> Iterator[Measured]:
    """Five rows."""
    if shutil.which("g++") is None:
        raise Lacking("no compiler for kernels; as root: apt-get install g++")
    with tempfile.TemporaryDirectory() as folder:
        by_hand(Path(folder))
        if not os.environ.get("DOCKER_HOST"):
            raise Lacking(f"no containers: set DOCKER_HOST to an engine that has the image {image}")
        containers = Containers(ContainerLimits(image=image, memory=4 << 30), name="benchmark")
        try:
            containers.warm()
            yield from rows(containers, Path(folder))
            yield measured("judge-cancel", "its reference sleeps", cancels(containers, Path(folder)))
        finally:
            containers.close()


if __name__ == "__main__":
    report(main(*(SIZE.words or ["steno-lab/kernel:1"])))
