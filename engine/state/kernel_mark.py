"""Kernels in the record: the mark of a kernel's request, kept beside its task without the solution; and the runs that
keep a machine for kernels.
"""

import hashlib
import re
from typing import Final

import msgspec

from steno.engine.state.run import Run
from steno.engine.state.vm import Vm, vm_id_of

STATUSES: Final = frozenset(
    {
        "COMPILING", "COMPILE_ERROR", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT",
        "BENCHMARKED", "WRONG_ANSWER", "RUNTIME_ERROR", "CHEATING_SUSPECTED", "ERROR",
    }
)  # fmt: skip
"""The kinds of frames that a task can print."""

FORGOTTEN: Final = 75  # exit status (EX_TEMPFAIL) of a listener that ended because its engine was silent for too long
_KEEPER: Final = re.compile(r"kernels-([a-z0-9]+)-[0-9a-f]{12}(-\d)?")


class KernelMark(msgspec.Struct, frozen=True, kw_only=True):
    """`RunRequested.kernel`."""

    problem: str
    gpu_type: str
    dtype: str
    language: str
    endpoint: str
    tests: int = 0
    benchmarks: int = 0
    source: str = ""  # a commitment to the solution's text: equal for equal texts, and tells nothing of it
    isolated: bool = True  # it runs in containers; False: as the user, for code of one's own
    definition_hash: str = ""  # SHA-256 of the problem: a name alone does not tell which one was solved


class TaskFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a frame that the fold reads; the rest is for people."""

    status: str


_mark = msgspec.json.Decoder(KernelMark)
_frame = msgspec.json.Decoder(TaskFrame)


def read_mark(data: bytes) -> KernelMark | None:
    """The mark of a request; None: another version of Steno wrote other fields."""
    try:
        return _mark.decode(data)
    except msgspec.DecodeError:
        return None


def read_frame(data: bytes) -> TaskFrame | None:
    """A frame; None: the text is not one."""
    try:
        frame = _frame.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame if frame.status in STATUSES else None


def gpu_named(name: str) -> str | None:
    """The GPU in the name of a run that keeps a machine for kernels, `CPU` for none; None: it is another run's name."""
    matched = _KEEPER.fullmatch(name)
    return None if matched is None else matched[1].upper()


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


KERNELS: Final = "kernels"  # the provider whose runs are kernels
NO_GPU: Final = "CPU"  # the GPU of a kernel that needs none


def gpu_kept(run: Run) -> str | None:
    """The GPU of the machine that the run keeps, `CPU` for none; None: it keeps none."""
    return None if run.name is None or run.requested_at is None else gpu_named(run.name)


def listener_machine(run_id: str) -> str:
    """The id of the kernels' machine that this run keeps, if it keeps one."""
    return vm_id_of(KERNELS, run_id)


def is_kept(vm: Vm) -> bool:
    """True if it is a kernels' machine: a part of the machine that its listener's run is on, which alone is billed."""
    return vm.provider == KERNELS
