"""A check of the samples on this machine's GPU: a load of known duty, beside the sampler that every run has.

    python3 benchmarks/gpu_duty.py [--seconds S]

Needs Python 3.11 with msgspec and zstandard, bash, the vendor's tool (nvidia-smi, amd-smi or rocm-smi), and hipcc or
nvcc; not an installation of Steno. Takes S seconds, by default 60, for each of five duties: six minutes. The load keeps
the first GPU busy for a share of each tenth of a second and measures that share; the sampler asks the tool each second.

A line each: the duty, percent of the time as the load measured it, the mean of the samples, how many there were, W.
Exit status: 0 all are within 3 points; 1 a mean is not, or there are no samples; 6 there is no GPU, tool or compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

NOT_HERE = 6
DUTIES = (0, 25, 50, 75, 100)
POINTS = 3
TOOLS = {"nvcc": ("nvidia-smi",), "hipcc": ("amd-smi", "rocm-smi")}
LOAD = r"""
#ifdef __HIPCC__
#include <hip/hip_runtime.h>
#else
#include <cuda_runtime.h>
#define hipMalloc cudaMalloc
#define hipSuccess cudaSuccess
#define hipDeviceSynchronize cudaDeviceSynchronize
#endif
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
using Clock = std::chrono::steady_clock;
__global__ void spin(float* out, long rounds) {
  float x = threadIdx.x;
  for (long k = 0; k < rounds; ++k) x = 0.9f * x + 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
static double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }
static double run(float* out, long rounds) {
  const auto from = Clock::now();
  spin<<<1024, 256>>>(out, rounds);
  if (hipDeviceSynchronize() != hipSuccess) exit(6);
  return seconds(from);
}
int main(int, char** words) {
  const double duty = atof(words[1]) / 100, total = atof(words[2]), period = 0.1;
  float* out = nullptr;
  if (hipMalloc(&out, 1024 * 256 * sizeof(float)) != hipSuccess) return 6;
  run(out, 1000);
  long rounds = 1000;
  while (run(out, rounds) < 0.005) rounds *= 2;  // 5 ms a kernel: the load is exact to that
  double busy = 0;
  const auto start = Clock::now();
  for (long n = 1; seconds(start) < total; ++n) {
    const double until = duty * n * period;  // of the whole load: what a kernel is too long the next is shorter
    while (busy < until) busy += run(out, rounds);
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(n * period)));
  }
  printf("%f\n", 100 * busy / seconds(start));
}
"""


def built(folder: Path) -> tuple[Path, str]:
    """The load as a program, or why there is none."""
    program = folder / "load"
    (folder / "load.cu").write_text(LOAD)
    why = []
    for compiler, tools in TOOLS.items():
        if shutil.which(compiler) is None or not any(map(shutil.which, tools)):
            why.append(f"{compiler} or {' or '.join(tools)} is not here")
            continue
        options = ["-x", "hip"] if compiler == "hipcc" else []
        words = [compiler, "-O2", *options, str(folder / "load.cu"), "-o", str(program)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if (
            done.returncode == 0
            and subprocess.run([program, "0", "0"], capture_output=True, check=False).returncode == 0
        ):
            return program, ""
        why.append(f"{compiler}: {(done.stderr.strip().splitlines() or ['its program finds no GPU'])[-1]}")
    return program, "; ".join(why)


def main() -> int:
    words = argparse.ArgumentParser(description="Compare the duty of samples with the truth on this machine's GPU.")
    words.add_argument("--seconds", type=int, default=60, help="of each duty")
    given = words.parse_args()
    try:
        from steno.engine.providers.sample_text import samples_of
        from steno.engine.providers.sampler import SCRIPT
    except ImportError as error:
        print(f"{error}: python3 -m pip install msgspec zstandard")
        return NOT_HERE
    wrong = 0
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi numbers them
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, why = built(folder)
        if why:
            print(f"no GPU here: {why}")
            return NOT_HERE
        for duty in DUTIES:
            file = folder / f"samples-{duty}"
            null = subprocess.DEVNULL
            sampler = subprocess.Popen(
                ["bash", "-c", SCRIPT, "sampler", str(os.getpid()), str(file), "1", "1", "0"],
                stdin=null, stdout=null, stderr=null,
            )  # fmt: skip
            load = subprocess.run([program, str(duty), str(given.seconds)], capture_output=True, text=True, check=True)
            sampler.terminate()
            sampler.wait()
            answer = samples_of([file.read_bytes()], 0)
            samples = [sample for sample in (answer[1] if answer else ()) if sample.device == "0"][5:]
            uses = [sample.use for sample in samples if sample.use is not None]
            power = [sample.power for sample in samples if sample.power is not None]
            true, mean = float(load.stdout), sum(uses) / len(uses) if uses else float("nan")
            wrong += not abs(mean - true) <= POINTS
            watts = f"{sum(power) / len(power):.0f} W" if power else ""
            print(f"{duty:3d} %   true {true:5.1f}   samples {mean:5.1f} of {len(uses):<4d} {watts}", flush=True)
    print(f"{wrong} are not within {POINTS} points" if wrong else f"all are within {POINTS} points")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
