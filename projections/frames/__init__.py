"""A record as tables: Arrow, pandas and polars frames of any moment.

from projections.frames import costs, runs

runs("record.db").to_pandas()
costs("postgresql://db/steno", at="2026-11-20T15:00:00Z").to_polars()
polls().to_arrow()  # of the record that `steno` uses here

`record` is a path, a URL or an open record; None: the one of the settings. `at` is a position, an ISO time (UTC where
it names no zone) or a datetime; None: now. A frame keeps no rows: each use of it reads the record
again, with None as the record is by then. docs/questions.md has the columns. Money is in whole micro-dollars, times are
UTC.
"""

from typing import TYPE_CHECKING

from projections.frames.arrow import ArrowFrame
from projections.frames.catalogue import TABLES
from projections.frames.source import At, opened

if TYPE_CHECKING:
    from events.store.record import Record
    from events.store.store import Where


def frame(name: str, record: "Where | Record | None" = None, at: At = None) -> ArrowFrame:
    """The table of that name (`TABLES`)."""
    where = _record_of_settings() if record is None else record
    return ArrowFrame(TABLES[name], lambda: opened(where, at))


def polls(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """Questions to providers, without their answers."""
    return frame("polls", record, at)


def events(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """Every event of the record."""
    return frame("events", record, at)


def runs(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """Runs: verdicts, times, costs."""
    return frame("runs", record, at)


def transitions(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """Changes of the states of runs."""
    return frame("transitions", record, at)


def machines(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """Machines with their bills."""
    return frame("machines", record, at)


def intervals(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """The phases of machines."""
    return frame("intervals", record, at)


def costs(record: "Where | Record | None" = None, *, at: At = None) -> ArrowFrame:
    """The sums of machines' bills, and who pays them."""
    return frame("costs", record, at)


def _record_of_settings() -> str:
    """The record that `steno` uses in this folder."""
    import os
    from pathlib import Path

    from platformdirs import user_config_path, user_data_path

    from engine.providers.registry import load_settings

    return load_settings(
        flags={},
        environ=os.environ,
        cwd=Path.cwd(),
        home=Path.home(),
        config=user_config_path("steno"),
        data=user_data_path("steno"),
    ).record
