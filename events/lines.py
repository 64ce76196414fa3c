"""The lines of a file, packed or not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import zstandard

from events.errors import UnreadableInput

_PIECE: Final = 1 << 20


CUT: Final = b"\0"
"""Stands for what cannot be unpacked; no line of any trace."""


def numbered_lines(path: str | Path, *, lenient: bool = False) -> Iterator[tuple[int, bytes]]:
    """The lines of a `.jsonl`, a `.jsonl.zst` or standard input (`-`), numbered from 1; blank lines are left out.

    With `lenient`, a packed file that cannot be unpacked to its end gives what can be, then the line `CUT`.

    Raises:
        UnreadableInput: the file is not there, or is packed, cannot be unpacked, and `lenient` is not set.
    """
    number = 0
    try:
        for number, line in enumerate(_lines(str(path)), 1):
            if line.strip():
                yield number, line
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
        yield from sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        packed = file.read(4) == zstandard.FRAME_HEADER
        file.seek(0)
        yield from _unpacked(file) if packed else file


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of one or more packed frames, one after the other.

    Raises:
        zstandard.ZstdError: a frame is broken or ends too early.
    """
    rest = b""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    while piece := file.read(_PIECE):
        while piece:
            if unpacker.eof:
                unpacker = zstandard.ZstdDecompressor().decompressobj()
            *lines, rest = (rest + unpacker.decompress(piece)).split(b"\n")
            yield from lines
            piece = unpacker.unused_data if unpacker.eof else b""
    if not unpacker.eof:
        raise zstandard.ZstdError("it ends too early")
    if rest:
        yield rest
