"""The record while others write it: whether there is news, and whether it is still the same record."""

from typing import Final

from engine.providers.readings import READINGS
from events.clock import Clock
from events.errors import StenoError
from events.store.record import Record
from events.store.store import Store, Where

_LOOK_AGAIN: Final = 100
"""Looks for news between two looks at the store itself."""


class Replaced(StenoError):
    """The record was replaced by another while it was served: restart the server."""

    def __init__(self, store: Store) -> None:
        super().__init__(f"The record {store} was replaced while it was served: restart the server.")


class Tail:
    """An open record to be followed."""

    def __init__(self, where: Where, clock: Clock) -> None:
        self.record = Record.open(where, clock=clock, shapes=READINGS.shape)
        self._store = self.record.store
        self._stamp = self._store.stamp()
        self._looks = 0
        self._mark: tuple[int, str] | None = None

    def news(self, position: int) -> int:
        """Where the record ends, if that is beyond `position`; else `position`.

        Raises:
            Replaced: it is another record, or a shorter one.
            StenoError: it cannot be read.
        """
        self._looks += 1
        if self._looks % _LOOK_AGAIN == 0 and self._store.stamp() != self._stamp:
            raise Replaced(self._store)
        head = self.record.head().position
        if head < position:
            raise Replaced(self._store)
        if head > position:
            self._expect_same(position)
        return head

    def mark(self, position: int) -> None:
        """Remember what the record is like at `position`."""
        self._mark = (position, self._hash(position)) if position else None

    def close(self) -> None:
        """Close the record."""
        self.record.close()

    def _expect_same(self, position: int) -> None:
        if self._mark is not None and self._mark[0] == position and self._hash(position) != self._mark[1]:
            raise Replaced(self._store)

    def _hash(self, position: int) -> str:
        return "".join(one.hash for one in self.record.read(after=position - 1, until=position, limit=1))
