"""Writing polls of the record as a trace file, whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from events.clock import foreign_run_id
from events.traces.trace import write_trace_line
from events.types import RunObserved
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.store.record import Record
    from projections.store.store import RunRow

_POLLS = frozenset({"PollRecorded", "PollFailed"})


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    polls: int
    first_position: int | None
    last_position: int | None


def part_of_run(record: Record, row: RunRow) -> tuple[int, int, frozenset[str]]:
    """(first position, last position, sources) of the polls that say all there is about a run."""
    run = decode_run(row.folded)
    last = max([run.first_position, *run.evidence, *(step.position for step in run.transitions)])
    streams = {f"run/{run.run_id}"}
    if run.provider_id is not None:
        streams.add(f"run/{foreign_run_id(run.provider, run.provider_id)}")
    for stream in streams:
        for stored in record.read(stream=stream, types={"RunObserved"}, backwards=True, limit=1):
            if isinstance(stored.data, RunObserved):
                last = max(last, stored.data.poll)
    if not row.ended:
        last = max(last, run.last_position)
    return run.first_position, last, frozenset(run.started)


def export_polls(record: Record, target: str, *, after: int, until: int, sources: frozenset[str] | None) -> Exported:
    """Write the polls in `(after, until]`, of some sources or of all, to a file (`.zst` is packed) or to `-`.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    polls = 0
    first = last = None
    with _opened(target) as file:
        for stored in record.read(after=after, until=until, types=_POLLS):
            if sources is not None and stored.stream.removeprefix("source/") not in sources:
                continue
            file.write(write_trace_line(record.poll(stored.position)))
            polls += 1
            first, last = first or stored.position, stored.position
    return Exported(polls, first, last)


@contextmanager
def _named(target: str) -> Iterator[None]:
    """Gives errors of writing the name of the file, as errors of opening have it."""
    try:
        yield
    except OSError as error:
        error.filename = target
        raise


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """A file that takes its name only when all of it is written."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    part = path.with_name(path.name + ".part")
    try:
        with _named(target), part.open("wb") as file:
            if path.suffix == ".zst":
                import zstandard

                with zstandard.ZstdCompressor(level=10).stream_writer(file, closefd=False) as packed:
                    yield packed
            else:
                yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
