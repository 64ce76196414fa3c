"""A kernel as its provider carries it out: the task and the mark of its request, the job that the judge reads, and the
work of a call. Containers of a warm machine's listener judge it; the user's own code also processes of this host.
"""

import shlex
import sys
from typing import Any, Final

import msgspec

from steno.engine.kernel.definition import (
    DTYPES,
    Definition,
    Dtype,
    KernelProblem,
    Test,
    Wrong,
    definition_hash,
    entries,
    expect_room,
    problems,
    product,
    reference_of,
    shipped,
)
from steno.engine.kernel.machine.build import prototype
from steno.engine.kernel.machine.layout import Layout
from steno.engine.kernel.machine.measure import GPUS, floor_ms
from steno.engine.kernel.submission import KernelSubmission
from steno.engine.state.kernel_mark import KernelMark

VARIABLE: Final = "STENO_KERNEL"  # of the task's environment: the job as JSON
MAX_VARIABLE: Final = 120_000  # bytes of one environment variable, below Linux's 128 KiB
LIMITS: Final = {"compile": 300, "case": 60, "reference": 120, "measure": 8}  # seconds


def order_of(
    submission: KernelSubmission,
    source: str,
    *,
    compiler: str,
    max_duration: int,
    batch_memory: int = 1 << 30,
    isolated: bool = True,
    image: str = "",
) -> tuple[dict[str, object], KernelMark]:
    """The task, whose `env` holds the solution as a secret, and the mark of the request.

    Args:
        source: a commitment to the solution's text.
        compiler: `auto`: hipcc, or where there is none, a C++ compiler with the stand-in for HIP.
        max_duration, batch_memory: seconds, and bytes of the tensors of one batch.
        isolated: in containers; False: as a process of this host, whose `image` is only for the provider's checks.

    Raises:
        Wrong: it is too large to be sent, or a call of it too large for a batch.
    """
    definition, gpu = submission.definition, None if submission.gpu_type == "CPU" else submission.gpu_type
    limits: dict[str, object] = {**LIMITS, "batch": batch_memory}
    job = job_of(submission, compiler=compiler) | {"max_duration": max_duration, "limits": limits}
    expect_room(definition, submission.dtype, batch_memory)
    text = msgspec.json.encode(job).decode()
    configuration: dict[str, object] = {"type": "task", "max_duration": max_duration, "env": {VARIABLE: text}}
    configuration["resources"] = {} if gpu is None else {"gpu": gpu if isolated else f"{gpu}:1"}
    if not isolated:
        if len(text.encode()) + len(VARIABLE) + 2 > MAX_VARIABLE:
            raise Wrong("solution_code", "with its problem it is too large to be sent to a process: make it shorter")
        configuration["image"] = image
        configuration["commands"] = [f"exec {shlex.quote(sys.executable)} -m steno.engine.listener"]
    mark = KernelMark(
        problem=submission.problem,
        gpu_type=submission.gpu_type,
        dtype=submission.dtype,
        language=submission.language,
        endpoint=submission.endpoint,
        tests=len(definition.tests),
        benchmarks=len(definition.benchmarks) if submission.endpoint == "benchmark" else 0,
        source=source,
        isolated=isolated,
        definition_hash=definition_hash(definition),
    )
    return configuration, mark


def prototype_of(definition: Definition, dtype: str) -> str:
    """The C++ declaration of a solution."""
    return prototype(_names(definition), dtype).splitlines()[-1]


def job_of(submission: KernelSubmission, *, compiler: str) -> dict[str, object]:
    """The job that the judge reads: only names, numbers and text, no references."""
    return {
        "solution": submission.solution_code,
        "endpoint": submission.endpoint,
        "compiler": compiler,
        "language": submission.language,
        "gpu": submission.gpu_type,
        "arch": GPUS[submission.gpu_type]["arch"],
        "shipped": submission.definition in shipped().values(),  # without null solutions: tests certify it
        **problem_job(submission.definition, submission.dtype),
    }


def problem_job(definition: Definition, dtype: str) -> dict[str, object]:
    """The part of a job that is the problem."""
    return {
        "dtype": dtype,
        "signature": _names(definition),
        "reference": reference_of(definition),
        "tolerance": msgspec.to_builtins(definition.tolerance),
        "limits": LIMITS,
        "tests": [_case(test, definition, dtype) for test in definition.tests],
        "benchmarks": [_case(benchmark, definition, dtype) for benchmark in definition.benchmarks],
    }


def _names(definition: Definition) -> dict[str, object]:
    signature = definition.signature
    return msgspec.structs.asdict(signature) | {
        "inputs": [tensor.name for tensor in signature.inputs],
        "outputs": [tensor.name for tensor in signature.outputs],
        "integers": [tensor.name for tensor in signature.inputs if tensor.dtype == "int32"],
    }


def _case(case: Test, definition: Definition, dtype: str) -> dict[str, Any]:
    """A test or benchmark as the judge reads it."""
    signature = definition.signature
    kept = {size for tensor in signature.outputs for size in tensor.shape}
    summed = {size for tensor in signature.inputs for size in tensor.shape if isinstance(size, str)} - kept
    terms = definition.terms or tuple(summed)  # as Einstein's summation convention has it
    outputs = {tensor.name: entries(tensor, case.sizes) for tensor in signature.outputs}
    operations = product(definition.operations, case.sizes) if definition.operations else 0
    return msgspec.structs.asdict(case) | {
        "operations": operations,
        "terms": max(product(terms, case.sizes), operations // min(outputs.values())),
        # in the signature's order, in which the program gets them
        "sizes": {name: case.sizes[name] for name in signature.sizes},
        "parameters": {name: case.parameters[name] for name in signature.parameters},
        "inputs": [
            {
                "name": tensor.name,
                "entries": entries(tensor, case.sizes),
                "low": tensor.low,
                "high": tensor.high,
                "dtype": tensor.dtype or dtype,
            }
            for tensor in signature.inputs
        ],
        "outputs": outputs,
    }


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one call of a benchmark."""

    sizes: dict[str, int]
    dtype: Dtype
    bytes: int  # of inputs and outputs: read and written at least
    operations: int  # at least; 0: the problem does not say
    floor_ms: dict[str, float]  # by GPU, from its data sheet: a time's share of the limit is this by the time


class OfferedProblem(KernelProblem, frozen=True, kw_only=True):
    """A shipped problem with the work of its benchmarks."""

    work: tuple[Work, ...]


def offered() -> tuple[OfferedProblem, ...]:
    return tuple(OfferedProblem(**msgspec.structs.asdict(each), work=work_of(each.problem_def)) for each in problems())


def work_of(definition: Definition) -> tuple[Work, ...]:
    """The work of each benchmark, in the first dtype that the problem admits."""
    dtype: Dtype = (definition.dtypes or DTYPES)[0]  # type: ignore[assignment] # DTYPES has them as text
    work = []
    for benchmark in definition.benchmarks:
        case = _case(benchmark, definition, dtype)
        moved, operations = Layout(case, dtype).bytes, case["operations"]
        floors = {gpu: round(floor_ms(gpu, dtype, moved, operations), 6) for gpu in GPUS}
        work.append(Work(sizes=benchmark.sizes, dtype=dtype, bytes=moved, operations=operations, floor_ms=floors))
    return tuple(work)
