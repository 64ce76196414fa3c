"""Trace files: one to append to, and one to read."""

import contextlib
import errno
import mmap
from pathlib import Path

from events.poll import Poll
from events.traces.trace import TraceReading, write_trace_line


class TraceFile:
    """Appends whole polls to a `.jsonl` or `.jsonl.zst` file. One frame per poll keeps a compressed trace readable
    while it grows; a killed recorder leaves only the last frame incomplete.
    """

    def __init__(self, path: Path) -> None:
        """Open a trace to append to; cuts off an incomplete last line or frame."""
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
        """Append one poll, scrubbed as in the record."""
        line = write_trace_line(poll)
        self._file.write(line if self._pack is None else self._pack(line))
        self._file.flush()


def _cut_half_frame(path: Path) -> None:
    """Cut an incomplete last frame: nothing behind it would be readable. A file without frames stays as it is."""
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
    """`name`, if the file exists or it is `-` for standard input; else raises `FileNotFoundError`."""
    if name != "-" and not Path(name).exists():
        raise FileNotFoundError(errno.ENOENT, "the file does not exist", name)
    return name


def trace_reading() -> TraceReading:
    from engine.providers.readings import READINGS

    return TraceReading(source_of=READINGS.source, answered=READINGS.answered)
