"""A check of the judge's times on this machine's GPU: honest kernels, and kernels that cheat, judged as a user's is.

    python3 benchmarks/gpu_judge.py [--entries N] [--rounds R]

Needs Python 3.9, numpy, and hipcc or nvcc; nothing else, not even an installation of Steno. Takes below ten minutes.
Each entry of a call is N times R multiplications and additions, by default of 262,144 entries and 200,000 rounds: some
milliseconds of a large GPU. Programs run as processes of this user, without containers.

A line each: the kernel, what the judge said, milliseconds of a call and their interval, seconds of the judgement. An
honest kernel must be timed. A cheat must end wrong, or with an interval that is not below that of the honest kernel,
which is judged first and last.
Exit status: 0 all is right; 1 a cheat gained or an honest kernel was refused; 6 there is no GPU or no compiler for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from steno.engine.kernel.machine import build
from steno.engine.kernel.machine.batches import Over
from steno.engine.kernel.machine.device import Device
from steno.engine.kernel.machine.framing import MARK, Teller
from steno.engine.kernel.machine.judge import Judge
from steno.engine.kernel.machine.local_cells import LocalCells

NOT_HERE = 6
KINDS = {"hipcc": ("hip", "MI300X"), "nvcc": ("cuda", "H100")}  # a GPU of the kind, for what is shown beside times
LIMITS = {"compile": 300, "case": 5, "reference": 60, "measure": 0, "batch": 1 << 28}
REFERENCE = """
import numpy
def reference(inputs, sizes, parameters):
    left = 0.9 ** sizes["R"]
    return left * inputs["A"].astype("f8") + (1 - left) / (1 - 0.9) * inputs["B"]
"""
PRELUDE = """
#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>
__global__ void settle(const float* a, const float* b, float* c, size_t n, size_t r) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i];
  for (size_t k = 0; k < r; ++k) x = 0.9f * x + b[i];
  c[i] = x;
}
static void work(const float* A, const float* B, float* C, size_t N, size_t R) {
  hipLaunchKernelGGL(settle, dim3((unsigned)((N + 255) / 256)), dim3(256), 0, 0, A, B, C, N, R);
}
static int turn = 0;  // of this process: the first call is not timed
static bool is_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}
static int judge() {
  for (int fd = 3; fd < 1024; ++fd)
    if (is_socket(fd)) return fd;
  return -1;
}
static void say_done() { (void)!send(judge(), "d", 1, MSG_NOSIGNAL); }
"""
SOLUTION = """
extern "C" void solution(const float* A, const float* B, float* C, size_t N, size_t R) { %s }
"""
INSTEAD_OF_DONE = """
extern "C" ssize_t write(int to, const void* data, size_t size) {
  if (is_socket(to)) { %s }
  return syscall(SYS_write, to, data, size);
}
"""


class Kernel(NamedTuple):
    name: str
    status: str  # how it must end; a cheat that is timed must have a true time
    source: str
    honest: bool = False


KERNELS = (
    Kernel("one call after the other", "BENCHMARKED", SOLUTION % "work(A, B, C, N, R);", honest=True),
    Kernel(
        "all calls at once, from threads",
        "BENCHMARKED",
        'extern "C" void solve_batch(const steno_call* calls, size_t n) {\n'
        "  std::thread other([=] { for (size_t i = 0; i < n / 2; ++i)\n"
        "    work(calls[i].A, calls[i].B, calls[i].C, calls[i].N, calls[i].R); });\n"
        "  other.join();\n"
        "  for (size_t i = n / 2; i < n; ++i) work(calls[i].A, calls[i].B, calls[i].C, calls[i].N, calls[i].R);\n"
        "}\n" + SOLUTION % "",
        honest=True,
    ),
    Kernel(
        "with memory of its own",
        "BENCHMARKED",
        SOLUTION % "static float* own; if (!own) (void)hipMalloc(&own, N * 4); work(A, B, own, N, R);"
        " (void)hipMemcpy(C, own, N * 4, hipMemcpyDeviceToDevice);",
        honest=True,
    ),
    Kernel("no work", "WRONG_ANSWER", SOLUTION % "if (turn++ == 0) work(A, B, C, N, R);"),
    Kernel(
        "results of the first call",
        "WRONG_ANSWER",
        SOLUTION
        % "static float* kept; if (turn++ > 0) { (void)hipMemcpy(C, kept, N * 4, hipMemcpyDeviceToDevice); return; }"
        "work(A, B, C, N, R); (void)hipMalloc(&kept, N * 4); (void)hipMemcpy(kept, C, N * 4, hipMemcpyDeviceToDevice);",
    ),
    Kernel("done, then the work", "WRONG_ANSWER", SOLUTION % "if (turn++ == 1) say_done(); work(A, B, C, N, R);"),
    Kernel(
        "done, and work from another thread later",
        "WRONG_ANSWER",
        SOLUTION % "if (turn++ == 0) return work(A, B, C, N, R); if (turn == 2) say_done();"
        " std::thread([=] { usleep(20000); work(A, B, C, N, R); (void)hipDeviceSynchronize(); }).join();",
    ),
    Kernel(
        "done twice in the call before",
        "WRONG_ANSWER",
        SOLUTION % "if (turn++ == 0) say_done(); work(A, B, C, N, R);",
    ),
    Kernel(
        "the descriptors of the call before",
        "WRONG_ANSWER",
        """
extern "C" ssize_t recvmsg(int from, msghdr* message, int flags) {
  static int kept[2] = {-1, -1};
  const ssize_t got = syscall(SYS_recvmsg, from, message, flags);
  cmsghdr* const control = got > 0 && is_socket(from) ? CMSG_FIRSTHDR(message) : nullptr;
  if (control == nullptr) return got;
  int* const now = (int*)CMSG_DATA(control);
  for (int i = 0; i < 2; ++i) {
    if (kept[i] < 0) kept[i] = dup(now[i]);
    else now[i] = kept[i];
  }
  return got;
}
"""
        + SOLUTION % "work(A, B, C, N, R);",
    ),
    Kernel(
        "inputs that are easier",
        "WRONG_ANSWER",
        SOLUTION % "(void)hipMemset((float*)A, 0, N * 4); (void)hipMemset((float*)B, 0, N * 4); work(A, B, C, N, 1);",
    ),
    Kernel(
        "half of the entries",
        "WRONG_ANSWER",
        SOLUTION % "work(A, B, C, turn++ == 0 ? N : N / 2, R);",
    ),
    Kernel(
        "done with 200 descriptors",
        "BENCHMARKED",
        INSTEAD_OF_DONE
        % """
    int many[200];
    for (int& one : many) one = 2;
    std::vector<char> room(CMSG_SPACE(sizeof many));
    iovec piece{(void*)"dddd", 4};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* const control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof many);
    std::memcpy(CMSG_DATA(control), many, sizeof many);
    return sendmsg(to, &message, MSG_NOSIGNAL) > 0 ? 1 : -1;
"""
        + SOLUTION % "work(A, B, C, N, R);",
    ),
    Kernel(
        "done, in 64 KiB",
        "BENCHMARKED",
        INSTEAD_OF_DONE
        % "std::vector<char> much(65536, 'x'); return send(to, much.data(), much.size(), 0) > 0 ? 1 : -1;"
        + SOLUTION % "work(A, B, C, N, R);",
    ),
    Kernel("a closed socket", "RUNTIME_ERROR", SOLUTION % "if (turn++ == 1) shutdown(judge(), SHUT_RDWR);"),
    Kernel("never done", "RUNTIME_ERROR", SOLUTION % "while (turn++ > 0) usleep(1000);"),
)


def job(kernel: str, compiler: str, entries: int, rounds: int) -> dict[str, Any]:
    """The job that the judge reads (`engine/kernel/executor.py` makes it of a submission)."""
    language, gpu = KINDS[compiler]
    sizes = {"N": entries, "R": rounds}
    values = {"entries": entries, "low": -1.0, "high": 1.0, "dtype": "float32"}
    inputs = [{"name": name, **values} for name in ("A", "B")]
    case = {"sizes": sizes, "parameters": {}, "inputs": inputs, "outputs": {"C": entries}, "operations": 0}
    names = {"inputs": ["A", "B"], "outputs": ["C"], "integers": [], "parameters": [], "sizes": ["N", "R"]}
    return {
        "solution": PRELUDE + kernel,
        "dtype": "float32",
        "endpoint": "benchmark",
        "compiler": compiler if language == "hip" else "auto",
        "language": language,
        "gpu": gpu,
        "arch": "native",
        "shipped": True,
        "signature": {"function": "solution", **names},
        "reference": REFERENCE,
        "tolerance": {"absolute": 1e-3, "relative": 1e-4},
        "limits": LIMITS,
        "tests": [case],
        "benchmarks": [case | {"warm_ups": 0, "repeats": 5}],
    }


def judged(cells: LocalCells, kernel: str, compiler: str, entries: int, rounds: int) -> list[dict[str, Any]]:
    """The judge's frames."""
    lines: list[str] = []
    Judge(job(kernel, compiler, entries, rounds), cells, Teller(lines.append)).run()
    return [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]


def missing(cells: LocalCells, compiler: str) -> str:
    """Why there is no GPU to judge on; empty: there is one."""
    usable = build.find_compiler(cells, job("", compiler, 1, 1))
    if usable is None:
        return f"{compiler} is not here"
    program = build.device_program(cells, usable, LIMITS["compile"])
    if program is None:
        return f"{compiler} does not compile for a GPU of this machine"
    try:
        Device(cells, program, "GPU").end()
    except Over as over:
        return str(over.facts["message"])
    return ""


def faults(frames: dict[Kernel, list[dict[str, Any]]]) -> Iterator[str]:
    """The kernels that did not end as they must, by the frames of each."""
    times = {
        kernel: frame
        for kernel, kernel_frames in frames.items()
        for frame in kernel_frames
        if frame["status"] == "BENCHMARK_RESULT"
    }
    least = min((frame["low_ms"] for kernel, frame in times.items() if kernel.source == KERNELS[0].source), default=0.0)
    for kernel, (*_, last) in frames.items():
        if last["status"] != kernel.status:
            yield f"WRONG: {kernel.name}: {last['status']}, not {kernel.status}: {last.get('message', '')}"
        elif kernel in times and not kernel.honest and times[kernel]["high_ms"] < least:
            yield f"WRONG: {kernel.name}: {times[kernel]['high_ms']} ms at most, below {least} ms of an honest kernel"


def main() -> int:
    words = argparse.ArgumentParser(description="Judge honest kernels and cheats on this machine's GPU.")
    words.add_argument("--entries", type=int, default=1 << 18, help="of a call")
    words.add_argument("--rounds", type=int, default=200_000, help="of an entry")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cells = LocalCells(Path(folder))
        why = {compiler: missing(cells, compiler) for compiler in KINDS}
        usable = [compiler for compiler, reason in why.items() if not reason]
        if not usable:
            print("no GPU here: " + "; ".join(why.values()))
            return NOT_HERE
        frames = {}
        for kernel in (*KERNELS, KERNELS[0]._replace(name="one call after the other, again")):
            began = time.monotonic()
            judgement = frames[kernel] = judged(cells, kernel.source, usable[0], given.entries, given.rounds)
            timed = next((frame for frame in judgement if frame["status"] == "BENCHMARK_RESULT"), None)
            times = f"{timed['median_ms']:.4f} ms ({timed['low_ms']:.4f} to {timed['high_ms']:.4f})" if timed else ""
            print(
                f"{kernel.name:<42} {judgement[-1]['status']:<14} {times:<36} {time.monotonic() - began:.0f} s",
                flush=True,
            )
    wrong = list(faults(frames))
    print("\n".join(wrong) or f"all {len(frames)} are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
