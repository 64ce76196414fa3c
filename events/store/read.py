"""Reads a record: its events in order, by kind and for a fold; its polls, rebuilt from parts and values."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from sqlalchemy import select

from steno.events.codec import CODES, KINDS, POLLS, decode, type_of
from steno.events.errors import PositionNotFound, RecordDamaged, RecordReplaced
from steno.events.poll import Poll
from steno.events.shape.cut import HOLE, identity
from steno.events.store.answers import bare_text, body_text, item_texts, read_listing
from steno.events.store.chain import Head, committer, mark
from steno.events.store.output_rows import OLDEST, ONE
from steno.events.store.parts import READER_CACHE, Parts
from steno.events.store.poll_header import SHARED, Own, PollScope, decode_data, decode_head, read_numbers, read_scope
from steno.events.store.rows import HEAD, LAST, Rows
from steno.events.store.schema import streams
from steno.events.store.store import Session
from steno.events.types import OBSERVED, Event, ObservedEvent, PollFailed, PollRecorded

Row: TypeAlias = tuple[int, int, int, int, int, int | None, int | None, bytes | None]
"""position, kind, stream, observed_at, took, scope part, listing part, clock: so few alone cost half of whole rows."""
_T = TypeVar("_T")

_SCOPES_KEPT: Final = 10_000
_OBSERVED: Final = {CODES[kind]: kind for kind in OBSERVED.values()}

_OF_POLL: Final = (0, 1, 3, 5, 6, 8, 9, 10, 12)  # columns of a whole row
_STREAMS: Final = select(streams.c.name, streams.c.version).order_by(streams.c.id)


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
    clock: bytes | None


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
    clock: bytes | None = None  # epoch and boot time at `observed_at` (`steno.events.clock.Stamp`)


class Reader:
    """Reads one record through one connection."""

    def __init__(self, session: Session, *, cache: int = READER_CACHE) -> None:
        self._session = session
        self._rows = Rows(session)
        self._commit = committer(session.identity)
        self._parts = Parts(session, self._commit.shared, cache=cache)
        self._scopes: dict[int, PollScope] = {}
        self._seen = (0, session.identity.genesis())  # position and hash of the newest end that was seen

    def widen(self, size: int) -> None:
        """Make room in the caches for answers of `size` bytes, which are read more than once."""
        self._parts.expect(size)

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
        pages = self._rows.pages(
            after,
            LAST if until is None else until,
            kinds=None if types is None else tuple(code for code, (name, _) in KINDS.items() if name in types),
            stream=stream,
            backwards=backwards,
            most=sys.maxsize if limit is None else limit,
        )
        return map(self._stored, chain.from_iterable(pages))

    def at(self, position: int) -> Stored | None:
        """The event at a position; None: there is none."""
        row = self._rows.whole(position)
        return None if row is None else self._stored(row)

    def scan(
        self, *, after: int = 0, until: int | None = None, polls_of: Collection[str] | None = None
    ) -> Iterator[Row]:
        """Polls (kinds 1 recorded, 2 failed) and intents as plain rows; observations are left out: polls have it all.
        `polls_of`: the streams whose polls are given; None: all. `event()` reads rows of other kinds, `stream_name()`
        names the stream.
        """
        ids: tuple[int, ...] | None = None
        if polls_of is not None:
            rows = (self._rows.find_stream(name) for name in sorted(polls_of))
            ids = tuple([int(row[0]) for row in rows if row is not None])
        pages: Iterator[Any] = self._rows.scan(after, LAST if until is None else until, ids)
        return chain.from_iterable(pages)

    def event(self, position: int) -> Event:
        """The typed event at a scanned position that is not a poll. Raises PositionNotFound."""
        row = self._row(position)
        return cast(Event, decode(row[3], row[10]))

    def stream_name(self, stream_id: int) -> str:
        return self._rows.stream_name(stream_id)

    def head(self) -> Head:
        """Where the record ends now. Raises RecordReplaced if it does not go on from where it was seen to end."""
        self._session.expect_in_place()
        position, digest = self._rows.run(HEAD)[0]
        self._goes_on(position, digest)
        return Head(position=position, hash=digest.hex())

    def expect(self, end: Head) -> None:
        """Note that the record was seen to end there, for example by an earlier connection."""
        self._seen = max(self._seen, (end.position, bytes.fromhex(end.hash)))

    def digest(self, position: int) -> str:
        """The first 16 hex digits of the chain's hash at a position, or all; empty: there is none."""
        row = self._rows.raw(position)
        return "" if row is None else bytes(row[11]).hex()

    def _goes_on(self, position: int, digest: bytes) -> None:
        known, before = self._seen
        if (position, digest) == self._seen:
            return
        if position < known or (known and self.digest(known) != mark(known, before).hex()):
            raise RecordReplaced(
                f"The record was replaced while it was open: {known}:{before.hex()[:8]} is not in it any more, it ends "
                f"at {position}. Nothing is written to it; restart."
            )
        self._seen = position, digest

    def streams(self) -> tuple[tuple[str, int], ...]:
        """Every stream's name and version, in order of first sight."""
        return tuple([(str(name), int(version)) for name, version in self._rows.run(_STREAMS)])

    def version(self, stream: str) -> int:
        """A stream's version: the number of its events; 0 for an unknown name."""
        row = self._rows.find_stream(stream)
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
        """The question, and how it went."""
        scope = self._scopes.get(scope_id)
        if scope is None:
            if len(self._scopes) > _SCOPES_KEPT:
                self._scopes.clear()
            scope = self._scopes[scope_id] = read_scope(self._of_part(Parts.get, scope_id).text)
        return scope

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
                stamp=row.clock,
                extra=scope.extra,
            )

    def polled(self, *, until: int | None = None) -> list[tuple[str, int, int, int]]:
        """(source, polls, first and last `observed_at`) of every source polled up to `until`; reads every row."""
        rows = self._rows.polled(LAST if until is None else until)
        return [(name.removeprefix("source/"), polls, first, last) for name, polls, first, last in rows]

    def server_time(self, position: int) -> int | None:
        """The provider's own clock at the poll at `position`, as `poll` has it."""
        row = self._row(position)
        with self._session.guard(), _readable(f"The poll at position {position}"):
            return decode_head(row[10], row[5])[1]

    def is_imported(self, position: int) -> bool:
        """True if the poll at `position` was imported: only imports give polls ids."""
        row = self._rows.raw(position)
        return row is not None and row[4] is not None

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
        row = self._row(position)
        poll = PollRow._make([row[column] for column in _OF_POLL])
        if poll.kind not in POLLS:
            raise PositionNotFound(f"Position {position} holds {type_of(poll.kind)[0]}, which is not a poll.")
        return poll

    def _row(self, position: int) -> Sequence[Any]:
        row = self._rows.whole(position)
        if row is None:
            raise PositionNotFound(f"The record has no position {position}.")
        return row

    # -- outputs

    def packed_output(self, position: int) -> bytes | None:
        """The packed bytes beside the `OutputRecorded` at a position; None: they were dropped."""
        rows = self._rows.run(ONE, position) if self._session.identity.keeps_output else []
        return bytes(rows[0][0]) if rows else None

    def oldest_outputs(self) -> list[tuple[int, int | None]]:
        """(position, time of its event) of the oldest of them."""
        return self._rows.run(OLDEST) if self._session.identity.keeps_output else []

    # -- rows

    def _stored(self, columns: Sequence[Any]) -> Stored:
        position, stream, version, kind, event_id, observed_at, took, after, scope, body, data, digest, clock = columns
        with _readable(f"The event at position {position}"):
            name, type_version = type_of(kind)
            return Stored(
                position, stream, version, name, type_version, None if event_id is None else event_id.hex(),
                observed_at, took, observed_at + after, self._fact(position, kind, data), scope, body, digest.hex(),
                clock,
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
        """The result of `read` for a part. This runs for every answer: only a failure pays for the guards."""
        try:
            return read(self._parts, part_id)
        except Exception:
            with self._session.guard(), _readable(f"Part {part_id} of the record"):
                raise


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turns errors of reading damaged columns into RecordDamaged."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise RecordDamaged(f"{what} cannot be read ({error}): run `steno verify`.") from error
