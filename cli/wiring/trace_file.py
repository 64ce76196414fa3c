"""The trace a recorder writes beside the record."""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from events.poll import Poll
from events.traces.trace import write_trace_line


class TraceFile:
    """Appends polls to a `.jsonl` or `.jsonl.zst` file, each whole or not at all.

    A packed trace has one frame a poll: larger than one frame for all, but a reader can use it while it grows, and a
    killed recorder leaves no frame open but the last.
    """

    def __init__(self, path: Path) -> None:
        """A trace to be appended to; half a line or frame that a killed recorder left is cut off.

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
    """Cut a last frame without an end: nothing behind it could be unpacked. What is no frame at all stays."""
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
    """Cut a last line without an end: its poll is in the record all the same."""
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
