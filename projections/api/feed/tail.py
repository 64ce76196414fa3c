"""The record while others write it: whether there is news, and whether it is still the same record."""

import os
from pathlib import Path
from typing import Final

from engine.providers.readings import READINGS
from events.clock import Clock
from events.errors import StenoError
from events.store.record import Record

_LOOK_AGAIN: Final = 100
"""Looks for news between two looks at the file itself."""


class Replaced(StenoError):
    """The record was replaced by another while it was served: restart the server."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The record {path} was replaced while it was served: restart the server.")


class Tail:
    """An open record to be followed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.record = Record.open(path, clock=clock, shapes=READINGS.shape)
        self._path = self.record.path
        self._file = _file_of(self._path)
        self._looks = 0
        self._mark: tuple[int, str] | None = None

    def news(self, position: int) -> int:
        """Where the record ends, if that is beyond `position`; else `position`.

        Raises:
            Replaced: it is another record, or a shorter one.
            StenoError: it cannot be read.
        """
        self._looks += 1
        if self._looks % _LOOK_AGAIN == 0 and _file_of(self._path) != self._file:
            raise Replaced(self._path)
        head = self.record.head().position
        if head < position:
            raise Replaced(self._path)
        if head > position:
            self._expect_same(position)
        return head

    def mark(self, position: int) -> None:
        """Remember what the record is like at `position`."""
        self._mark = (position, self._hash(position)) if position else None

    def close(self) -> None:
        """Let go of the file."""
        self.record.close()

    def _expect_same(self, position: int) -> None:
        if self._mark is not None and self._mark[0] == position and self._hash(position) != self._mark[1]:
            raise Replaced(self._path)

    def _hash(self, position: int) -> str:
        return "".join(one.hash for one in self.record.read(after=position - 1, until=position, limit=1))


def _file_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - ten a second
    except OSError:
        return None
    return found.st_dev, found.st_ino
