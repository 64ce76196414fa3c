"""How a kernel is carried out: by one task that brings everything with it, or by the listener of a warm machine. The
request, the mark in the record and the frames are the same.
"""

import base64
import io
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from engine.kernel.definition import (
    TOLERANCES,
    Definition,
    Test,
    Tolerance,
    Wrong,
    definition_hash,
    entries,
    product,
    reference_of,
)
from engine.kernel.machine.build import prototype
from engine.kernel.machine.measure import GPUS
from engine.kernel.submission import KernelSubmission
from engine.kernel_mark import KernelMark, hashed

PACKAGE: Final = "steno_kernel"  # the name of the program on the machine
VARIABLE: Final = "STENO_KERNEL"
MAX_VARIABLE: Final = 120_000  # bytes of one environment variable, below Linux's 128 KiB
LIMITS: Final = {"compile": 300, "case": 60, "reference": 120, "measure": 20}  # seconds

_FOLDER: Final = Path(__file__).parent / "machine"
_SENT: Final = frozenset({".py", ".hpp", ".h"})
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # constant file times: the same files are the same bytes


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of every kernel's task."""

    image: str
    compiler: str  # `auto`: hipcc, or where there is none, a C++ compiler with the stand-in for HIP
    max_duration: int  # seconds
    pooled: bool = False  # it goes to a warm machine's listener


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as its provider will carry it out."""

    configuration: dict[str, object]  # a task; its `env` holds the solution, as a secret
    mark: KernelMark


def order_of(submission: KernelSubmission, key: str, terms: Terms) -> Order:
    """The provider's request: one task, in which the image's Python unpacks the program, which compiles, checks and
    times. `key`: a fresh secret; only output that carries it is genuine, and all inputs follow from it.

    Raises:
        Wrong: it is too large to be sent.
    """
    definition, gpu = submission.definition, None if submission.gpu == "CPU" else submission.gpu
    job = job_of(submission, key, compiler=terms.compiler) | {"max_duration": terms.max_duration}
    configuration: dict[str, object] = {"type": "task", "max_duration": terms.max_duration}
    if terms.pooled:
        resources = {} if gpu is None else {"gpu": gpu}
        configuration |= {"env": {VARIABLE: msgspec.json.encode(job).decode()}, "resources": resources}
    else:
        bundle = bundled(job)
        if len(bundle) + len(VARIABLE) + 2 > MAX_VARIABLE:
            raise Wrong("solution_code", "with its problem it is too large to be sent to a machine: make it shorter")
        configuration |= {
            "image": terms.image,
            "commands": [f'python3 -c "{program_of(PACKAGE, VARIABLE)}"'],
            "env": {VARIABLE: bundle},
            "resources": {} if gpu is None else {"gpu": f"{gpu}:1"},
        }
    mark = KernelMark(
        problem=submission.problem,
        gpu_type=submission.gpu,
        dtype=submission.dtype,
        language=submission.language,
        endpoint=submission.endpoint,
        tests=len(definition.tests),
        benchmarks=len(definition.benchmarks) if submission.endpoint == "benchmark" else 0,
        key_hash=hashed(key),
        seed_hash=hashed(seed_of(key)),
        definition_hash=definition_hash(definition),
    )
    return Order(configuration=configuration, mark=mark)


def prototype_of(definition: Definition, dtype: str) -> str:
    """The C++ declaration of what a solution defines."""
    return prototype(_names(definition), dtype).splitlines()[-1]


def seed_of(key: str) -> str:
    """What a run's inputs follow from; it does not tell the key."""
    return hashed(f"seed/{key}")


def job_of(submission: KernelSubmission, key: str, *, compiler: str) -> dict[str, object]:
    """What the program on the machine reads: only names, numbers and text, no references."""
    definition, dtype = submission.definition, submission.dtype
    usual = TOLERANCES[dtype]
    return {
        "key": key,
        "seed": seed_of(key),
        "solution": submission.solution,
        "dtype": dtype,
        "endpoint": submission.endpoint,
        "compiler": compiler,
        "language": submission.language,
        "gpu": submission.gpu,
        "arch": GPUS[submission.gpu]["arch"],
        "signature": _names(definition),
        "reference": reference_of(definition),
        "tolerance": msgspec.to_builtins(definition.tolerance or Tolerance(absolute=usual, relative=usual)),
        "limits": LIMITS,
        "tests": [_case(one, definition) for one in definition.tests],
        "benchmarks": [_case(one, definition) for one in definition.benchmarks],
    }


def _names(definition: Definition) -> dict[str, object]:
    signature = definition.signature
    return msgspec.structs.asdict(signature) | {
        "inputs": [one.name for one in signature.inputs],
        "outputs": [one.name for one in signature.outputs],
    }


def _case(case: Test, definition: Definition) -> dict[str, object]:
    signature = definition.signature
    return msgspec.structs.asdict(case) | {
        "operations": product(definition.operations, case.sizes) if definition.operations else 0,
        # in the signature's order, in which the program gets them
        "sizes": {name: case.sizes[name] for name in signature.sizes},
        "parameters": {name: case.parameters[name] for name in signature.parameters},
        "inputs": [
            {"name": one.name, "entries": entries(one, case.sizes), "low": one.low, "high": one.high}
            for one in signature.inputs
        ],
        "outputs": {one.name: entries(one, case.sizes) for one in signature.outputs},
    }


def bundled(job: dict[str, object]) -> str:
    """The program and its job as a zip file in base64, which fits into an environment variable of the machine."""
    return packed((*_program(), ("job.json", msgspec.json.encode(job))))


def packed(files: Iterable[tuple[str, bytes]]) -> str:
    """Files as a zip file in base64."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in files:
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED, 9)
    return base64.b64encode(archive.getvalue()).decode("ascii")


def program_of(module: str, variable: str) -> str:
    """The Python program that unpacks `packed` files from a variable into a folder of its own and runs a module of
    them, which gets the folder as its argument.
    """
    return (
        "import base64, io, os, runpy, sys, tempfile, zipfile; "
        "folder = tempfile.mkdtemp(prefix='steno-'); "
        f"zipfile.ZipFile(io.BytesIO(base64.b64decode(os.environ.pop('{variable}')))).extractall(folder); "
        f"sys.path.insert(0, folder); sys.argv = ['{module}', folder]; "
        f"runpy.run_module('{module}', run_name='__main__')"
    )


@cache
def _program() -> tuple[tuple[str, bytes], ...]:
    paths = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _SENT)
    return tuple((f"{PACKAGE}/{path.relative_to(_FOLDER).as_posix()}", path.read_bytes()) for path in paths)
