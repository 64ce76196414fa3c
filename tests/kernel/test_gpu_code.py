"""Kernels compiled for real GPUs, where there is none: what is in the code object, and how it ends without its GPU."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stenotest.kernels import DOING, KEY, PATIENT, SHIPPED, submission

from engine.kernel.executor import job_of
from engine.kernel.machine import build
from engine.kernel.machine.frames import Teller
from engine.kernel.machine.here import Here
from engine.kernel.machine.judge import Judge

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


@pytest.fixture
def here() -> Iterator[Here]:
    with tempfile.TemporaryDirectory() as folder:
        yield Here(Path(folder))


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize(("gpu", "arch"), [("MI250X", "gfx90a"), ("MI300X", "gfx942")])
@pytest.mark.parametrize("problem", SHIPPED)
def test_a_shipped_solution_becomes_code_of_the_gpu(here: Here, problem: str, gpu: str, arch: str) -> None:
    job = job_of(submission(problem, gpu_type=gpu), KEY, compiler="clang++-19") | {"limits": PATIENT}
    compiler = build.find_compiler(here, job)
    assert compiler is not None
    assert not compiler.stands_in
    ended, program = build.compiled(here, compiler, job)
    assert program is not None, ended.output
    (elf,) = (data for target, data in code_objects(program).items() if target.endswith(f"amdgcn-amd-amdhsa--{arch}"))
    machine, flags = struct.unpack_from("<H", elf, 18)[0], struct.unpack_from("<I", elf, 48)[0]
    assert (elf[:4], machine, flags & 0xFF) == (b"\x7fELF", AMDGPU, MACH[arch])


@pytest.mark.usefixtures("clang")
def test_without_the_gpu_its_kernel_ends_with_a_runtime_error_that_names_it(here: Here) -> None:
    said: list[str] = []
    job = job_of(submission("vector-add"), KEY, compiler="clang++-19") | {"limits": PATIENT}
    assert Judge(job, here, Teller(KEY, said.append)).run() == 1
    (last,) = (line for line in said if '"status": "RUNTIME_ERROR"' in line)
    assert "the MI300X reported an error" in last


def test_cuda_is_compiled_where_nvcc_is_and_named_where_it_is_not(here: Here) -> None:
    said: list[str] = []
    wanted = submission("vector-add", solution_code=DOING % "", language="cuda", gpu_type="H100")
    code = Judge(job_of(wanted, KEY, compiler="auto") | {"limits": PATIENT}, here, Teller(KEY, said.append)).run()
    if shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists():
        assert (code, any("the H100 reported an error" in line for line in said)) == (1, True), said
    else:
        assert (code, "there is no compiler here: auto for cuda" in said[-1]) == (2, True), said
