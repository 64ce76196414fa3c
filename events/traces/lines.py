"""The lines of a file, packed or not."""

import stat
import sys
from collections.abc import Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Final, cast

import zstandard

from events.errors import UnreadableInput

LONGEST: Final = 64 << 20
"""Bytes of a line; the answers we hold have at most half of that."""
BLANK: Final = 1_000_000
"""Blank lines of a file: a few kB of zstd unpack to a billion of them."""
_PIECE: Final = 1 << 20
_PACKED: Final = 2 << 10
"""Bytes unpacked at a time: zstd makes up to 32,000 of one, so 64 MB of these."""


CUT: Final = b"\0"
"""Stands for what cannot be unpacked; no line of any trace."""


def numbered_lines(path: str | Path, *, lenient: bool = False) -> Iterator[tuple[int, bytes]]:
    """The lines of a `.jsonl`, a `.jsonl.zst` or standard input (`-`), numbered from 1; blank lines are left out.

    With `lenient`, a packed file that cannot be unpacked to its end gives what can be, then the line `CUT`.

    Raises:
        UnreadableInput: the file is not there or is not a regular file; a line is longer than `LONGEST`; more than
            `BLANK` lines are blank; or it is packed, cannot be unpacked, and `lenient` is not set.
    """
    number = blank = 0
    try:
        for number, line in enumerate(_lines(str(path)), 1):
            if len(line) > LONGEST:
                raise UnreadableInput(f"{path}: line {number} is longer than {LONGEST >> 20} MB; no poll is.")
            if line.strip():
                yield number, line
            elif (blank := blank + 1) > BLANK:
                raise UnreadableInput(f"{path}: more than {BLANK:,} lines up to line {number} are blank.")
    except FileNotFoundError:
        raise UnreadableInput(f"There is no file {path}.") from None
    except OSError as error:
        raise UnreadableInput(f"{path} cannot be read ({error.strerror}).") from error
    except zstandard.ZstdError as error:
        if lenient:
            yield number + 1, CUT
            return
        raise UnreadableInput(f"{path} cannot be unpacked behind line {number} ({error}): it is damaged.") from error


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        return _split(iter(partial(cast(BufferedReader, sys.stdin.buffer).read1, _PIECE), b""))
    # A pipe that nobody writes to would be waited for, and a device never ends.
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise UnreadableInput(f"{path} is not a regular file: give one, or `-` and the lines on standard input.")
    return _of_file(Path(path))


def _of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = file.read(4) == zstandard.FRAME_HEADER
        file.seek(0)
        yield from _split(_unpacked(file) if packed else iter(partial(file.read, _PIECE), b""))


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a text in pieces; a line longer than `LONGEST` is the last, and not whole."""
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line]) if begun else line
            begun, size = [], 0
        if rest:
            begun.append(rest)
            size += len(rest)
        if size > LONGEST:
            break
    if begun:
        yield b"".join(begun)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The text of one or more packed frames, one after the other.

    Raises:
        zstandard.ZstdError: a frame is broken or ends too early.
    """
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    while piece := file.read(_PACKED):
        while piece:
            if unpacker.eof:
                unpacker = zstandard.ZstdDecompressor().decompressobj()
            text = unpacker.decompress(piece)
            for start in range(0, len(text), _PIECE):
                yield text[start : start + _PIECE]
            piece = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise zstandard.ZstdError("it ends too early")
