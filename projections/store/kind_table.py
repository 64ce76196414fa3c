"""Where the record's events of each kind are: a rare one is found without a look at all others."""

import sqlite3
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Final

_IN_ORDER: Final = (
    "SELECT position FROM kinds WHERE kind = ? AND position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_BACKWARDS: Final = _IN_ORDER.replace("ORDER BY position", "ORDER BY position DESC")


class KindTable:
    """The positions in one open projections file, of all kinds but answered polls."""

    _database: sqlite3.Connection

    def add_kinds(self, rows: Iterable[tuple[int, int]]) -> None:
        """More positions, each (kind, position)."""
        self._database.executemany("INSERT INTO main.kinds VALUES (?, ?)", rows)

    def positions(
        self, kinds: Sequence[int], *, after: int, until: int, limit: int, backwards: bool = False
    ) -> tuple[int, ...]:
        """Where events of some kinds are, in order or backwards: after < position ≤ until."""
        query = _BACKWARDS if backwards else _IN_ORDER
        found = [[row[0] for row in self._database.execute(query, (kind, after, until, limit))] for kind in kinds]
        return tuple(islice(merge(*found, reverse=backwards), limit))
