"""The last line that each run has printed, by its recorded output."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from steno.events.store.output_rows import unpack
from steno.events.types import OutputRecorded

if TYPE_CHECKING:
    from steno.events.store.read import Reader

_TYPES: Final = frozenset({"OutputRecorded"})
_END: Final = 4096  # bytes at the end of a chunk that are searched for a line
_LONGEST: Final = 200  # characters
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")


def last_lines(record: "Reader", run_ids: Iterable[str], until: int) -> dict[str, str]:
    """run id → the last line that is not blank, of runs with output recorded up to a position."""
    lines = ((run_id, _last_line(record, run_id, until)) for run_id in run_ids)
    return {run_id: line for run_id, line in lines if line}


def _last_line(record: "Reader", run_id: str, until: int) -> str | None:
    stored = next(record.read(stream=f"run/{run_id}", types=_TYPES, until=until, backwards=True, limit=1), None)
    if stored is None or not isinstance(stored.data, OutputRecorded):
        return None
    packed = record.packed_output(stored.position)
    return None if packed is None else text_of(unpack(packed, stored.data)[-_END:])


def text_of(data: bytes) -> str | None:
    """The last line of some output as a terminal shows it, without colours; None: all lines are blank."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    for line in reversed(text.split("\n")):
        parts = (_ESCAPES.sub("", part).strip() for part in reversed(line.split("\r")))  # the last one overwrites
        if last := next(filter(None, parts), None):
            return last[:_LONGEST]
    return None
