"""The append-only tables: anomalies, closed gaps, and marks in time."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import starmap
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    text,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.sqlite import insert

from steno.engine.objects import BlindObject
from steno.engine.state.changes import Anomaly
from steno.engine.wire import Position, Shape, Time
from steno.projections.read_models.database import Database
from steno.projections.read_models.schema import anomalies, blind, marks, moves, runs

_anomaly: Final = msgspec.json.Decoder(Anomaly).decode
_blind: Final = msgspec.json.Decoder(BlindObject).decode
_ANOMALIES: Final = select(anomalies.c.object).order_by(anomalies.c.ordinal)
_ANOMALIES_OF: Final = _ANOMALIES.where(anomalies.c.subject == bindparam("subject"))
_COST: Final = select(runs.c.odd).where(text("odd IS NOT NULL"))
_COSTS: Final = _COST.order_by(runs.c.ordinal)
_COST_OF: Final = _COST.where(runs.c.run_id == bindparam("id"))
_ALL: Final = union_all(
    select(anomalies.c.position, anomalies.c.ordinal, anomalies.c.object, anomalies.c.archive),
    select(
        func.json_extract(runs.c.odd, text("'$.position'")),
        runs.c.ordinal + literal_column(str(1 << 40)),
        runs.c.odd,
        runs.c.archive,
    ).where(text("odd IS NOT NULL")),
).subquery("notes")  # found by a fold, and those of a run's cost figures
_COUNT: Final = select(func.count()).select_from(_ALL).where(text("archive IS NULL"))
_KIND: Final = func.json_extract(cast(_ALL.c.object, Text), text("'$.kind'"))
_JUMPS: Final = select(func.count()).where(marks.c.kind == literal_column("'clock_jump'"))
_BLIND: Final = select(blind.c.ordinal, blind.c.object).order_by(blind.c.ordinal)
_BLIND_OF: Final = _BLIND.where(blind.c.source == bindparam("source"))


_MOVES: Final = select(*moves.c).order_by(moves.c.changed, moves.c.subject)
_MOVE: Final = insert(moves).values({name: bindparam(name) for name in moves.c.keys()}).on_conflict_do_nothing()  # noqa: SIM118


class FirstMove(msgspec.Struct, frozen=True):
    """The first of its kind: a run or machine of a provider went from one state to another."""

    kind: str  # `run` or `vm`
    provider: str
    before: str
    after: str
    position: int
    subject: str  # who: `run/<run_id>` or `vm/<vm_id>`


class NoteTable(Database):
    def add_moves(self, made: Iterable[FirstMove]) -> None:
        """Add those that are the first of their kind, oldest first."""
        self.execute_many(
            _MOVE, (dict(zip(moves.c.keys(), msgspec.structs.astuple(move), strict=True)) for move in made)
        )

    def moves(self) -> list[FirstMove]:
        """The moves that were ever made, in order of the first of each."""
        return list(starmap(FirstMove, self.execute(_MOVES)))

    def anomalies(self, subject: str | None = None) -> tuple[Anomaly, ...]:
        """All anomalies in order, or those of one subject; those of cost come last."""
        if subject is None:
            rows = (*self.execute(_ANOMALIES), *self.execute(_COSTS))
        else:
            kind, _, run_id = subject.partition("/")
            odd = self.execute(_COST_OF, id=run_id) if kind == "run" else ()
            rows = (*self.execute(_ANOMALIES_OF, subject=subject), *odd)
        return tuple(_anomaly(row[0]) for row in rows)

    def newest_anomalies(
        self,
        limit: int,
        behind: tuple[int, int] | None = None,
        *,
        hidden: Sequence[str] | None = (),
        kind: str | None = None,
    ) -> tuple[tuple[tuple[int, int], Anomaly], ...]:
        """(place, anomaly), newest first, after `behind`, without the archives in `hidden`; None: without any. Of one
        kind if given.
        """
        given: dict[str, Any] = {} if behind is None else {"position": behind[0], "ordinal": behind[1]}
        number = None if hidden is None else len(hidden)
        statement = _newest_anomalies(number, behind=behind is not None, of_kind=kind is not None)
        given |= {} if kind is None else {"kind": kind}
        rows = self.execute(statement, limit=limit, **given, **_named(hidden or ()))
        return tuple(((row[0], row[1]), _anomaly(row[2])) for row in rows)

    def anomaly_kinds(self, hidden: Sequence[str]) -> list[tuple[str, int, int, int]]:
        """(kind, how many, positions of the first and the newest), the newest first, without the archives in
        `hidden`.
        """
        return self.execute(_kinds(len(hidden)), **_named(hidden)).fetchall()

    def count_anomalies(self) -> int:
        """The number of anomalies, without archives."""
        count: int = self.first(_COUNT)[0]
        return count

    def clock_jumps(self) -> int:
        """How often a wall clock was set, as far as record time ignored it."""
        count: int = self.first(_JUMPS)[0]
        return count

    def blind(self, sources: Sequence[str] | None = None) -> tuple[BlindObject, ...]:
        """Closed gaps in order, of all or some sources."""
        if sources is None:
            rows = self.execute(_BLIND).fetchall()
        else:
            rows = sorted(row for source in sources for row in self.execute(_BLIND_OF, source=source))
        return tuple(_blind(row[1]) for row in rows)

    def newest_blind(self, limit: int, *, hidden: Sequence[str] = ()) -> tuple[BlindObject, ...]:
        """Closed gaps, last ended first, without the archives in `hidden`."""
        rows = self.execute(_newest_blind(len(hidden)), limit=limit, **_named(hidden))
        return tuple(_blind(row[0]) for row in rows)


def _named(archives: Sequence[str]) -> dict[str, str]:
    return {f"hidden_{index}": name for index, name in enumerate(archives)}


def _shown(archive: ColumnElement[Any], hidden: int) -> ColumnElement[bool]:
    if not hidden:
        return true()
    return archive.is_(None) | archive.not_in([bindparam(f"hidden_{index}") for index in range(hidden)])


@cache
def _newest_anomalies(hidden: int | None, *, behind: bool, of_kind: bool) -> Select[Any]:
    position, ordinal, _, archive = columns = tuple(_ALL.c)
    statement = select(*columns).where(archive.is_(None) if hidden is None else _shown(archive, hidden))
    if of_kind:
        statement = statement.where(bindparam("kind") == _KIND)
    if behind:
        statement = statement.where(tuple_(position, ordinal) < tuple_(bindparam("position"), bindparam("ordinal")))
    return statement.order_by(position.desc(), ordinal.desc()).limit(bindparam("limit"))


@cache
def _kinds(hidden: int) -> Select[Any]:
    newest = func.max(_ALL.c.position)
    statement = select(_KIND, func.count(), func.min(_ALL.c.position), newest).where(_shown(_ALL.c.archive, hidden))
    return statement.group_by(_KIND).order_by(newest.desc())


@cache
def _newest_blind(hidden: int) -> Select[Any]:
    statement = select(blind.c.object).where(_shown(blind.c.archive, hidden))
    return statement.order_by(blind.c.ordinal.desc()).limit(bindparam("limit"))


class Mark(Shape, frozen=True):
    """Something a person looks for in time."""

    position: Position
    at: Time
    kind: str  # `run_succeeded`, `run_failed`, `run_stopped`, `vm_started`, `vm_ended`, or an anomaly's
    subject: str  # `run/<run_id>`, `vm/<vm_id>` or `source/<source>`


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    marks: tuple[Mark, ...]  # in order of position
    thinned: bool  # there are more than these


_ODD, _ENDS, _MACHINES = range(3)
_TRACKS: Final = (_ODD, _ENDS, _MACHINES)  # each gets a third: none hides another
_FIRST: Final = -(1 << 63)
_LAST: Final = (1 << 63) - 1
_BETWEEN: Final = select(marks.c.position, marks.c.at, marks.c.kind, marks.c.subject).where(
    marks.c.track == bindparam("track"), marks.c.at >= bindparam("low"), marks.c.at <= bindparam("high")
)
_NEWEST: Final = _BETWEEN.order_by(marks.c.at.desc(), marks.c.position.desc()).limit(bindparam("limit"))
_OLDEST: Final = _BETWEEN.order_by(marks.c.at).limit(bindparam("limit"))
_EIGHTHS: Final = 4  # bits of a length that count: widths stay stable as time passes


class MarkTable(Database):
    def add_marks(self, new: Iterable[Mark], changed: int = 0) -> None:
        self.add(marks, ((*msgspec.structs.astuple(mark), _track(mark.kind)) for mark in new), changed)

    def marks(self, most: int, since: int | None = None, until: int | None = None) -> Marks:
        """At most `most` marks of a period, ends included (microseconds UTC; default: all). If there are more, the
        period is cut into equal parts, with the newest of each track per part. The cost grows with `most`, not with the
        number of marks.
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
        newest = [(track, row) for track in tracks for row in self._newest_of_parts(track, first, last, width)]
        each = most // len(newest)
        if each < 2:
            return [row for _, row in newest[:most]]
        rows: list[tuple[Any, ...]] = []
        for track, row in newest:
            part = row[1] // width
            rows += self._newest(track, max(first, part * width), row[1], each)
        return rows

    def _newest_of_parts(self, track: int, first: int, last: int, width: int) -> Iterator[tuple[Any, ...]]:
        """The newest mark of a track in each part that has one, last part first."""
        while newest := self._newest(track, first, last, 1):
            yield newest[0]
            last = newest[0][1] // width * width - 1

    def _newest(self, track: int, low: int, high: int, limit: int) -> list[tuple[Any, ...]]:
        return self.execute(_NEWEST, track=track, low=low, high=high, limit=limit).fetchall()


def _track(kind: str) -> int:
    if kind.startswith("run_"):
        return _ENDS
    return _MACHINES if kind in ("vm_started", "vm_ended") else _ODD


def _round(width: int) -> int:
    """At least `width`, at most an eighth more."""
    unit = 1 << max(0, width.bit_length() - _EIGHTHS)
    return -(-width // unit) * unit
