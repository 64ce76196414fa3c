"""The rows of `events`, in order, from the database and from sealed files: readers do not see where they are.

Rows leave the database after their range was noted in `sealed`. A statement for rows behind the sealed ranges asks
for the end of these too, and finds nothing if it moved: then they are read again, and the rest comes from files.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, bindparam, false, func, literal_column, or_, select, union_all

from events.codec import CODES, POLLS
from events.errors import RecordDamaged
from events.store.ranges import END, POSITION_OF
from events.store.schema import events, streams
from events.store.sealed.reader import SealedRows
from events.types import PollRecorded

if TYPE_CHECKING:
    from sqlalchemy import Executable, Select

    from events.store.store import Session

LAST: Final = (1 << 63) - 1
_CHUNK: Final = 2000
_FIRST_CHUNK: Final = 32  # most readers who name no limit look at a few rows; each page is four times the one before
_SCANNED: Final = 500  # rows held at a time: too few to start Python's garbage collector
_NAMES_KEPT: Final = 10_000
_UNSCANNED: Final = (3, 4, 5)  # observations: polls have it all
_SCAN_COLUMNS: Final = ("position", "kind", "stream_id", "observed_at", "took", "scope_id", "body_id")

_C = events.c
_WHOLE: Final = select(
    _C.position, streams.c.name, _C.version, _C.kind, _C.event_id, _C.observed_at, _C.took, _C.recorded_after,
    _C.scope_id, _C.body_id, _C.data, _C.hash,
).join(streams)  # fmt: skip
_AT: Final = _C.position == bindparam("at")
_ONE: Final = _WHOLE.where(_AT)
_RAW: Final = select(events).where(_AT)
_BY_ID: Final = select(_C.position).where(_C.event_id == bindparam("id"))
_BY_ID_ANYWHERE: Final = union_all(_BY_ID, POSITION_OF)
_STREAM: Final = select(streams.c.name).where(streams.c.id == bindparam("stream"))
_NAMED: Final = select(streams.c.id, streams.c.version).where(streams.c.name == bindparam("stream"))
_SPAN: Final = (_C.position > bindparam("after"), _C.position <= bindparam("until"))
_POLLED: Final = (
    select(_C.stream_id, func.count(), func.min(_C.observed_at), func.max(_C.observed_at))
    .where(_C.kind < literal_column("3"), *_SPAN)
    .group_by(_C.stream_id)
)
_BEHIND: Final = select(events).where(*_SPAN).order_by(_C.position).limit(bindparam("most"))
_UNMOVED: Final = bindparam("sealed_end") >= END


@lru_cache(maxsize=256)
def _page(kinds: tuple[int, ...] | None, *, by_kind: bool, source: bool | None, backwards: bool) -> "Select[Any]":
    """Events of a span in order, of some kinds and of one stream: a source's or another. The conditions repeat those of
    the indexes, so that SQLite uses them: on kinds (`by_kind`: positions only), and on streams without polls.
    """
    query = select(_C.position).where(_C.kind > literal_column("1"), *_SPAN) if by_kind else _WHOLE.where(*_SPAN)
    if source is not None:
        query = query.where(_C.stream_id == bindparam("stream"))
    if source is False:
        query = query.where(_C.kind > literal_column("2"))
    if kinds is not None:
        query = query.where(or_(false(), *(_C.kind == literal_column(str(kind)) for kind in kinds)))
    return query.order_by(_C.position.desc() if backwards else _C.position).limit(bindparam("most"))


@lru_cache(maxsize=16)
def _scan(polls_of: tuple[int, ...] | None) -> "Select[Any]":
    """All events but observations, polls of these streams only; None: of all."""
    polls = _C.kind < literal_column("3")
    if polls_of is not None:
        polls = and_(polls, _C.stream_id.op("IN")(literal_column(f"({', '.join(map(str, polls_of)) or 'NULL'})")))
    query = select(*(_C[name] for name in _SCAN_COLUMNS)).where(*_SPAN, or_(polls, _C.kind > literal_column("5")))
    return query.order_by(_C.position).limit(literal_column(str(_SCANNED)))


@lru_cache(maxsize=512)
def _guarded(query: "Select[Any]") -> "Select[Any]":
    return query.where(_UNMOVED)


class Rows:
    """The rows of `events` of one record, through one session. Whole rows have the columns of `events`, the stream by
    its name; raw ones by its id.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._names: dict[int, str] = {}
        self._files: SealedRows | None = None

    @property
    def sealed(self) -> SealedRows:
        """The ranges in files."""
        if self._files is None:
            self._files = SealedRows(self._session)
        return self._files

    def raw(self, position: int) -> Sequence[Any] | None:
        """The row at a position; None: there is none."""
        return self._at(_RAW, position)

    def whole(self, position: int) -> Sequence[Any] | None:
        """The row at a position, its stream by name; None: there is none."""
        return self._at(_ONE, position, named=True)

    def behind(self, after: int, until: int, most: int = _CHUNK) -> Iterator[Sequence[Sequence[Any]]]:
        """Raw rows with after < position ≤ until in order, a page at a time."""
        while after < until:
            if after < self.sealed.end:
                end = min(until, self.sealed.end)
                yield from self.sealed.rows(after, end, page=most)
                after = end
                continue
            rows = self._above(_BEHIND, after, until, last=(most,))
            if rows is None:
                continue
            if rows:
                yield rows
            if len(rows) < most:
                return
            after = rows[-1][0]

    def scan(self, after: int, until: int, polls_of: tuple[int, ...] | None = None) -> Iterator[Sequence[Any]]:
        """Rows without observations, of the columns of `_SCAN_COLUMNS`, some at a time; polls of these streams only."""
        while after < until:
            if after < self.sealed.end:
                end = min(until, self.sealed.end)
                yield from self.sealed.rows(
                    after, end, kinds=_UNSCANNED, other=True, polls_of=polls_of, columns=_SCAN_COLUMNS
                )
                after = end
                continue
            rows = self._above(_scan(polls_of), after, until)
            if rows is None:
                continue
            if not rows:
                return
            after, more = rows[-1][0], len(rows) == _SCANNED
            yield rows
            if not more:
                return
            del rows  # before the next are read: twice as many would start the collector

    def pages(
        self, low: int, high: int, *, kinds: tuple[int, ...] | None, stream: str | None, backwards: bool, most: int
    ) -> Iterator[Sequence[Sequence[Any]]]:
        """Whole rows with low < position ≤ high, of some kinds and of one stream if given, in order or backwards, not
        more than `most`.
        """
        found = () if stream is None else self.find_stream(stream)
        if found is None or kinds == ():
            return
        source = None if stream is None else stream.startswith("source/")
        given = tuple(found[:1])
        by_kind = kinds is not None and CODES[PollRecorded] not in kinds and source is not False
        chunk = _FIRST_CHUNK
        while most > 0 and low < high:
            end = self.sealed.end
            size = min(_SCANNED if by_kind else chunk, most)
            chunk = min(4 * chunk, _CHUNK)
            if high <= end if backwards else low < end:
                for page in self._sealed(low, min(high, end), kinds, given, source=source, backwards=backwards):
                    yield page[:most]
                    most -= len(page)
                    if most <= 0:
                        return
                low, high = (high, high) if backwards else (end, high)
                continue
            floor = max(low, end)
            rows = self._database_page(floor, high, kinds, given, source, size, by_kind=by_kind, backwards=backwards)
            if rows is None:
                continue
            yield rows
            most -= len(rows)
            short = len(rows) < size
            if backwards:
                high = floor if short else rows[-1][0] - 1
            else:
                low = high if short else rows[-1][0]

    def position_of(self, event_id: bytes) -> int | None:
        """The position of the event of that id."""
        rows = self._run(_BY_ID_ANYWHERE, event_id, event_id) if self.sealed.supported else self._run(_BY_ID, event_id)
        return int(rows[0][0]) if rows else None

    def polled(self, until: int) -> list[tuple[str, int, int, int]]:
        """(stream, polls, first and last `observed_at`) of every source polled up to `until`."""
        found: dict[int, tuple[int, int, int]] = {}
        rows = None
        while rows is None:
            rows = self._above(_POLLED, self.sealed.end, until)
        sealed = self.sealed.rows(
            0, min(until, self.sealed.end), kinds=tuple(sorted(POLLS)), columns=("stream_id", "observed_at")
        )
        for stream, count, first, last in chain(rows, ((one, 1, at, at) for page in sealed for one, at in page)):
            polls_so_far, begun, ended = found.get(stream, (0, first, last))
            found[stream] = polls_so_far + count, min(begun, first), max(ended, last)
        return [(self.stream_name(stream), *one) for stream, one in found.items()]

    def find_stream(self, name: str) -> Sequence[Any] | None:
        """Id and version of a stream."""
        return next(iter(self._run(_NAMED, name)), None)

    def stream_name(self, stream_id: int) -> str:
        rows = self._run(_STREAM, stream_id)
        if not rows:
            raise RecordDamaged(f"Stream {stream_id} is missing from the record: run `steno verify`.")
        return str(rows[0][0])

    def _at(self, query: "Executable", position: int, *, named: bool = False) -> Sequence[Any] | None:
        if not 0 < position <= LAST:
            return None
        if position > self.sealed.end:
            rows = self._run(query, position)
            if rows or not self.sealed.refresh() or position > self.sealed.end:
                return rows[0] if rows else None
        row = self.sealed.one(position)
        return self._named(row) if named else row

    def _sealed(
        self, low: int, high: int, kinds: Sequence[int] | None, given: tuple[int, ...], *, source: bool | None,
        backwards: bool,
    ) -> Iterator[Sequence[Sequence[Any]]]:  # fmt: skip
        if source is False:
            found = self.sealed.rows_of(given[0], low, high, kinds=kinds, backwards=backwards)
        else:
            found = self.sealed.rows(low, high, kinds=kinds, stream=given[0] if given else None, backwards=backwards)
        for rows in found:
            yield [self._named(row) for row in rows]

    def _database_page(
        self, low: int, high: int, kinds: tuple[int, ...] | None, given: tuple[int, ...], source: bool | None,
        size: int, *, by_kind: bool, backwards: bool,
    ) -> Sequence[Sequence[Any]] | None:  # fmt: skip
        each = [(kind,) for kind in kinds or ()] if by_kind else [kinds]
        found = []
        for one in each:
            query = _page(one, by_kind=by_kind, source=source, backwards=backwards)
            rows = self._above(query, low, high, *given, last=(size,))
            if rows is None:
                return None
            found.append(rows)
        if not by_kind:
            return found[0]
        positions = islice(merge(*found, key=itemgetter(0), reverse=backwards), size)
        return [row for (position,) in positions if (row := self.whole(position)) is not None]

    def _above(self, query: "Select[Any]", *given: object, last: tuple[int, ...] = ()) -> list[Any] | None:
        """Rows that are not sealed; None: more are sealed than we knew, and they may have left the database."""
        if not self.sealed.supported:
            rows = self._run(query, *given, *last)
            return None if self.sealed.refresh() else rows
        rows = self._run(_guarded(query), *given, self.sealed.end, *last)
        return None if not rows and self.sealed.refresh() else rows

    def _named(self, row: Sequence[Any]) -> tuple[Any, ...]:
        name = self._names.get(row[1])
        if name is None:
            if len(self._names) > _NAMES_KEPT:
                self._names.clear()
            name = self._names[row[1]] = self.stream_name(row[1])
        return row[0], name, *row[2:]

    def _run(self, statement: "Executable", *given: object) -> list[Any]:
        with self._session.guard():
            rows: list[Any] = self._session.run(statement, *given).fetchall()
        return rows
