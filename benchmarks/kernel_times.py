"""The judge's times of an honest C++ kernel beside a loop timed by hand, and what a listener adds to a task.

    DOCKER_HOST=unix:///run/docker.sock python benchmarks/kernel_times.py [IMAGE]

Judged as processes of this machine; with DOCKER_HOST also in containers of IMAGE, which needs g++ and Python. By hand:
the same function with the same flags, called as often on inputs as large, the caches flushed before each call.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support import SIZE, Lacking, Measured, measured, report, say
from stenotest.kernels import KEY, SLOW_MATMUL, submission

from engine.kernel.executor import LIMITS, job_of
from engine.kernel.machine.cells import Cells
from engine.kernel.machine.frames import MARK, Teller
from engine.kernel.machine.here import Here
from engine.kernel.machine.judge import Judge

EDGE, ROUNDS, CHECKS = 256, SIZE.pick(1, 3, 5), SIZE.pick(1, 9, 9)
PAUSE = SIZE.pick(0, 2, 2)  # seconds between checks, in which containers are started again
BY_HAND = """
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
extern "C" void solution(const float*, const float*, float*, size_t, size_t, size_t);
int main() {
  const size_t n = SIZE;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  std::vector<char> cold(64 << 20);
  std::vector<double> times;
  for (int call = 0; call < 12; ++call) {
    for (auto& one : a) one = rand() / 1e9f;
    for (auto& one : b) one = rand() / 1e9f;
    memset(cold.data(), call, cold.size());
    const auto began = std::chrono::steady_clock::now();
    solution(a.data(), b.data(), c.data(), n, n, n);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    if (call > 1) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  printf("%f", (times[4] + times[5]) / 2);
}
"""


def by_hand(folder: Path) -> float:
    """Milliseconds of a call, the median of ten."""
    (folder / "solution.cpp").write_text("#include <cstddef>\n" + SLOW_MATMUL)
    (folder / "main.cpp").write_text(BY_HAND)
    flags = ["-std=c++17", "-O3", "-w", f"-DSIZE={EDGE}"]
    subprocess.run(["g++", *flags, "solution.cpp", "main.cpp", "-o", "main"], cwd=folder, check=True)
    return float(subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout)


def judged(cells: Cells, endpoint: str) -> tuple[float, float]:
    """(milliseconds of a call by the judge, seconds of the whole task)."""
    wanted = submission("matmul", solution_code=SLOW_MATMUL, language="cpp", gpu_type="CPU", endpoint=endpoint)
    job = job_of(wanted, KEY, compiler="auto") | {"limits": LIMITS | {"measure": 0}}
    said: list[str] = []
    time.sleep(PAUSE)
    began = time.monotonic()
    assert Judge(job, cells, Teller(KEY, said.append)).run() == 0, said
    took = time.monotonic() - began
    last = json.loads([line for line in said if line.startswith(MARK)][-1].removeprefix(MARK))
    return (last["median_ms"][0] if endpoint == "benchmark" else 0.0), took


def rows(cells: Cells, hand: Path, suffix: str) -> Iterator[Measured]:
    """The time of an honest kernel beside a loop by hand, in turns, and a whole checker."""
    turns = [(by_hand(hand), judged(cells, "benchmark")[0]) for _ in range(ROUNDS)]
    say(f"a call by hand{suffix}: {min(alone for alone, _ in turns):.2f} ms")
    ratios = [time / alone for alone, time in turns]
    off = 100 * abs(statistics.median(ratios) - 1)
    yield measured(
        f"kernel-time{suffix}", f"a product of {EDGE} × {EDGE}", [100 * abs(one - 1) for one in ratios], value=off
    )
    checks = [judged(cells, "checker")[1] for _ in range(CHECKS)]
    yield measured(f"kernel-check{suffix}", "three tests", checks)


def main(image: str) -> Iterator[Measured]:
    """As processes, then in containers."""
    if shutil.which("g++") is None:
        raise Lacking("no compiler for kernels; as root: apt-get install g++")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        hand = Path(tempfile.mkdtemp(dir=folder))
        yield from rows(Here(Path(tempfile.mkdtemp(dir=folder))), hand, "")
        if not os.environ.get("DOCKER_HOST"):
            raise Lacking(f"no containers: set DOCKER_HOST to an engine that has the image {image}")
        from engine.listener.sandbox import ContainerLimits, Containers

        containers = Containers(ContainerLimits(image=image, memory=4 << 30))
        try:
            containers.warm()
            yield from rows(containers, hand, "-containers")
        finally:
            containers.close()


if __name__ == "__main__":
    report(main(*(SIZE.words or ["steno-lab/kernel:1"])))
