"""Trace files: a recorder's, poll by poll; an export of the record, whole or not at all; reading one."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from events.clock import foreign_run_id
from events.poll import Poll
from events.traces.trace import TraceReading, write_trace_line
from events.types import RunObserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.store.record import Record
    from projections.store.store import RunRow


class TraceFile:
    """Appends polls to a `.jsonl` or `.jsonl.zst` file, each whole or not at all.

    A compressed trace has one frame per poll: larger than a single frame, but readable while it grows, and a killed
    recorder leaves only the last frame incomplete.
    """

    def __init__(self, path: Path) -> None:
        """Open a trace to append to; cut off an incomplete last line or frame.

        Raises:
            OSError: the file cannot be written.
        """
        self._file: BinaryIO = path.open("ab")
        self._pack = None
        if path.suffix == ".zst":
            import zstandard

            self._pack = zstandard.ZstdCompressor(level=6).compress
            _cut_half_frame(path)
        else:
            _cut_half_line(path)

    def write(self, poll: Poll) -> None:
        """Append one poll, scrubbed as it stands in the record."""
        line = write_trace_line(poll)
        self._file.write(line if self._pack is None else self._pack(line))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut_half_frame(path: Path) -> None:
    """Cut an incomplete last frame, since nothing after it could be read; a file without frames stays as it is."""
    import zstandard

    whole = read = 0
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    with path.open("rb+") as file, contextlib.suppress(zstandard.ZstdError):
        while piece := file.read(65536):
            read += len(piece)
            while piece:
                unpacker.decompress(piece)
                piece = unpacker.unused_data if unpacker.eof else b""
                if unpacker.eof:
                    whole = read - len(piece)
                    unpacker = zstandard.ZstdDecompressor().decompressobj()
        if whole < read:
            file.truncate(whole)


def _cut_half_line(path: Path) -> None:
    """Cut an incomplete last line; its poll is in the record."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                if start + found + 1 < size:
                    file.truncate(start + found + 1)
                return
            position = start
        file.truncate(0)


_POLLS = frozenset({"PollRecorded", "PollFailed"})


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    polls: int
    first_position: int | None
    last_position: int | None


def part_of_run(record: Record, row: RunRow) -> tuple[int, int, frozenset[str]]:
    """(first position, last position, sources) of the polls about a run."""
    from projections.store.world_table import decode_run  # loads SQLAlchemy, which `replay TRACE` does without

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
    """Write the polls in `(after, until]`, of some sources or of all, to a file (`.zst` is compressed) or to `-`.

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
    """Adds the file name to write errors."""
    try:
        yield
    except OSError as error:
        error.filename = target
        raise


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete."""
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


def existing(name: str) -> str:
    """The name of a file that is there, or `-` for standard input.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    if name != "-" and not Path(name).exists():
        raise FileNotFoundError(errno.ENOENT, "the file does not exist", name)
    return name


def trace_reading() -> TraceReading:
    """What the engine knows about the lines of a trace."""
    from engine.providers.readings import READINGS

    return TraceReading(source_of=READINGS.source, answered=READINGS.answered)
