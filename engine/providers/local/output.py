"""What a run wrote, read while it is written."""

from collections.abc import Iterator
from pathlib import Path

from engine.providers.local.state import read_state
from events.clock import Clock

_CHUNK = 1 << 18
_PAUSE = 50_000
"""Microseconds between two looks at a file that did not grow."""


def read_output(folder: Path, *, follow: bool, clock: Clock) -> Iterator[bytes]:
    """The bytes of a run's output in order, any bytes; with `follow`, until the run has ended and all is delivered."""
    position = 0
    while True:
        # asked before the file is read: what ended before has written everything before
        state = read_state(folder)
        ended = state is None or state.ended is not None or not state.supervised
        for chunk in _from(folder / "output", position):
            position += len(chunk)
            yield chunk
        if ended or not follow:
            return
        clock.sleep(_PAUSE)


def _from(path: Path, position: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(position)
            while chunk := file.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        return  # nothing was started yet
