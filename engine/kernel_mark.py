"""What the record keeps of a kernel's request beside its task: enough to tell its story, nothing of the solution."""

import hashlib
import re
import secrets
from typing import Final

import msgspec

STATUSES: Final = frozenset(
    {
        "COMPILING", "COMPILE_ERROR", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT",
        "BENCHMARKED", "WRONG_ANSWER", "RUNTIME_ERROR", "CHEATING_SUSPECTED", "ERROR",
    }
)  # fmt: skip
"""What a task can say."""

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
    key_hash: str  # SHA-256 of the key that every frame of this run carries, as hex
    seed_hash: str = ""  # SHA-256 of the seed that all inputs follow from; the last frame tells the seed
    definition_hash: str = ""  # SHA-256 of the problem: a name alone does not tell which one was solved


class TaskFrame(msgspec.Struct, frozen=True, kw_only=True):
    """What the fold reads of a frame; the rest is for people."""

    status: str
    key: str = ""


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
        found = _frame.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found.status in STATUSES else None


def is_genuine(frame: TaskFrame, key_hash: str) -> bool:
    """Whether the program we sent printed a frame, rather than the solution."""
    return secrets.compare_digest(hashed(frame.key), key_hash)


def gpu_named(name: str) -> str | None:
    """The GPU in the name of a run that keeps a machine for kernels, `CPU` for none; None: it is another run's name."""
    matched = _KEEPER.fullmatch(name)
    return None if matched is None else matched[1].upper()


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
