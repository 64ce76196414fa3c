"""Reads the polls of a record: what was asked, what came back, rebuilt from parts and values. Nothing here writes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from sqlalchemy import func, select

from events.errors import PositionNotFound, RecordDamaged
from events.kinds import POLLS, type_of
from events.poll import Poll
from events.shape.answer import OPAQUE, AnswerItems, bare_text, body_text, item_text, read_children, read_listing
from events.shape.cut import HOLE
from events.store.parts import Parts
from events.store.question import Own, PollScope, decode_data, read_scope
from events.store.schema import driver, events, streams

if TYPE_CHECKING:
    from sqlalchemy import Select

    from events.store.store import Session

Columns: TypeAlias = tuple[Any, ...]
"""A row as the database gives it."""

LAST: Final = (1 << 63) - 1
_KEPT: Final = 10_000
_T = TypeVar("_T")

# These run once an event of a fold or poll of an import, so they go past SQLAlchemy (`driver`).
_ONE: Final = (
    "SELECT e.position, s.name, e.version, e.kind, e.event_id, e.observed_at, e.took, e.recorded_after, "
    "e.scope_id, e.body_id, e.data, e.hash FROM events e JOIN streams s ON s.id = e.stream_id WHERE e.position = ?"
)
_BY_ID: Final = "SELECT position FROM events WHERE event_id = ?"


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turns what damaged columns do to the functions that read them into one error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise RecordDamaged(f"{what} cannot be read ({error}): run `steno verify`.") from error


def _scope_of(parts: Parts, scope_id: int) -> PollScope:
    return read_scope(parts.get(scope_id).text)


class EventRow(NamedTuple):
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


class PollRows:
    """Reads the polls of one record through one connection."""

    def __init__(self, session: "Session", parts: Parts) -> None:
        self._session = session
        self._connection = session.connection
        self._parts = parts
        self._listings: dict[int, AnswerItems] = {}
        self._scopes: dict[int, PollScope] = {}

    def listing(self, listing_id: int) -> AnswerItems:
        """The items of an answer."""
        found = self._listings.get(listing_id)
        if found is None:
            if len(self._listings) > _KEPT:
                self._listings.clear()
            found = self._listings[listing_id] = self._of_part(read_listing, listing_id)
        return found

    def children(self, listing_id: int) -> tuple[str, tuple[int, ...]]:
        """The kind and the item parts of an answer, in its order: what `listing` says, without reading the items."""
        return self._of_part(read_children, listing_id)

    def item(self, item_id: int) -> bytes:
        """An item's JSON text with null for its volatile values."""
        return self._of_part(bare_text, item_id)

    def scope(self, scope_id: int) -> PollScope:
        """What was asked, and how it went."""
        found = self._scopes.get(scope_id)
        if found is None:
            if len(self._scopes) > _KEPT:
                self._scopes.clear()
            found = self._scopes[scope_id] = self._of_part(_scope_of, scope_id)
        return found

    def items(self, position: int) -> tuple[bytes, ...]:
        """The items of the answer at `position`, whole, in the order of `listing().items`."""
        row = self._poll_row(position)
        with self._session.guard(), readable(f"The poll at position {position}"):
            if row.body is None:
                return ()
            _, scope_text, values = self._values(row)
            listing = self.listing(row.body)
            if listing.kind == OPAQUE:
                return (self._parts.get(listing.items[0][2]).text,)
            rest = iter(values[scope_text.count(HOLE) :])
            return tuple([item_text(self._parts, item, rest) for _, _, item in listing.items])

    def poll(self, position: int) -> Poll:
        """The poll at `position`, equal as JSON to what happened, but for secrets.

        Raises:
            PositionNotFound: there is no poll there.
            RecordDamaged: its bytes are gone or changed.
        """
        row = self._poll_row(position)
        with self._session.guard(), readable(f"The poll at position {position}"):
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

    def polled(self, *, until: int | None = None) -> list[tuple[str, int, int, int]]:
        """(source, polls, first and last `observed_at`) of every source that was polled up to `until`. Reads every
        row.
        """
        at = events.c.observed_at
        query = (
            select(streams.c.name, func.count(), func.min(at), func.max(at))
            .join_from(events, streams)
            .where(events.c.kind < 3, events.c.position <= (LAST if until is None else until))
            .group_by(streams.c.name)
        )
        return [(name.removeprefix("source/"), *rest) for name, *rest in self._found(query)]

    def is_imported(self, position: int) -> bool:
        """Whether the poll at `position` was imported: an import gives its polls ids, a recorder does not."""
        return self._scalar(select(events.c.event_id).where(events.c.position == position)) is not None

    def _values(self, row: EventRow) -> tuple[Own, bytes, list[bytes]]:
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

    def _poll_row(self, position: int) -> EventRow:
        rows = self._rows(_ONE, (position,)) if 0 < position <= LAST else []
        if not rows:
            raise PositionNotFound(f"The record has no position {position}.")
        row = EventRow._make(rows[0])
        if row.kind not in POLLS:
            raise PositionNotFound(f"Position {position} holds {type_of(row.kind)[0]}, which is not a poll.")
        return row

    def _of_part(self, read: Callable[[Parts, int], _T], part_id: int) -> _T:
        """What `read` makes of a part. This runs for every answer: the guards are put up only where something fails."""
        try:
            return read(self._parts, part_id)
        except Exception:
            with self._session.guard(), readable(f"Part {part_id} of the record"):
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
