"""Marks in time in one open store, thinned where a stretch has more than can be told apart."""

from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, select

from projections.store.database import Database, insertion
from projections.store.schema import marks


class Mark(msgspec.Struct, frozen=True):
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
_BETWEEN: Final = select(marks.c.position, marks.c.at, marks.c.kind, marks.c.subject).where(
    marks.c.track == bindparam("track"), marks.c.at >= bindparam("low"), marks.c.at <= bindparam("high")
)
_NEWEST: Final = _BETWEEN.order_by(marks.c.at.desc(), marks.c.position.desc()).limit(bindparam("limit"))
_OLDEST: Final = _BETWEEN.order_by(marks.c.at).limit(bindparam("limit"))
_EIGHTHS: Final = 4
"""Bits of a stretch's length that count: from one look to the next, as time goes on, it is mostly the same."""


class MarkTable(Database):
    """The marks in one open store."""

    def add_marks(self, found: Iterable[Mark], changed: int = 0) -> None:
        """More marks."""
        for one in found:
            given = {**msgspec.structs.asdict(one), "track": _track(one.kind), "changed": changed}
            self.execute(insertion(marks), ordinal=self.next_place(), **given)

    def marks(self, most: int, since: int | None = None, until: int | None = None) -> Marks:
        """At most so many marks of a stretch of time, both ends included (microseconds, UTC); without them, of all.

        Of more, the stretch is cut into equal parts, and of every part the newest of each track are told. What this
        costs grows with `most`, not with how many there are.
        """
        low, high = _FIRST if since is None else since, _LAST if until is None else until
        rows: list[tuple[Any, ...]] = []
        for track in _TRACKS:
            rows += self._newest(track, low, high, most + 1 - len(rows))
        thinned = len(rows) > most
        if thinned:
            rows = self._thinned(most, low, high)
        in_order = sorted(rows, key=lambda row: row[0])
        return Marks(marks=tuple(starmap(Mark, in_order)), thinned=thinned)

    def _thinned(self, most: int, low: int, high: int) -> list[tuple[Any, ...]]:
        tracks = [track for track in _TRACKS if self._newest(track, low, high, 1)]
        first = min(self.first(_OLDEST, track=track, low=low, high=high, limit=1)[1] for track in tracks)
        last = max(self._newest(track, low, high, 1)[0][1] for track in tracks)
        width = _round(-(-(last - first + 1) // max(1, most // len(tracks) - 1)))
        parts = [(track, part) for track in tracks for part in self._parts(track, first, last, width)]
        each = max(1, most // len(parts))
        rows: list[tuple[Any, ...]] = []
        for track, part in parts[:most]:
            rows += self._newest(track, max(first, part * width), min(last, (part + 1) * width - 1), each)
        return rows

    def _parts(self, track: int, first: int, last: int, width: int) -> Iterator[int]:
        """The parts that have a mark of a track, the last of them first."""
        while found := self._newest(track, first, last, 1):
            part = found[0][1] // width
            yield part
            last = part * width - 1

    def _newest(self, track: int, low: int, high: int, limit: int) -> list[tuple[Any, ...]]:
        return self.execute(_NEWEST, track=track, low=low, high=high, limit=limit).fetchall()


def _track(kind: str) -> int:
    if kind.startswith("run_"):
        return _ENDS
    return _MACHINES if kind in ("vm_started", "vm_ended") else _ANOMALIES


def _round(width: int) -> int:
    """No less, and no more than an eighth more."""
    unit = 1 << max(0, width.bit_length() - _EIGHTHS)
    return -(-width // unit) * unit
