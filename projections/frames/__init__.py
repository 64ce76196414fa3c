"""A record as tables: Arrow, pandas and polars frames of any moment.

from steno.projections.frames import costs, runs

runs("record.db").to_pandas()
costs("postgresql://db/steno", at="2026-11-20T15:00:00Z").to_polars()
polls().to_arrow()  # of the record that `steno` uses here

`record` is a path, a URL or an open record; None: the one of the settings. `at` is a position, an ISO time (UTC where
it names no zone) or a datetime; None: now. `known` beside it, a later such moment or "now": by what was known then. A
frame keeps no rows: each use of it reads the record again, with None as the record is by then. docs/questions.md has
the columns. Money is in whole micro-dollars, times are UTC.
"""

from typing import Protocol

from steno.events.store.record import Record
from steno.events.store.store import Where
from steno.projections.frames.catalogue import TABLES
from steno.projections.frames.source import At, Known, opened
from steno.projections.frames.table import ArrowFrame


def frame(name: str, record: Where | Record | None = None, at: At = None, known: Known = None) -> ArrowFrame:
    """The table of that name (`TABLES`)."""
    where = _record_of_settings() if record is None else record
    return ArrowFrame(TABLES[name], lambda: opened(where, at, known))


class TableFunction(Protocol):
    """`runs(record, at=…)`: the table of its name."""

    __name__: str

    def __call__(self, record: Where | Record | None = None, *, at: At = None, known: Known = None) -> ArrowFrame: ...


def _function(name: str) -> TableFunction:
    def table(record: Where | Record | None = None, *, at: At = None, known: Known = None) -> ArrowFrame:
        return frame(name, record, at, known)

    table.__name__ = table.__qualname__ = name
    table.__doc__ = TABLES[name].row
    return table


polls, events = _function("polls"), _function("events")
runs, transitions, samples = _function("runs"), _function("transitions"), _function("samples")
machines, intervals, costs = _function("machines"), _function("intervals"), _function("costs")


def _record_of_settings() -> str:
    """The record that `steno` uses in this folder."""
    from steno.engine.providers.registry import settings_here

    return settings_here({}).record
