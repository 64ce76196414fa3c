"""Trace files: one that a recorder appends to, and one to read."""

import contextlib
import errno
import mmap
from pathlib import Path

from events.poll import Poll
from events.traces.trace import TraceReading, write_trace_line


class TraceFile:
    """Appends polls to a `.jsonl` or `.jsonl.zst` file, each whole or not at all.

    A compressed trace has one frame per poll: larger than a single frame, but readable while it grows, and a killed
    recorder leaves only the last frame incomplete.
    """

    def __init__(self, path: Path) -> None:
        """Open a trace to append to; cut off an incomplete last line or frame."""
        self._file = path.open("ab")
        self.close = self._file.close
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
    if path.stat().st_size:
        with path.open("rb+") as file:
            with mmap.mmap(file.fileno(), 0) as whole:
                end = whole.rfind(b"\n") + 1
            file.truncate(end)


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
