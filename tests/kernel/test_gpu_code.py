"""Kernels compiled for real GPUs, where there is none: what is in the code object, and how it ends without its GPU."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from stenotest.kernels import DOING, PATIENT, SHIPPED, Judgement, submission

from steno.engine.kernel.executor import job_of
from steno.engine.kernel.submission import KernelSubmission

pytestmark = pytest.mark.slow

NEEDS = (
    "these tests need a HIP compiler: `apt-get install clang-19 clang-tools-19 lld-19 libamdhip64-dev rocm-device-libs`"
)
NVCC = shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()
AMDGPU = 224  # ELF's number of the machine
FAT, ELF = b"\x50\xed\x55\xba", 2  # how a fat binary of CUDA begins; the kind of a part of it
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
    objects = {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", program, at)
        name = program[at + 24 : at + 24 + length].decode()
        objects[name] = program[start + offset : start + offset + size]
        at += 24 + length
    return objects


COMPILES = """
import json, pathlib, sys
from steno.engine.kernel.machine import build, local_cells
cells, job = local_cells.LocalCells(pathlib.Path(sys.argv[1])), json.load(sys.stdin)
compiler = build.find_compiler(cells, job)
assert not compiler.stands_in
ended, program = build.compiled(cells, compiler, job)
sys.exit(ended.output) if program is None else sys.stdout.buffer.write(program)
"""
COMPILES_OURS = (
    COMPILES.partition("ended, ")[0] + "sys.stdout.buffer.write(build.device_program(cells, compiler, 1200))\n"
)
JUDGES = """
import json, pathlib, sys
from steno.engine.kernel.machine import framing, judge, local_cells
job = json.load(sys.stdin)
sys.exit(judge.Judge(job, local_cells.LocalCells(pathlib.Path(sys.argv[1])), framing.Teller()).run())
"""


def cuda_objects(program: bytes) -> dict[int, bytes]:
    """{architecture: ELF} of the last fat binary in a program that has one, as nvcc writes it."""
    objects, start = dict[int, bytes](), program.index(FAT)
    while start >= 0:
        _, _, head, size = struct.unpack_from("<IHHQ", program, start)
        at, end = start + head, start + head + size
        while at < end:
            kind, _, head, size = struct.unpack_from("<HHIQ", program, at)
            if kind == ELF:
                objects[struct.unpack_from("<I", program, at + 28)[0]] = program[at + head : at + head + size]
            at += head + size
        start = program.find(FAT, end)
    return objects


def done(script: str, wanted: KernelSubmission, compiler: str) -> subprocess.CompletedProcess[bytes]:
    """A process of its own with that script: whoever runs programs ends all children that its process has."""
    job = job_of(wanted, compiler=compiler) | {"limits": PATIENT}
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", script, folder]
        return subprocess.run(argv, input=json.dumps(job).encode(), capture_output=True, check=False)


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize(
    ("problem", "gpu", "arch"),
    [
        pytest.param(problem, *gpu, marks=[] if (number, turn) == (0, 0) else [pytest.mark.long])
        for number, problem in enumerate(SHIPPED)
        for turn, gpu in enumerate((("MI300X", "gfx942"), ("MI250X", "gfx90a")))
    ],
)
def test_a_shipped_solution_becomes_code_of_the_gpu(problem: str, gpu: str, arch: str) -> None:
    """The other compilations, of 4 s each, are `long`."""
    compiled = done(COMPILES, submission(problem, gpu_type=gpu), "clang++-19")
    assert compiled.returncode == 0, compiled.stderr.decode()
    objects = code_objects(compiled.stdout)
    (elf,) = (data for target, data in objects.items() if target.endswith(f"amdgcn-amd-amdhsa--{arch}"))
    machine, flags = struct.unpack_from("<H", elf, 18)[0], struct.unpack_from("<I", elf, 48)[0]
    assert (elf[:4], machine, flags & 0xFF) == (b"\x7fELF", AMDGPU, MACH[arch])


@pytest.mark.ci
@pytest.mark.usefixtures("clang")
def test_without_the_gpu_its_kernel_ends_with_a_runtime_error_that_names_it() -> None:
    judgement = Judgement(done(JUDGES, submission("vector-add"), "clang++-19"))
    assert (judgement.code, judgement.last["status"]) == (1, "RUNTIME_ERROR"), judgement.output
    assert judgement.last["message"] == "the MI300X reported an error: the GPU: hipErrorNoDevice"
    assert judgement.complaints == b""


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize(
    ("gpu", "arch"), [("MI300X", "gfx942"), pytest.param("MI250X", "gfx90a", marks=pytest.mark.long)]
)
def test_the_judges_own_program_becomes_code_of_the_gpu(gpu: str, arch: str) -> None:
    """Its kernel gathers outputs."""
    compiled = done(COMPILES_OURS, submission("vector-add", gpu_type=gpu), "clang++-19")
    assert compiled.returncode == 0, compiled.stderr.decode()
    (elf,) = (data for target, data in code_objects(compiled.stdout).items() if target.endswith(f"--{arch}"))
    assert (struct.unpack_from("<I", elf, 48)[0] & 0xFF, b"gather" in elf) == (MACH[arch], True)


@pytest.mark.ci
def test_cuda_is_compiled_where_nvcc_is_and_named_where_it_is_not() -> None:
    """The solution, and the judge's own program."""
    wanted = submission("vector-add", solution_code=DOING % "", language="cuda", gpu_type="H100")
    judgement = Judgement(done(JUDGES, wanted, "auto"))
    if NVCC:
        message = "the H100 reported an error: the GPU: CUDA driver version is insufficient for CUDA runtime version"
        assert (judgement.code, judgement.last["status"], judgement.last["message"]) == (1, "RUNTIME_ERROR", message), (
            judgement.output
        )
        assert judgement.complaints == b""
        ours = done(COMPILES_OURS, wanted, "auto")  # the same source, with names of CUDA for those of HIP
        assert ours.returncode == 0, ours.stderr.decode()
        assert b"gather" in cuda_objects(ours.stdout)[90]
    else:
        assert (judgement.code, judgement.last["message"]) == (2, "there is no compiler here: auto for cuda"), (
            judgement.output
        )


def test_the_script_for_gpus_says_in_a_line_that_there_is_none(tmp_path: Path) -> None:
    """Where no compiler is, which it would need first."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    argv = [sys.executable, Path(__file__).parents[2] / "benchmarks/gpu_judge.py"]
    ended = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout.count("\n")) == (6, "", 1)
    assert ended.stdout.startswith("no GPU here: ")
