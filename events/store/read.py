"""Reads the events of a record: in order, by kind, and for a fold. Nothing here writes."""

from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from sqlalchemy import literal_column, select

from events.codec import decode
from events.errors import PositionNotFound, RecordDamaged
from events.kinds import KINDS, POLL_FAILED, POLL_RECORDED, type_of
from events.shape.values import read_number
from events.store.chain import Head
from events.store.polls import LAST, Columns, EventRow, PollRows, readable
from events.store.schema import as_stored, events, streams
from events.types import Event, PollFailed, PollRecorded, ProviderEventSeen, RunObserved, VmObserved

if TYPE_CHECKING:
    from sqlalchemy import UnaryExpression


Row: TypeAlias = tuple[int, int, int, int, int, int | None, int | None]
"""position, kind, stream, observed_at, took, scope part, listing part: integers alone, half the cost of whole rows."""

_CHUNK: Final = 2000
_SCANNED: Final = 500
"""Rows a scan holds at a time: fewer than make Python look for garbage."""
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
"""The columns of `EventRow`."""

# These run once an event of a fold or poll of an import, so they go past SQLAlchemy (`driver`).
_SCAN: Final = (
    "SELECT position, kind, stream_id, observed_at, took, scope_id, body_id FROM events "
    "WHERE position > ? AND position <= ? AND (kind < 3 OR kind > 5) ORDER BY position LIMIT ?"
)
_HEAD: Final = "SELECT position, hash FROM head"
"""Asked up to a hundred times a second by whoever follows the record."""
_DATA: Final = "SELECT kind, data FROM events WHERE position = ?"
_STREAM: Final = "SELECT name FROM streams WHERE id = ?"

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


def _ordered(*, backwards: bool) -> "UnaryExpression[int]":
    return events.c.position.desc() if backwards else events.c.position.asc()


class Reader(PollRows):
    """Reads one record through one connection."""

    def read(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        stream: str | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Stored]:
        """Events with after < position ≤ until, of one stream and of some types if given, in order or backwards."""
        low, high, left = after, LAST if until is None else until, limit
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
        """The events at these positions, which are in order, or backwards; where there is none, none is given."""
        for start in range(0, len(positions), _SCANNED):
            some = positions[start : start + _SCANNED]
            query = select(*_ROW).join(streams).where(events.c.position.in_(some))
            for row in self._found(query.order_by(_ordered(backwards=backwards))):
                yield self._stored(row)

    def scan(self, *, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """Polls and intents as plain rows, for a fold: (position, kind, stream, observed_at, took, scope part or None,
        listing part or None). Kinds 1 (recorded) and 2 (failed) are polls; `event()` reads the others, `stream_name()`
        names the stream. Observation events are left out: the polls say it all.
        """
        return chain.from_iterable(self._chunks(after, LAST if until is None else until))

    def _chunks(self, after: int, last: int) -> Iterator[list[Columns]]:
        while rows := self._rows(_SCAN, (after, last, _SCANNED)):
            yield rows
            if len(rows) < _SCANNED:
                return
            after = rows[-1][0]

    def event(self, position: int) -> Event:
        """The typed event at a scanned position that is no poll.

        Raises:
            PositionNotFound: there is no such position.
        """
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

    def head(self) -> Head:
        """Where the record ends now."""
        position, digest = self._rows(_HEAD, ())[0]
        return Head(position=position, hash=digest.hex())

    def streams(self) -> tuple[tuple[str, int], ...]:
        """Every stream's name and version, in order of first sight."""
        found = self._found(select(streams.c.name, streams.c.version).order_by(streams.c.id))
        return tuple([(str(name), int(version)) for name, version in found])

    def version(self, stream: str) -> int:
        """A stream's version: how many events it has; 0 if there is none of that name."""
        found = self._scalar(select(streams.c.version).where(streams.c.name == stream))
        return 0 if found is None else int(found)

    def changed(self, position: int) -> tuple[str, ...]:
        """The streams that the poll at `position` moved: their observations follow it."""
        names: list[str] = []
        for stored in self.read(after=position):
            if not isinstance(stored.data, RunObserved | VmObserved | ProviderEventSeen):
                break
            names.append(stored.stream)
        return tuple(names)

    def _stored(self, columns: Columns) -> Stored:
        with readable(f"The event at position {columns[0]}"):
            row = EventRow._make(columns)
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

    def _fact(self, row: EventRow) -> Event:
        if row.kind == POLL_RECORDED:
            return PollRecorded()
        if row.kind == POLL_FAILED:
            return PollFailed()
        if row.kind in _OBSERVED:
            return self._observed(row)
        return decode(row.kind, row.data)

    def _observed(self, row: EventRow) -> Event:
        back, at = read_number(row.data, 0)
        index, _ = read_number(row.data, at)
        poll = self._poll_row(row.position - back)
        if poll.body is None:
            raise ValueError("its poll has no answer")
        return _OBSERVED[row.kind](poll=poll.position, provider_id=self.listing(poll.body).items[index][1])
