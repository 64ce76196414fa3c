"""The source of the tables: a record and its read models, as of one moment."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from steno.events.clock import SystemClock, parse_time
from steno.events.errors import StenoError
from steno.events.store.record import Record, Stored
from steno.events.store.store import Where
from steno.projections.read_models.known_worlds import Knowledge, known_by
from steno.projections.read_models.past_worlds import NOTHING, Beyond, moment_at
from steno.projections.read_models.past_worlds import opened as opened_at
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

T = TypeVar("T")
At = int | str | datetime | None  # a position; a time (UTC where it names no zone); None: now
Known = int | str | datetime | None  # as `At`, also "now"; None: what was known at the moment


@dataclass(kw_only=True)
class FrameSource:
    """A moment of a record, for one thread at a time."""

    record: Record
    view: View
    position: int
    beyond: Beyond = NOTHING
    advance: Callable[[int, int], None] = field(default=lambda _done, _total: None)
    """Called with (done, total) while a table is read."""

    def events(self, types: Iterable[str] | None = None) -> Iterator[Stored]:
        """The events up to the moment, in order."""
        for after, until in ((0, self.position), *((first - 1, last) for first, last in self.beyond.archives)):
            for stored in self.record.read(after=after, until=until, types=None if types is None else tuple(types)):
                self.advance(stored.position, until)
                yield stored

    def counted(self, rows: Iterable[T], total: int) -> Iterator[T]:
        for number, row in enumerate(rows):
            self.advance(number, total)
            yield row


@contextmanager
def of_store(
    record: Record, store: ProjectionStore, position: int | None = None, beyond: Beyond = NOTHING
) -> Iterator[FrameSource]:
    """A source of an open store, unchanged in the block. `position` and `beyond`: its moment; None: the head."""
    with store, store.reading():
        view = View(store)
        yield FrameSource(
            record=record, view=view, position=view.position if position is None else position, beyond=beyond
        )


@contextmanager
def opened(record: Where | Record, at: At = None, known: Known = None) -> Iterator[FrameSource]:
    """A record as it was at a moment, by what was known then or later. Raises StenoError if the moment does not exist,
    and as `Record.open`.
    """
    from steno.engine.providers.registry import READINGS

    with ExitStack() as stack:
        if not isinstance(record, Record):
            record = Record.open(record, write=False, shapes=READINGS.shape, clock=SystemClock())
            stack.enter_context(record)
        if at is None:
            if known is not None:
                raise StenoError("known says how much is known of the moment of at: give at as well")
            yield stack.enter_context(of_store(record, caught_up(record)))
            return
        position, beyond, time = _moment(record, at)
        later = None if known is None else _knowledge(record, position, time, known)
        store = opened_at(record, position, beyond, later)
        yield stack.enter_context(of_store(record, store, position, beyond))


def _knowledge(record: Record, at: int, time: int | None, known: int | str | datetime) -> Knowledge | None:
    position, beyond, _ = _moment(record, record.head().position if known == "now" else known)
    with caught_up(record) as store:
        return known_by(record, at, time, max(position, *(last for _, last in beyond.archives), 0), View(store).state)


def _moment(record: Record, at: int | str | datetime) -> tuple[int, Beyond, int | None]:
    """(the position, archives beyond it, the time if it is one)."""
    head = record.head().position
    if isinstance(at, int):
        if not 1 <= at <= head:
            raise StenoError(f"the record has the positions 1 to {head}, not {at}")
        return at, NOTHING, None
    try:
        time = parse_time(at.isoformat() if isinstance(at, datetime) else at)
    except ValueError:
        raise StenoError(f"{at!r} is not a time; use 2026-11-20T15:00:00Z") from None
    with caught_up(record) as store:
        return *moment_at(record, time, head, View(store).state), time
