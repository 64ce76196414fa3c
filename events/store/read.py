"""Reads a record: its events in order, by kind and for a fold; its polls, rebuilt from parts and values."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from heapq import merge
from itertools import chain, islice, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from sqlalchemy import bindparam, false, func, literal_column, or_, select

from events.codec import CODES, KINDS, POLLS, decode, type_of
from events.errors import PositionNotFound, RecordDamaged
from events.poll import Poll
from events.shape.cut import HOLE, identity
from events.store.answers import bare_text, body_text, item_texts, read_listing
from events.store.chain import Head, committer
from events.store.parts import READER_CACHE, Parts
from events.store.question import SHARED, Own, PollScope, decode_data, decode_head, read_numbers, read_scope
from events.store.schema import events, head, streams
from events.types import OBSERVED, Event, ObservedEvent, PollFailed, PollRecorded

if TYPE_CHECKING:
    from sqlalchemy import Executable, Select

    from events.store.store import Session

Row: TypeAlias = tuple[int, int, int, int, int, int | None, int | None]
"""position, kind, stream, observed_at, took, scope part, listing part: integers alone cost half of whole rows."""
_T = TypeVar("_T")

LAST: Final = (1 << 63) - 1
_CHUNK: Final = 2000
_SCANNED: Final = 500  # rows held at a time: too few to start Python's garbage collector
_SCOPES_KEPT: Final = 10_000
_OBSERVED: Final = {CODES[kind]: kind for kind in OBSERVED.values()}

_C = events.c
_WHOLE: Final = select(
    _C.position, streams.c.name, _C.version, _C.kind, _C.event_id, _C.observed_at, _C.took, _C.recorded_after,
    _C.scope_id, _C.body_id, _C.data, _C.hash,
).join(streams)  # fmt: skip
_AT: Final = _C.position == bindparam("at")
_ONE: Final = _WHOLE.where(_AT)
_POLL: Final = select(
    _C.position, streams.c.name, _C.kind, _C.observed_at, _C.took, _C.scope_id, _C.body_id, _C.data
).join(streams).where(_AT)  # fmt: skip
_TIMED: Final = select(_C.data, _C.observed_at).where(_AT)
_DATA: Final = select(_C.kind, _C.data).where(_AT)
_ID: Final = select(_C.event_id).where(_AT)
_BY_ID: Final = select(_C.position).where(_C.event_id == bindparam("id"))
_STREAM: Final = select(streams.c.name).where(streams.c.id == bindparam("stream"))
_NAMED: Final = select(streams.c.id, streams.c.version).where(streams.c.name == bindparam("stream"))
_STREAMS: Final = select(streams.c.name, streams.c.version).order_by(streams.c.id)
_HEAD: Final = select(head.c.position, head.c.hash)
_SPAN: Final = (_C.position > bindparam("after"), _C.position <= bindparam("until"))
_SCAN: Final = (
    select(_C.position, _C.kind, _C.stream_id, _C.observed_at, _C.took, _C.scope_id, _C.body_id)
    .where(*_SPAN, or_(_C.kind < literal_column("3"), _C.kind > literal_column("5")))
    .order_by(_C.position)
    .limit(literal_column(str(_SCANNED)))
)
_POLLED: Final = (
    select(streams.c.name, func.count(), func.min(_C.observed_at), func.max(_C.observed_at))
    .join_from(events, streams)
    .where(_C.kind < literal_column("3"), _C.position <= bindparam("until"))
    .group_by(streams.c.name)
)


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


class PollRow(NamedTuple):
    """The row of a poll, its stream by name."""

    position: int
    stream: str
    kind: int
    observed_at: int
    took: int
    scope: int | None
    body: int | None
    data: bytes


class Stored(msgspec.Struct, frozen=True):
    position: int
    stream: str
    version: int  # place in its stream, from 1
    type: str
    type_version: int  # as written; `data` is of the newest
    event_id: str | None
    observed_at: int
    took: int  # microseconds from question to answer; 0 for other events
    recorded_at: int
    data: Event
    scope: int | None  # a poll's question (`Record.scope`)
    body: int | None  # a poll's answer (`Record.children`), or an observation's item (`Record.item`)
    hash: str  # the first 16 hex digits (all 64 at every hundredth position)


class Reader:
    """Reads one record through one connection."""

    def __init__(self, session: "Session", *, cache: int = READER_CACHE) -> None:
        self._session = session
        self._commit = committer(session.identity.key)
        self._parts = Parts(session, self._commit, cache=cache)
        self._scopes: dict[int, PollScope] = {}

    def shrink(self) -> None:
        """Drop the caches, after a look at all of a record."""
        self._parts.forget()
        self._session.shrink()

    # -- events

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
        low, high, left = after, LAST if until is None else until, sys.maxsize if limit is None else limit
        codes = None if types is None else tuple(code for code, (name, _) in KINDS.items() if name in types)
        source = None if stream is None else stream.startswith("source/")
        given = () if stream is None else self._first(_NAMED, stream)
        if given is None:
            return
        by_kind = codes is not None and CODES[PollRecorded] not in codes and source is not False
        each = [(code,) for code in codes or ()] if by_kind else [codes]
        pages = [_page(one, by_kind=by_kind, source=source, backwards=backwards) for one in each]
        while left > 0:
            size = min(_CHUNK, left)
            found = [self._rows(page, low, high, *given[:1], size) for page in pages]
            rows = list(islice(merge(*found, key=itemgetter(0), reverse=backwards), size))
            yield from self.at(row[0] for row in rows) if by_kind else map(self._stored, rows)
            left -= size
            if len(rows) < size:
                return
            low, high = (low, rows[-1][0] - 1) if backwards else (rows[-1][0], high)

    def at(self, positions: Iterable[int]) -> Iterator[Stored]:
        """The events at these positions, as far as they exist."""
        for position in positions:
            yield from map(self._stored, self._rows(_ONE, position))

    def scan(self, *, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """Polls (kinds 1 recorded, 2 failed) and intents as plain rows; observations are left out: polls have it all.
        `event()` reads rows of other kinds, `stream_name()` names the stream.
        """
        return chain.from_iterable(self._chunks(after, LAST if until is None else until))

    def _chunks(self, after: int, last: int) -> Iterator[list[Any]]:
        while rows := self._rows(_SCAN, after, last):
            after, more = rows[-1][0], len(rows) == _SCANNED
            yield rows
            if not more:
                return
            del rows  # before the next are read: twice as many would start the collector

    def event(self, position: int) -> Event:
        """The typed event at a scanned position that is not a poll. Raises PositionNotFound."""
        row = self._first(_DATA, position)
        if row is None:
            raise PositionNotFound(f"The record has no position {position}.")
        return cast(Event, decode(*row))

    def stream_name(self, stream_id: int) -> str:
        row = self._first(_STREAM, stream_id)
        if row is None:
            raise RecordDamaged(f"Stream {stream_id} is missing from the record: run `steno verify`.")
        return str(row[0])

    def head(self) -> Head:
        """Where the record ends now."""
        position, digest = self._rows(_HEAD)[0]
        return Head(position=position, hash=digest.hex())

    def streams(self) -> tuple[tuple[str, int], ...]:
        """Every stream's name and version, in order of first sight."""
        return tuple([(str(name), int(version)) for name, version in self._rows(_STREAMS)])

    def version(self, stream: str) -> int:
        """A stream's version: the number of its events; 0 for an unknown name."""
        row = self._first(_NAMED, stream)
        return 0 if row is None else int(row[1])

    def changed(self, position: int) -> tuple[str, ...]:
        """The streams that the poll at `position` changed: their observations follow it."""
        following = takewhile(lambda stored: isinstance(stored.data, ObservedEvent), self.read(after=position))
        return tuple([stored.stream for stored in following])

    # -- polls

    def children(self, listing_id: int) -> tuple[str, tuple[int, ...]]:
        """The kind and the item parts of an answer, in its order."""
        listing = self._of_part(read_listing, listing_id)
        return listing.kind, listing.items

    def item(self, item_id: int) -> bytes:
        """An item's JSON text with null for its volatile values."""
        return self._of_part(bare_text, item_id)

    def scope(self, scope_id: int) -> PollScope:
        """What was asked, and how it went."""
        found = self._scopes.get(scope_id)
        if found is None:
            if len(self._scopes) > _SCOPES_KEPT:
                self._scopes.clear()
            found = self._scopes[scope_id] = self._of_part(_read_scope, scope_id)
        return found

    def items(self, position: int) -> tuple[bytes, ...]:
        """The items of the answer at `position`, whole, in the order of `children`."""
        with self._reading(position) as (row, _, scope_text, values):
            if row.body is None:
                return ()
            listing = read_listing(self._parts, row.body)
            return tuple(item_texts(self._parts, listing, values[scope_text.count(HOLE) :]))

    def poll(self, position: int) -> Poll:
        """The poll at `position`, equal as JSON to what happened, except for secrets.

        Raises PositionNotFound if it is not a poll, RecordDamaged if its bytes are missing or changed.
        """
        with self._reading(position) as (row, own, scope_text, values):
            counts = scope_text.count(HOLE)
            scope = read_scope(scope_text, values[:counts])
            req = bytes(scope.req)
            return Poll(
                **{name: getattr(scope, name) for name in SHARED},
                source=row.stream.removeprefix("source/"),
                req=msgspec.json.decode(req, type=str).encode() if scope.plain_req else req,
                started_at=row.observed_at - row.took,
                observed_at=row.observed_at,
                body=None if row.body is None else body_text(self._parts, row.body, values[counts:]),
                sweep=own.sweep,
                server_time=own.server_time,
                extra=scope.extra,
            )

    def position_of(self, event_id: bytes) -> int | None:
        row = self._first(_BY_ID, event_id)
        return None if row is None else int(row[0])

    def polled(self, *, until: int | None = None) -> list[tuple[str, int, int, int]]:
        """(source, polls, first and last `observed_at`) of every source polled up to `until`; reads every row."""
        found = self._rows(_POLLED, LAST if until is None else until)
        return [(name.removeprefix("source/"), *rest) for name, *rest in found]

    def server_time(self, position: int) -> int | None:
        """The provider's own clock at the poll at `position`, as `poll` has it."""
        with self._session.guard(), _readable(f"The poll at position {position}"):
            data, observed_at = self._first(_TIMED, position)
            return decode_head(data, observed_at)[1]

    def is_imported(self, position: int) -> bool:
        """Whether the poll at `position` was imported: only imports give polls ids."""
        row = self._first(_ID, position)
        return row is not None and row[0] is not None

    @contextmanager
    def _reading(self, position: int) -> Iterator[tuple[PollRow, Own, bytes, list[bytes]]]:
        """A poll's row, what it says itself, the text of its scope, and all its values: scope, then answer."""
        row = self._poll_row(position)
        with self._session.guard(), _readable(f"The poll at position {position}"):
            own = decode_data(row.data, row.observed_at, position)
            values = own.values
            if own.base is not None:
                base = self._poll_row(own.base)
                values = decode_data(base.data, base.observed_at, base.position).values
                for index, value in own.changed.items():
                    values[index] = value
            if row.scope is None:
                raise ValueError("it has no question")
            yield row, own, self._parts.get(row.scope).text, values

    def _poll_row(self, position: int) -> PollRow:
        row = self._first(_POLL, position) if 0 < position <= LAST else None
        if row is None:
            raise PositionNotFound(f"The record has no position {position}.")
        found = PollRow._make(row)
        if found.kind not in POLLS:
            raise PositionNotFound(f"Position {position} holds {type_of(found.kind)[0]}, which is not a poll.")
        return found

    # -- rows

    def _stored(self, columns: Sequence[Any]) -> Stored:
        position, stream, version, kind, event_id, observed_at, took, after, scope, body, data, digest = columns
        with _readable(f"The event at position {position}"):
            name, type_version = type_of(kind)
            return Stored(
                position, stream, version, name, type_version, None if event_id is None else event_id.hex(),
                observed_at, took, observed_at + after, self._fact(position, kind, data), scope, body, digest.hex(),
            )  # fmt: skip

    def _fact(self, position: int, kind: int, data: bytes) -> Event:
        if kind in POLLS:
            return PollRecorded() if kind == CODES[PollRecorded] else PollFailed()
        observed = _OBSERVED.get(kind)
        if observed is None:
            return cast(Event, decode(kind, data))
        (back, index), _ = read_numbers(data, 0, 2)
        poll = self._poll_row(position - back)
        if poll.body is None:
            raise ValueError("its poll has no answer")
        listing = self._of_part(read_listing, poll.body)
        return observed(poll=poll.position, provider_id=identity(self.item(listing.items[index]), listing.key))

    def _of_part(self, read: Callable[[Parts, int], _T], part_id: int) -> _T:
        """What `read` makes of a part. This runs for every answer: only a failure pays for the guards."""
        try:
            return read(self._parts, part_id)
        except Exception:
            with self._session.guard(), _readable(f"Part {part_id} of the record"):
                raise

    def _rows(self, statement: "Executable", *given: object) -> list[Any]:
        with self._session.guard():
            rows: list[Any] = self._session.run(statement, *given).fetchall()
        return rows

    def _first(self, statement: "Executable", given: object) -> Any:
        rows = self._rows(statement, given)
        return rows[0] if rows else None


def _read_scope(parts: Parts, scope_id: int) -> PollScope:
    return read_scope(parts.get(scope_id).text)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turns errors of reading damaged columns into one error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise RecordDamaged(f"{what} cannot be read ({error}): run `steno verify`.") from error
