"""Files named on the command line: traces, and problems as one JSON file or a folder of files."""

import contextlib
import errno
import mmap
import stat
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from steno.events.errors import UnreadableInput
from steno.events.poll import Poll
from steno.events.traces.trace import TraceReading, write_trace_line


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
    """Cut an incomplete last frame: nothing behind it would be readable. A file without frames is not changed."""
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
    from steno.engine.providers.registry import READINGS

    return TraceReading(source_of=READINGS.source, answered=READINGS.answered)


_MEMBERS: Final = {"problem.json": 1 << 20, "reference.py": 1 << 16, "description.md": 1 << 16}
"""The most bytes of each; a definition bounds the characters."""


def problem_text(path: Path) -> str:
    """The problem in a JSON file or a folder, as the JSON text of `problem_def`. A folder may have the reference and
    the description in files of their own. Raises UnreadableInput: it is none of these, a file of it is missing, too
    large, or not text.
    """
    if not path.is_dir():
        return file_text(path, _MEMBERS["problem.json"])
    texts = {}
    for name, most in _MEMBERS.items():
        file = path / name
        if file.is_symlink():  # in a folder that came from elsewhere it could lead to a file of yours
            raise UnreadableInput(f"{path}: {name} is not a regular file")
        if file.exists():
            texts[name] = file_text(file, most, f"{path}: {name}")
    if "problem.json" not in texts:
        raise UnreadableInput(f"{path} has no problem.json")
    try:
        problem = msgspec.json.decode(texts["problem.json"], type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableInput(f"{path}: problem.json is not a JSON object: {error}") from None
    if "reference.py" in texts:
        problem["reference"] = {"python": texts["reference.py"]}
    if "description.md" in texts:
        problem["description"] = texts["description.md"]
    if "reference" not in problem:
        raise UnreadableInput(f"{path} has no reference: add reference.py, or the key `reference` to problem.json")
    return msgspec.json.encode(problem).decode()


def file_text(path: Path, most: int, where: str = "") -> str:
    """The text of a file; a message calls the file `where`, else by its path. Raises UnreadableInput: it is not a
    regular file, has more than `most` bytes or none, or is not UTF-8.
    """
    where = where or str(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableInput(f"{path} is not a regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableInput(f"{where} has more than {most} bytes, the most that are taken")
    if not data.strip():
        raise UnreadableInput(f"{where} is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{where} is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
