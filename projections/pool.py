"""Readers of the projections for the threads of the service: as they are now, or as they were at a position."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.readings.shapes import shape_of
from events.clock import SECOND, Clock
from events.errors import PositionNotFound, StenoError
from events.record import Record
from projections.projector import as_it_was, caught_up
from projections.view import View

PATIENCE = 2 * SECOND
"""How long a reader waits for a position it wants to see."""


class Behind(StenoError):
    """The read models do not show that position yet."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The record and its projections, seen at one position."""

    record: Record
    """It may hold more than `position` by now."""
    view: View
    position: int
    now: int
    """The moment it is seen from (microseconds, UTC): now, or of a moment past, its own."""


class Pool:
    """Lends out readers; any thread may borrow one."""

    def __init__(self, path: Path, *, clock: Clock, wake: Callable[[], None] | None = None) -> None:
        self._path = path
        self._clock = clock
        self._wake = wake

    @contextmanager
    def now(self, *, min_position: int | None = None) -> Iterator[Look]:
        """The projections as they are, at `min_position` or later.

        Raises:
            Behind: they did not get there within two seconds.
        """
        with Record.open(self._path, clock=self._clock, shapes=shape_of) as record:
            if min_position is not None and record.head().position < min_position:
                record.wait(min_position - 1, PATIENCE)
            with caught_up(record) as store:
                view = View(store)
                if min_position is not None and view.position < min_position:
                    raise Behind(f"The read models are at position {view.position}, not yet at {min_position}.")
                yield Look(record=record, view=view, position=view.position, now=self._clock.now())

    @contextmanager
    def at(self, position: int) -> Iterator[Look]:
        """The world as it was after `position`.

        Raises:
            PositionNotFound: the record does not go that far.
        """
        with Record.open(self._path, clock=self._clock, shapes=shape_of) as record:
            head = record.head().position
            if not 0 <= position <= head:
                raise PositionNotFound(f"The record ends at position {head}; {position} is beyond it.")
            with as_it_was(record, position) as store:
                view = View(store)
                yield Look(record=record, view=view, position=position, now=view.last_at or self._clock.now())

    def close(self) -> None:
        """Close every reader."""
