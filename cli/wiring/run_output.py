"""A run's output as people and programs want it: lines, the last of them, without the frames of a kernel; and a thread
that prints it while a run goes on.
"""

import codecs
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

from cli.render.paint import visible_output
from engine.errors import Conflict
from engine.kernel.machine.frames import MARK
from events.clock import Clock, format_time
from events.errors import StenoError

LAST_WORDS: Final = 15.0  # seconds in which the rest of the output of an ended run may come
_FRAME: Final = MARK.encode()


class LineAbove(Protocol):
    """Where text is written above a progress line."""

    def above(self, write: Callable[[], None]) -> None: ...


def without_frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The output without its framed lines; only the first characters of a line are ever held back."""
    held, begins, drops = b"", True, False
    for piece in pieces:
        shown = []
        lines = (held + piece).split(b"\n")
        held = b""
        for number, line in enumerate(lines):
            last = number == len(lines) - 1
            if begins and last and _FRAME.startswith(line):  # it may become a frame; an empty rest too
                held = line
                continue
            if begins:
                drops = line.startswith(_FRAME)
            if not drops:
                shown.append(line if last else line + b"\n")
            begins = not last
        if shown:
            yield b"".join(shown)
    if held and not held.startswith(_FRAME):
        yield held


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, without their ends; a line of any length is copied once."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *more = piece.split(b"\n")
        begun.append(first)
        if more:
            yield b"".join(begun)
            yield from more[:-1]
            begun = [more[-1]]
    if any(begun):
        yield b"".join(begun)


def dated_lines(
    pieces: Iterable[tuple[int | None, bytes]],
    *,
    since: int | None,
    stamped: bool,
    framed: bool,
    arrival: Clock | None,
) -> Iterator[bytes]:
    """The whole lines written at `since` or later, each dated by its first piece; `stamped`: after that time and a
    space; `framed`: without frames. Undated pieces get the time of `arrival`; raises `Conflict` without that.
    """
    begun: list[bytes] = []
    first: int | None = None

    def line(text: bytes, at: int) -> Iterator[bytes]:
        if (since is None or at >= since) and not (framed and text.startswith(_FRAME)):
            yield (format_time(at).encode() + b" " if stamped else b"") + text + b"\n"

    for moment, piece in pieces:
        if moment is None and arrival is None:
            raise Conflict("this provider does not say when output was written: leave out --since and --timestamps")
        at = arrival.now() if moment is None and arrival is not None else moment or 0
        *whole, rest = piece.split(b"\n")
        for text in whole:
            yield from line(b"".join([*begun, text]), at if first is None else first)
            begun, first = [], None
        if rest:
            begun.append(rest)
            first = at if first is None else first
    if begun:
        yield from line(b"".join(begun), first or 0)


def last_lines(pieces: Iterable[bytes], count: int, known: int | None) -> Iterator[bytes]:
    """The last lines; of output that goes on, what follows the first `known - count` lines."""
    whole = (line + b"\n" for line in lines_of(pieces))
    return iter(deque(whole, count)) if known is None else islice(whole, max(0, known - count), None)


def printed(pieces: Iterable[bytes], place: LineAbove | None = None) -> None:
    """Write output to stdout: byte by byte into a file or pipe; on a terminal in whole lines, with its colours and
    nothing else that could steer it.
    """
    shown = sys.stdout.isatty()
    decoded = codecs.getincrementaldecoder("utf-8")("replace")

    def written(data: bytes) -> None:
        sys.stdout.buffer.write(visible_output(decoded.decode(data)).encode() if shown else data)
        sys.stdout.buffer.flush()

    if place is None or not shown:
        for piece in pieces:
            written(piece)
        return
    for line in lines_of(pieces):
        place.above(partial(written, line + b"\n"))


def _ended(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """With an end of its last line: the verdict follows on a line of its own."""
    last = b"\n"
    for piece in pieces:
        last = piece or last
        yield piece
    if not last.endswith(b"\n"):
        yield b"\n"


class OutputPrinter:
    """Prints the output of one attempt of a run, in a thread, until the run has ended. `logs` reads it."""

    def __init__(self, logs: Callable[[], Iterator[bytes]], place: LineAbove) -> None:
        self._logs = logs
        self._place = place
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._print, name="output", daemon=True)
        self._thread.start()

    def end(self) -> str | None:
        """Wait for the rest; why the output may be incomplete, or None. Raises what writing to stdout raised."""
        self._thread.join(LAST_WORDS)
        if isinstance(self._trouble, StenoError):
            return str(self._trouble)
        if self._trouble is not None:
            raise self._trouble
        return f"it did not end within {LAST_WORDS:.0f} s" if self._thread.is_alive() else None

    def _print(self) -> None:
        try:
            printed(_ended(self._logs()), self._place)
        except (StenoError, OSError) as error:
            self._trouble = error
