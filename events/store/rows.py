"""The rows of `events`, in order, a page at a time."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Executable, Select, and_, bindparam, false, func, literal_column, or_, select

from steno.events.codec import CODES
from steno.events.errors import RecordDamaged
from steno.events.store.chain import mark
from steno.events.store.schema import events, head, parts, streams
from steno.events.store.store import Session
from steno.events.types import PollRecorded

LAST: Final = (1 << 63) - 1
_CHUNK: Final = 2000
_FIRST_CHUNK: Final = 32  # most readers who name no limit look at a few rows; each page is four times the one before
_SCANNED: Final = 500  # rows held at a time: too few to start Python's garbage collector
_AHEAD: Final = 1_000  # rows of a `Lookup` read at once
_KEPT: Final = 200_000
_SCAN_COLUMNS: Final = ("position", "kind", "stream_id", "observed_at", "took", "scope_id", "body_id", "clock")

_C = events.c
_WHOLE: Final = select(
    _C.position, streams.c.name, _C.version, _C.kind, _C.event_id, _C.observed_at, _C.took, _C.recorded_after,
    _C.scope_id, _C.body_id, _C.data, _C.hash, _C.clock,
).join(streams)  # fmt: skip
_AT: Final = _C.position == bindparam("at")
_ONE: Final = _WHOLE.where(_AT)
_RAW: Final = select(events).where(_AT)
_BY_ID: Final = select(_C.position).where(_C.event_id == bindparam("id"))
_STREAM: Final = select(streams.c.name).where(streams.c.id == bindparam("stream"))
_NAMED: Final = select(streams.c.id, streams.c.version).where(streams.c.name == bindparam("stream"))
_SPAN: Final = (_C.position > bindparam("after"), _C.position <= bindparam("until"))
_POLLED: Final = (
    select(_C.stream_id, func.count(), func.min(_C.observed_at), func.max(_C.observed_at))
    .where(_C.kind < literal_column("3"), *_SPAN)
    .group_by(_C.stream_id)
)
_COMMITMENTS: Final = select(parts.c.id, parts.c.commitment).where(
    parts.c.id >= bindparam("first"), parts.c.id < bindparam("past")
)
_NAMES: Final = select(streams.c.id, streams.c.name).where(
    streams.c.id >= bindparam("first"), streams.c.id < bindparam("past")
)
_BEHIND: Final = select(events).where(*_SPAN).order_by(_C.position).limit(bindparam("most"))
HEAD: Final = select(head.c.position, head.c.hash)
_LAST: Final = select(_C.position, _C.hash).order_by(_C.position.desc()).limit(literal_column("1"))


@lru_cache(maxsize=256)
def _page(kinds: tuple[int, ...] | None, *, by_kind: bool, source: bool | None, backwards: bool) -> Select[Any]:
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
def _scan(polls_of: tuple[int, ...] | None) -> Select[Any]:
    """All events but observations, since polls have what these say; polls of these streams only; None: of all."""
    polls = _C.kind < literal_column("3")
    if polls_of is not None:
        polls = and_(polls, _C.stream_id.op("IN")(literal_column(f"({', '.join(map(str, polls_of)) or 'NULL'})")))
    query = select(*(_C[name] for name in _SCAN_COLUMNS)).where(*_SPAN, or_(polls, _C.kind > literal_column("5")))
    return query.order_by(_C.position).limit(literal_column(str(_SCANNED)))


class Rows:
    """The rows of `events` of one record, through one session. Whole rows have the columns of `events`, the stream by
    its name; raw rows by its id.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def raw(self, position: int) -> Sequence[Any] | None:
        """The row at a position; None: there is none."""
        return self._at(_RAW, position)

    def whole(self, position: int) -> Sequence[Any] | None:
        """The row at a position, its stream by name; None: there is none."""
        return self._at(_ONE, position)

    def behind(self, after: int, until: int, most: int = _CHUNK) -> Iterator[Sequence[Sequence[Any]]]:
        """Raw rows with after < position ≤ until in order, a page at a time."""
        while after < until and (rows := self.run(_BEHIND, after, until, most)):
            yield rows
            if len(rows) < most:
                return
            after = rows[-1][0]

    def scan(self, after: int, until: int, polls_of: tuple[int, ...] | None = None) -> Iterator[Sequence[Any]]:
        """Rows without observations, of the columns of `_SCAN_COLUMNS`, some at a time; polls of these streams only."""
        while after < until and (rows := self.run(_scan(polls_of), after, until)):
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
        named = () if stream is None else self.find_stream(stream)
        if named is None or kinds == ():
            return
        source = None if stream is None else stream.startswith("source/")
        by_kind = kinds is not None and CODES[PollRecorded] not in kinds and source is not False
        each = [(kind,) for kind in kinds or ()] if by_kind else [kinds]
        queries = [_page(some, by_kind=by_kind, source=source, backwards=backwards) for some in each]
        chunk = _FIRST_CHUNK
        while most > 0 and low < high:
            size = min(_SCANNED if by_kind else chunk, most)
            chunk = min(4 * chunk, _CHUNK)
            pages = [self.run(query, low, high, *named[:1], size) for query in queries]
            rows = pages[0]
            if by_kind:
                positions = islice(merge(*pages, key=itemgetter(0), reverse=backwards), size)
                rows = [row for (position,) in positions if (row := self.whole(position)) is not None]
            yield rows
            most -= len(rows)
            if len(rows) < size:
                return
            low, high = (low, rows[-1][0] - 1) if backwards else (rows[-1][0], high)

    def position_of(self, event_id: bytes) -> int | None:
        """The position of the event of that id."""
        rows = self.run(_BY_ID, event_id)
        return int(rows[0][0]) if rows else None

    def polled(self, until: int) -> list[tuple[str, int, int, int]]:
        """(stream, polls, first and last `observed_at`) of every source polled up to `until`."""
        return [(self.stream_name(stream), *rest) for stream, *rest in self.run(_POLLED, 0, until)]

    def find_stream(self, name: str) -> Sequence[Any] | None:
        """Id and version of a stream."""
        return next(iter(self.run(_NAMED, name)), None)

    def stream_name(self, stream_id: int) -> str:
        rows = self.run(_STREAM, stream_id)
        if not rows:
            raise RecordDamaged(f"Stream {stream_id} is missing from the record: run `steno verify`.")
        return str(rows[0][0])

    def _at(self, query: Executable, position: int) -> Sequence[Any] | None:
        return next(iter(self.run(query, position)), None) if 0 < position <= LAST else None

    def run(self, statement: Executable, *given: object) -> list[Any]:
        """All rows of a statement."""
        with self._session.guard():
            rows: list[Any] = self._session.run(statement, *given).fetchall()
        return rows


def expect_head(session: Session, where: object) -> None:
    """Raise RecordDamaged unless the head names the newest event."""
    with session.snapshot():  # another process may append between the two questions
        ends = session.run(HEAD).fetchone()
        last = session.run(_LAST).fetchone() or (0, session.identity.genesis())
    if ends is None or ends[0] != last[0] or mark(*ends) != last[1]:
        raise RecordDamaged(f"The newest events of the record {where} are missing or changed: run `steno verify`.")


class Lookup(dict[int, Any]):
    """Values by id, each read with those behind it. KeyError: there is none."""

    def __init__(self, session: Session, query: Select[Any]) -> None:
        super().__init__()
        self._session = session
        self._query = query

    @classmethod
    def commitments(cls, session: Session) -> "Lookup":
        return cls(session, _COMMITMENTS)

    @classmethod
    def names(cls, session: Session) -> "Lookup":
        return cls(session, _NAMES)

    def __missing__(self, key: int) -> Any:
        if len(self) > _KEPT:
            self.clear()
        with self._session.guard():
            rows = dict(self._session.run(self._query, key, key + _AHEAD).fetchall())
        self.update(rows)
        return rows[key]
