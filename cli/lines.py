"""Lines from pieces of bytes that end anywhere."""

from collections.abc import Iterable, Iterator


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each line without its end; the last one also if it has none."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest
