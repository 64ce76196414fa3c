"""Reads a record: events in order, polls rebuilt, the fold's narrow cursor. Nothing here writes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from sqlalchemy import func, literal_column, select

from events.codec import decode
from events.errors import PositionNotFound, RecordDamaged
from events.kinds import KINDS, POLL_FAILED, POLL_RECORDED, POLLS, type_of
from events.poll import Poll
from events.shape.answer import OPAQUE, Listing, bare_text, body_text, item_text, read_children, read_listing
from events.shape.cut import HOLE
from events.shape.values import read_number
from events.store.chain import Head
from events.store.parts import Parts
from events.store.question import Own, Scope, decode_data, read_scope
from events.store.schema import as_stored, driver, events, head, streams
from events.types import Event, PollFailed, PollRecorded, ProviderEventSeen, RunObserved, VmObserved

if TYPE_CHECKING:
    from sqlalchemy import Select, UnaryExpression

    from events.store.store import Session

Row: TypeAlias = tuple[int, int, int, int, int, int | None, int | None]
"""position, kind, stream, observed_at, took, scope part, listing part: integers alone, half the cost of whole rows."""

Columns: TypeAlias = tuple[Any, ...]
"""A row as the database gives it."""

_CHUNK: Final = 2000
_SCANNED: Final = 500
"""Rows a scan holds at a time: fewer than make Python look for garbage."""
_T = TypeVar("_T")
_OBSERVED: Final[dict[int, type[RunObserved | VmObserved | ProviderEventSeen]]] = {
    3: RunObserved,
    4: VmObserved,
    5: ProviderEventSeen,
}
_ROW: Final = [
    as_stored(column)
    for column in (
        events.c.position, streams.c.name, events.c.version, events.c.kind, events.c.event_id, events.c.observed_at,
        events.c.took, events.c.recorded_after, events.c.scope_id, events.c.body_id, events.c.data, events.c.hash,
    )
]  # fmt: skip
"""The columns of `_Event`."""

# These run once an event of a fold or poll of an import, so they go past SQLAlchemy (`driver`).
_SCAN: Final = (
    "SELECT position, kind, stream_id, observed_at, took, scope_id, body_id FROM events "
    "WHERE position > ? AND position <= ? AND (kind < 3 OR kind > 5) ORDER BY position LIMIT ?"
)
_ONE: Final = (
    "SELECT e.position, s.name, e.version, e.kind, e.event_id, e.observed_at, e.took, e.recorded_after, "
    "e.scope_id, e.body_id, e.data, e.hash FROM events e JOIN streams s ON s.id = e.stream_id WHERE e.position = ?"
)
_DATA: Final = "SELECT kind, data FROM events WHERE position = ?"
_STREAM: Final = "SELECT name FROM streams WHERE id = ?"
_BY_ID: Final = "SELECT position FROM events WHERE event_id = ?"

_LAST: Final = (1 << 63) - 1
_NOT_ANSWERED: Final = events.c.kind > literal_column("1")
"""The condition of the index on kinds, word for word, so that SQLite uses it."""
_NO_POLL: Final = events.c.kind > literal_column("2")
"""That of the index on streams."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a record."""

    position: int
    stream: str
    version: int
    """Its place in its stream, from 1."""
    type: str
    type_version: int
    """The version it was written as; `data` is of the newest."""
    event_id: str | None
    observed_at: int
    took: int
    """Microseconds from question to answer; 0 for what is no poll."""
    recorded_at: int
    data: Event
    scope: int | None
    """The part with a poll's question (`Record.scope`)."""
    body: int | None
    """The part with a poll's answer (`Record.listing`), or with what an observation saw (`Record.item`)."""
    hash: str
    """The first 16 hex digits of its hash (all 64 at every hundredth position)."""


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turns what damaged columns do to the functions that read them into one error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise RecordDamaged(f"{what} cannot be read ({error}): run `steno verify`.") from error


def _ordered(*, backwards: bool) -> "UnaryExpression[int]":
    return events.c.position.desc() if backwards else events.c.position.asc()


def _scope_of(parts: Parts, scope_id: int) -> Scope:
    return read_scope(parts.get(scope_id).text)


class _Event(NamedTuple):
    """An event's row, its stream by name."""

    position: int
    stream: str
    version: int
    kind: int
    event_id: bytes | None
    observed_at: int
    took: int
    recorded_after: int
    scope: int | None
    body: int | None
    data: bytes
    hash: bytes


class Reader:
    """Reads one record through one connection."""

    def __init__(self, session: "Session", parts: Parts) -> None:
        self._session = session
        self._connection = session.connection
        self._parts = parts
        self._listings: dict[int, Listing] = {}
        self._scopes: dict[int, Scope] = {}

    def read(
        self,
        *,
        after: int,
        until: int | None,
        stream: str | None,
        types: Collection[str] | None,
        limit: int | None,
        backwards: bool,
    ) -> Iterator[Stored]:
        """Events with after < position ≤ until, in order of position, or backwards."""
        low, high, left = after, _LAST if until is None else until, limit
        codes = None if types is None else [code for code, (name, _) in KINDS.items() if name in types]
        of_source = stream is not None and stream.startswith("source/")
        stream_id = None
        if stream is not None:
            stream_id = self._scalar(select(streams.c.id).where(streams.c.name == stream))
            if stream_id is None:
                return
        by_kind = codes is not None and POLL_RECORDED not in codes and (stream is None or of_source)
        while left is None or left > 0:
            size = _CHUNK if left is None else min(_CHUNK, left)
            if by_kind and codes is not None:
                found = self._positions(codes, low, high, size, stream_id, backwards=backwards)
                yield from self.at(found, backwards=backwards)
            else:
                rows = self._page(codes, low, high, size, stream_id, of_source=of_source, backwards=backwards)
                found = [row[0] for row in rows]
                for row in rows:
                    yield self._stored(row)
            if len(found) < size:
                return
            left = None if left is None else left - len(found)
            if backwards:
                high = found[-1] - 1
            else:
                low = found[-1]

    def _page(
        self,
        codes: list[int] | None,
        low: int,
        high: int,
        size: int,
        stream_id: int | None,
        *,
        of_source: bool,
        backwards: bool,
    ) -> Sequence[Columns]:
        query = select(*_ROW).join(streams).where(events.c.position > low, events.c.position <= high)
        if stream_id is not None:
            query = query.where(events.c.stream_id == stream_id)
            if not of_source:
                query = query.where(_NO_POLL)  # polls are on sources' streams only
        if codes is not None:
            query = query.where(events.c.kind.in_(codes))
        return self._found(query.order_by(_ordered(backwards=backwards)).limit(size))

    def _positions(
        self, codes: list[int], low: int, high: int, size: int, stream_id: int | None, *, backwards: bool
    ) -> list[int]:
        """Where events of some kinds are, none of them answered polls; by the index on kinds."""
        order = _ordered(backwards=backwards)
        found: list[list[int]] = []
        for code in codes:
            query = select(events.c.position).where(
                events.c.kind == code, _NOT_ANSWERED, events.c.position > low, events.c.position <= high
            )
            if stream_id is not None:
                query = query.where(events.c.stream_id == stream_id)
            found.append([row[0] for row in self._found(query.order_by(order).limit(size))])
        return list(islice(merge(*found, reverse=backwards), size))

    def at(self, positions: Sequence[int], *, backwards: bool = False) -> Iterator[Stored]:
        """The events at these positions, which are in order, or backwards."""
        for start in range(0, len(positions), _SCANNED):
            some = positions[start : start + _SCANNED]
            query = select(*_ROW).join(streams).where(events.c.position.in_(some))
            for row in self._found(query.order_by(_ordered(backwards=backwards))):
                yield self._stored(row)

    def scan(self, after: int, until: int | None) -> Iterator[Row]:
        """Polls and intents in order, as plain rows."""
        return chain.from_iterable(self._chunks(after, _LAST if until is None else until))

    def _chunks(self, after: int, last: int) -> Iterator[list[Columns]]:
        while rows := self._rows(_SCAN, (after, last, _SCANNED)):
            yield rows
            if len(rows) < _SCANNED:
                return
            after = rows[-1][0]

    def event(self, position: int) -> Event:
        """The typed event at a scanned position that is no poll."""
        rows = self._rows(_DATA, (position,))
        if not rows:
            raise PositionNotFound(f"The record has no position {position}.")
        return decode(rows[0][0], rows[0][1])

    def stream_name(self, stream_id: int) -> str:
        """The name of a scanned row's stream."""
        rows = self._rows(_STREAM, (stream_id,))
        if not rows:
            raise RecordDamaged(f"Stream {stream_id} is missing from the record: run `steno verify`.")
        return str(rows[0][0])

    def listing(self, listing_id: int) -> Listing:
        """The items an answer lists."""
        found = self._listings.get(listing_id)
        if found is None:
            if len(self._listings) > 10_000:
                self._listings.clear()
            found = self._listings[listing_id] = self._of_part(read_listing, listing_id)
        return found

    def children(self, listing_id: int) -> tuple[str, tuple[int, ...]]:
        """The kind and the item parts of an answer; the items themselves are not looked at."""
        return self._of_part(read_children, listing_id)

    def item(self, item_id: int) -> bytes:
        """An item's JSON text with null for its volatile values."""
        return self._of_part(bare_text, item_id)

    def scope(self, scope_id: int) -> Scope:
        """What a poll asked."""
        found = self._scopes.get(scope_id)
        if found is None:
            if len(self._scopes) > 10_000:
                self._scopes.clear()
            found = self._scopes[scope_id] = self._of_part(_scope_of, scope_id)
        return found

    def items(self, position: int) -> tuple[bytes, ...]:
        """The items of the answer at `position`, whole, in the order of `listing().items`."""
        row = self._poll_row(position)
        with self._session.guard(), _readable(f"The poll at position {position}"):
            if row.body is None:
                return ()
            _, scope_text, values = self._values(row)
            listing = self.listing(row.body)
            if listing.kind == OPAQUE:
                return (self._parts.get(listing.items[0][2]).text,)
            rest = iter(values[scope_text.count(HOLE) :])
            return tuple([item_text(self._parts, item, rest) for _, _, item in listing.items])

    def poll(self, position: int) -> Poll:
        """The poll at `position`, as it happened but for its secrets.

        Raises:
            PositionNotFound: there is no poll at that position.
            RecordDamaged: its bytes are gone or changed.
        """
        row = self._poll_row(position)
        with self._session.guard(), _readable(f"The poll at position {position}"):
            own, scope_text, values = self._values(row)
            counts = scope_text.count(HOLE)
            scope = read_scope(scope_text, values[:counts])
            req = bytes(scope.req)
            return Poll(
                source=row.stream.removeprefix("source/"),
                path=scope.path,
                req=msgspec.json.decode(req, type=str).encode() if scope.plain_req else req,
                started_at=row.observed_at - row.took,
                observed_at=row.observed_at,
                status=scope.status,
                error=scope.error,
                body=None if row.body is None else body_text(self._parts, row.body, values[counts:]),
                text=scope.text,
                ep=scope.ep,
                answered=scope.answered,
                sweep=own.sweep,
                complete=scope.complete,
                server_time=own.server_time,
                extra=scope.extra,
            )

    def position_of(self, event_id: bytes) -> int | None:
        """Where the event of that id is, or None."""
        rows = self._rows(_BY_ID, (event_id,))
        return rows[0][0] if rows else None

    def polled(self, until: int | None) -> list[tuple[str, int, int, int]]:
        """(source, polls, first and last `observed_at`) of every source that was polled. Reads every row."""
        at = events.c.observed_at
        query = (
            select(streams.c.name, func.count(), func.min(at), func.max(at))
            .join_from(events, streams)
            .where(events.c.kind < 3, events.c.position <= (_LAST if until is None else until))
            .group_by(streams.c.name)
        )
        return [(name.removeprefix("source/"), *rest) for name, *rest in self._found(query)]

    def is_imported(self, position: int) -> bool:
        """Whether the poll at `position` was imported: an import gives its polls ids, a recorder does not."""
        return self._scalar(select(events.c.event_id).where(events.c.position == position)) is not None

    def head(self) -> Head:
        """Where the record ends now."""
        position, digest = self._found(select(head.c.position, head.c.hash))[0]
        return Head(position=position, hash=digest.hex())

    def streams(self) -> tuple[tuple[str, int], ...]:
        """Every stream's name and version, in order of first sight."""
        found = self._found(select(streams.c.name, streams.c.version).order_by(streams.c.id))
        return tuple([(str(name), int(version)) for name, version in found])

    def version(self, stream: str) -> int:
        """A stream's version; 0 if there is none of that name."""
        found = self._scalar(select(streams.c.version).where(streams.c.name == stream))
        return 0 if found is None else int(found)

    def changed(self, position: int) -> tuple[str, ...]:
        """The streams that the poll at `position` moved: their observations follow it."""
        names: list[str] = []
        for stored in self.read(after=position, until=None, stream=None, types=None, limit=None, backwards=False):
            if not isinstance(stored.data, RunObserved | VmObserved | ProviderEventSeen):
                break
            names.append(stored.stream)
        return tuple(names)

    def _values(self, row: _Event) -> tuple[Own, bytes, list[bytes]]:
        """What a poll's row says, the text of its scope, and all its values: the scope's first, then the answer's."""
        own = decode_data(row.data, row.observed_at, row.position)
        values = own.values
        if own.base is not None:
            base = self._poll_row(own.base)
            values = decode_data(base.data, base.observed_at, base.position).values
            for index, value in own.changed.items():
                values[index] = value
        if row.scope is None:
            raise ValueError("it has no question")
        return own, self._parts.get(row.scope).text, values

    def _poll_row(self, position: int) -> _Event:
        rows = self._rows(_ONE, (position,)) if 0 < position <= _LAST else []
        if not rows:
            raise PositionNotFound(f"The record has no position {position}.")
        row = _Event._make(rows[0])
        if row.kind not in POLLS:
            raise PositionNotFound(f"Position {position} holds {type_of(row.kind)[0]}, which is not a poll.")
        return row

    def _of_part(self, read: Callable[[Parts, int], _T], part_id: int) -> _T:
        """What `read` makes of a part. This runs for every answer: the guards are put up only where something fails."""
        try:
            return read(self._parts, part_id)
        except Exception:
            with self._session.guard(), _readable(f"Part {part_id} of the record"):
                raise

    def _found(self, query: "Select[Any]") -> Sequence[Columns]:
        with self._session.guard():
            return self._connection.execute(query).fetchall()

    def _scalar(self, query: "Select[Any]") -> Any:
        with self._session.guard():
            return self._connection.execute(query).scalar()

    def _rows(self, statement: str, given: tuple[object, ...]) -> list[Columns]:
        with self._session.guard():
            return driver(self._connection).execute(statement, given).fetchall()

    def _stored(self, columns: Columns) -> Stored:
        with _readable(f"The event at position {columns[0]}"):
            row = _Event._make(columns)
            name, type_version = type_of(row.kind)
            return Stored(
                position=row.position,
                stream=row.stream,
                version=row.version,
                type=name,
                type_version=type_version,
                event_id=None if row.event_id is None else row.event_id.hex(),
                observed_at=row.observed_at,
                took=row.took,
                recorded_at=row.observed_at + row.recorded_after,
                data=self._fact(row),
                scope=row.scope,
                body=row.body,
                hash=row.hash.hex(),
            )

    def _fact(self, row: _Event) -> Event:
        if row.kind == POLL_RECORDED:
            return PollRecorded()
        if row.kind == POLL_FAILED:
            return PollFailed()
        if row.kind in _OBSERVED:
            return self._observed(row)
        return decode(row.kind, row.data)

    def _observed(self, row: _Event) -> Event:
        back, at = read_number(row.data, 0)
        index, _ = read_number(row.data, at)
        poll = self._poll_row(row.position - back)
        if poll.body is None:
            raise ValueError("its poll has no answer")
        return _OBSERVED[row.kind](poll=poll.position, provider_id=self.listing(poll.body).items[index][1])
