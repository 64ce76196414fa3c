"""The judge's times of an honest C++ kernel beside a loop timed by hand, and what a listener adds to a task.

    DOCKER_HOST=unix:///run/docker.sock python benchmarks/kernel_times.py [IMAGE]

Judged as processes of this machine; with DOCKER_HOST also in containers of IMAGE, which needs g++ and Python. By hand:
the same function with the same flags, called as often on inputs as large, the caches flushed before each call.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import support  # noqa: F401 — makes stenotest importable
from record_table import Measured, show
from stenotest.kernels import KEY, SLOW_MATMUL, submission

from engine.kernel.executor import LIMITS, job_of
from engine.kernel.machine.cells import Cells
from engine.kernel.machine.frames import MARK, Teller
from engine.kernel.machine.here import Here
from engine.kernel.machine.judge import Judge

SIZE = 256
ROUNDS = 3
CHECKS = 9
PAUSE = 2  # seconds between checks, in which containers are started again
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
    flags = ["-std=c++17", "-O3", "-w", f"-DSIZE={SIZE}"]
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


def main(image: str) -> None:
    """Measure in turns, and print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        places: dict[str, Cells] = {"here": Here(Path(tempfile.mkdtemp(dir=folder)))}
        if os.environ.get("DOCKER_HOST"):
            from engine.listener.sandbox import ContainerLimits, Containers

            containers = places["in containers"] = Containers(ContainerLimits(image=image, memory=4 << 30))
            containers.warm()
        hand = Path(tempfile.mkdtemp(dir=folder))
        turns = [
            (by_hand(hand), {name: judged(cells, "benchmark")[0] for name, cells in places.items()})
            for _ in range(ROUNDS)
        ]
        ours = statistics.median(one for one, _ in turns)
        rows = [Measured("a call by hand", ours, "ms", "for comparison", met=True)]
        for name, cells in places.items():
            share = statistics.median(times[name] for _, times in turns) / ours
            rows.append(Measured(f"judged {name}, of by hand", share, "x", "0.95 to 1.05", met=0.95 <= share <= 1.05))
            checks = statistics.median(judged(cells, "checker")[1] for _ in range(CHECKS))
            rows.append(Measured(f"a checker of three tests {name}", checks, "s", "at most 0.9", met=checks <= 0.9))
        show("Times of kernels", rows)
        for cells in places.values():
            getattr(cells, "close", lambda: None)()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["steno-lab/kernel:1"]))
