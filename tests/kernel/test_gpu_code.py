"""Kernels compiled for real GPUs, where there is none: what is in the code object, and how it ends without its GPU."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenotest.kernels import DOING, KEY, PATIENT, SHIPPED, Judgement, submission

from engine.kernel.executor import job_of

if TYPE_CHECKING:
    from engine.kernel.submission import KernelSubmission

pytestmark = pytest.mark.slow

NEEDS = (
    "these tests need a HIP compiler: `apt-get install clang-19 clang-tools-19 lld-19 libamdhip64-dev rocm-device-libs`"
)
AMDGPU = 224  # ELF's number of the machine
MACH = {"gfx90a": 0x3F, "gfx942": 0x4C}  # in the low byte of ELF's flags, by LLVM's AMDGPU guide


@pytest.fixture
def clang() -> None:
    """Debian's HIP compiler."""
    if shutil.which("clang++-19") is None or not list(Path("/usr/lib").glob("*/amdgcn/bitcode/ocml.bc")):
        pytest.fail(NEEDS) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(NEEDS)


def code_objects(program: bytes) -> dict[str, bytes]:
    """{target: ELF} of the bundle in a program, as clang-offload-bundler writes it."""
    start = program.index(b"__CLANG_OFFLOAD_BUNDLE__")
    (count,), at = struct.unpack_from("<Q", program, start + 24), start + 32
    found = {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", program, at)
        name = program[at + 24 : at + 24 + length].decode()
        found[name] = program[start + offset : start + offset + size]
        at += 24 + length
    return found


COMPILES = """
import json, pathlib, sys
from engine.kernel.machine import build, here
cells, job = here.Here(pathlib.Path(sys.argv[1])), json.load(sys.stdin)
compiler = build.find_compiler(cells, job)
assert not compiler.stands_in
ended, program = build.compiled(cells, compiler, job)
sys.exit(ended.output) if program is None else sys.stdout.buffer.write(program)
"""
JUDGES = """
import json, pathlib, sys
from engine.kernel.machine import frames, here, judge
job = json.load(sys.stdin)
sys.exit(judge.Judge(job, here.Here(pathlib.Path(sys.argv[1])), frames.Teller(job["key"])).run())
"""


def done(script: str, wanted: KernelSubmission, compiler: str) -> subprocess.CompletedProcess[bytes]:
    """A process of its own with that script: whoever runs programs ends all children that its process has."""
    job = job_of(wanted, KEY, compiler=compiler) | {"limits": PATIENT}
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", script, folder]
        return subprocess.run(argv, input=json.dumps(job).encode(), capture_output=True, check=False)


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize(
    ("problem", "gpu", "arch"),
    [
        pytest.param(problem, *gpu, marks=[pytest.mark.long] if (number + turn) % 2 else [])
        for number, problem in enumerate(SHIPPED)
        for turn, gpu in enumerate((("MI300X", "gfx942"), ("MI250X", "gfx90a")))
    ],
)
def test_a_shipped_solution_becomes_code_of_the_gpu(problem: str, gpu: str, arch: str) -> None:
    """Each for one of the two, of which each is used; the other ones are `long`: a compilation takes 4 s."""
    found = done(COMPILES, submission(problem, gpu_type=gpu), "clang++-19")
    assert found.returncode == 0, found.stderr.decode()
    objects = code_objects(found.stdout)
    (elf,) = (data for target, data in objects.items() if target.endswith(f"amdgcn-amd-amdhsa--{arch}"))
    machine, flags = struct.unpack_from("<H", elf, 18)[0], struct.unpack_from("<I", elf, 48)[0]
    assert (elf[:4], machine, flags & 0xFF) == (b"\x7fELF", AMDGPU, MACH[arch])


@pytest.mark.usefixtures("clang")
def test_without_the_gpu_its_kernel_ends_with_a_runtime_error_that_names_it() -> None:
    found = Judgement(done(JUDGES, submission("vector-add"), "clang++-19"))
    assert (found.code, found.last["status"]) == (1, "RUNTIME_ERROR"), found.output
    assert "the MI300X reported an error" in found.last["message"]


def test_cuda_is_compiled_where_nvcc_is_and_named_where_it_is_not() -> None:
    wanted = submission("vector-add", solution_code=DOING % "", language="cuda", gpu_type="H100")
    found = Judgement(done(JUDGES, wanted, "auto"))
    if shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists():
        assert (found.code, "the H100 reported an error" in found.last["message"]) == (1, True), found.output
    else:
        assert (found.code, found.last["message"]) == (2, "there is no compiler here: auto for cuda"), found.output
