"""Marks in time in one open projections file, thinned where a stretch has more than can be told apart."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person looks for in time."""

    position: int
    at: int
    """Microseconds, UTC."""
    kind: str
    """`run_succeeded`, `run_failed`, `run_stopped`, `vm_started`, `vm_ended`, or the kind of an anomaly."""
    subject: str
    """`run/<run_id>`, `vm/<vm_id>` or `source/<source>`."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Those of one stretch of time."""

    marks: tuple[Mark, ...]
    """In order of position."""
    thinned: bool
    """There are more than these."""


_ANOMALIES, _ENDS, _MACHINES = range(3)
_TRACKS: Final = (_ANOMALIES, _ENDS, _MACHINES)
"""A third of what may be told is kept for each: no end of a run hides an anomaly, no machine hides either."""
_FIRST: Final = -(1 << 63)
_LAST: Final = (1 << 63) - 1
_NEWEST: Final = (
    "SELECT position, at, kind, subject FROM marks WHERE track = ? AND at >= ? AND at <= ? "
    "ORDER BY at DESC, position DESC LIMIT ?"
)
_OLDEST: Final = "SELECT at FROM marks WHERE track = ? AND at >= ? AND at <= ? ORDER BY at LIMIT 1"
_EIGHTHS: Final = 4
"""Bits of a stretch's length that count: from one look to the next, as time goes on, it is mostly the same."""


class MarkTable:
    """The marks in one open projections file."""

    _database: sqlite3.Connection
    note_ordinal = "NULL"

    def add_marks(self, marks: Iterable[Mark], changed: int = 0) -> None:
        """More marks."""
        place = self.note_ordinal.format("marks")
        self._database.executemany(
            f"INSERT INTO main.marks VALUES ({place}, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - names of ours
            ((changed, *msgspec.structs.astuple(mark), _track(mark.kind)) for mark in marks),
        )

    def marks(self, most: int, since: int | None = None, until: int | None = None) -> Marks:
        """At most so many marks of a stretch of time, both ends included (microseconds, UTC); without them, of all.

        Of more, the stretch is cut into equal parts, and of every part the newest of each track are told. What this
        costs grows with `most`, not with how many there are.
        """
        low, high = _FIRST if since is None else since, _LAST if until is None else until
        rows: list[tuple[Any, ...]] = []
        for track in _TRACKS:
            rows += self._database.execute(_NEWEST, (track, low, high, most + 1 - len(rows)))
        thinned = len(rows) > most
        if thinned:
            rows = self._thinned(most, low, high)
        return Marks(
            marks=tuple(
                Mark(position=row[0], at=row[1], kind=row[2], subject=row[3])
                for row in sorted(rows, key=lambda row: row[0])
            ),
            thinned=thinned,
        )

    def _thinned(self, most: int, low: int, high: int) -> list[tuple[Any, ...]]:
        ends = [found for track in _TRACKS if (found := self._ends(track, low, high)) is not None]
        first, last = min(one[0] for one in ends), max(one[1] for one in ends)
        width = _round(-(-(last - first + 1) // max(1, most // len(ends) - 1)))
        parts = [(track, part) for track in _TRACKS for part in self._parts(track, first, last, width)]
        each = max(1, most // len(parts))
        rows: list[tuple[Any, ...]] = []
        for track, part in parts[:most]:
            within = (max(first, part * width), min(last, (part + 1) * width - 1))
            rows += self._database.execute(_NEWEST, (track, *within, each))
        return rows

    def _ends(self, track: int, low: int, high: int) -> tuple[int, int] | None:
        """When the first and the last mark of a track are; None: it has none."""
        first = self._database.execute(_OLDEST, (track, low, high)).fetchone()
        last = self._database.execute(_NEWEST, (track, low, high, 1)).fetchone()
        return None if first is None else (first[0], last[1])

    def _parts(self, track: int, first: int, last: int, width: int) -> Iterator[int]:
        """The parts that have a mark of a track, the last of them first."""
        while (row := self._database.execute(_NEWEST, (track, first, last, 1)).fetchone()) is not None:
            part = row[1] // width
            yield part
            last = part * width - 1


def _track(kind: str) -> int:
    if kind.startswith("run_"):
        return _ENDS
    return _MACHINES if kind in ("vm_started", "vm_ended") else _ANOMALIES


def _round(width: int) -> int:
    """No less, and no more than an eighth more."""
    unit = 1 << max(0, width.bit_length() - _EIGHTHS)
    return -(-width // unit) * unit
