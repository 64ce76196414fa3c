"""Trace files: one that a recorder appends to, and one to read."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO

from events.poll import Poll
from events.traces.trace import TraceReading, write_trace_line


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
