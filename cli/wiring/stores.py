"""Opening the record: readers never create one, writers do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from events.store.record import Record


@contextmanager
def reading(app: App, *, check: bool = True) -> Iterator[Record]:
    """The record to read, closed afterwards; `check` looks that its newest events are there.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    with _opened(app, write=False, check=check) as record:
        yield record


@contextmanager
def writing(app: App, *, create: bool = True) -> Iterator[Record]:
    """The record to append to, made if it is not there and `create`, closed afterwards.

    Raises:
        NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: as they say.
    """
    with _opened(app, write=True, create=create) as record:
        yield record


@contextmanager
def _opened(app: App, *, write: bool, create: bool = False, check: bool = True) -> Iterator[Record]:
    from engine.providers.readings import READINGS
    from events.store.record import Record

    where = app.settings.record
    record = Record.open(where, write=write, create=create, check=check, shapes=READINGS.shape, clock=app.clock)
    with record:
        yield record
