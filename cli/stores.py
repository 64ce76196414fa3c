"""Opening the record: readers never make one, writers do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from events.store.record import Record
    from projections.models.view import View


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


@contextmanager
def viewing(app: App, at: str | None = None) -> Iterator[tuple[Record, View]]:
    """The record and its projections, caught up, or as they were `--at` a time or position.

    Runs of this machine that go on are looked at first, if nobody records them: asking costs nothing and no network,
    and a list that says `running` of what has ended would be of no use.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    from cli.wiring.live_status import look_here
    from cli.wiring.output import progress
    from cli.wiring.time_arguments import at_moment
    from projections.models.projector import as_it_was, caught_up
    from projections.models.view import View

    with reading(app) as record, progress("reading the record") as advance:
        if at is None:
            look_here(app, record)
            store = caught_up(record, progress=advance)
        else:
            store = as_it_was(record, *at_moment(app, record, at), progress=advance)
        with store:
            yield record, View(store)
