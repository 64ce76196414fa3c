"""The tables of the read models; a change here is a new VERSION, and older ones are built again.

`changed` is the position a row was written at. A row that a moment of the past still needs is kept in the table of the
same name with `_was`, from `changed` up to the position where it was written again: `until`. Money is in micro-dollars,
time in microseconds, UTC.
"""

from functools import cache
from typing import Any, Final

from sqlalchemy import Column, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

VERSION: Final = 8

metadata = MetaData()


def _integer(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, Integer, nullable=null)


def _text(name: str, *, null: bool = False, unique: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=null, unique=unique or None)


def _bytes(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, LargeBinary, nullable=null)


def _ordinal() -> Column[Any]:
    """The place in order of first sight."""
    return Column("ordinal", Integer, primary_key=True)


def _run_columns(*, unique: bool) -> list[Column[Any]]:
    return [
        _text("run_id", unique=unique),
        _text("provider"),
        _text("provider_id", null=True),
        _text("name", null=True),
        _text("state"),
        _integer("ended"),
        _integer("sort_at"),  # when it was submitted, else first seen
        _integer("changed"),
        _integer("cost", null=True),  # NULL: unknown
        _bytes("odd", null=True),  # the anomaly that its cost is, JSON; NULL: none
        _text("user", null=True),  # who submitted it
        _bytes("against", null=True),  # its cost against the provider's figure, msgpack; NULL: neither charges it
        _text("archive", null=True),  # the archive that alone shows it; NULL: it is live
        _integer("hidden"),  # lists leave it out
        _bytes("object"),  # the run object, JSON
        _bytes("folded"),  # the engine's own run, so that the fold can go on
    ]


def _vm_columns(*, unique: bool) -> list[Column[Any]]:
    return [
        _text("vm_id", unique=unique),
        _text("provider_id"),
        _text("name", null=True),
        _integer("billed"),  # it may be billed now; never in an archive
        _integer("ended_at", null=True),  # NULL: it has not ended; in an archive, the end of its bill
        _integer("created"),
        _integer("changed"),
        _integer("cost"),  # so far
        _integer("last_at"),  # the newest poll that showed it
        _text("kind"),  # machines of one kind cost the same
        _bytes("spans"),  # (since, until, cost) of stretches at one price, msgpack
        _bytes("paid"),  # what its bill is made of, msgpack
        _text("archive", null=True),  # the archive that alone shows it; NULL: it is live
        _integer("hidden"),  # lists leave it out
        _bytes("object"),  # the machine object, JSON
        _bytes("folded"),  # the engine's own machine
    ]


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


Table("meta", metadata, Column("key", Text, primary_key=True), _bytes("value"), sqlite_with_rowid=False)

runs = Table(
    "runs",
    metadata,
    _ordinal(),
    *_run_columns(unique=True),
    Index("runs_name", "name", "ordinal"),
    Index("runs_provider_id", "provider_id", "provider"),
    Index("runs_open", "sort_at", **_where("ended = 0 AND archive IS NULL")),
    Index("runs_sort", "sort_at", "ordinal"),
    Index("runs_state", "state", "sort_at", "ordinal"),
    Index("runs_changed", "changed"),
    Index("runs_hidden", "ordinal", **_where("hidden = 1")),
    Index("runs_odd", "ordinal", **_where("odd IS NOT NULL")),
    # all that costs are summed from
    Index("runs_against", "run_id", "name", "user", "against", "hidden", "changed"),
)
Table(
    "runs_was",
    metadata,
    _integer("ordinal"),
    *_run_columns(unique=False),
    _integer("until"),
    Index("runs_was_id", "run_id"),
)

vms = Table(
    "vms",
    metadata,
    _ordinal(),
    *_vm_columns(unique=True),
    Index("vms_name", "name", "ordinal"),
    Index("vms_provider_id", "provider_id"),
    Index("vms_billed", "ordinal", **_where("billed = 1")),
    Index("vms_hidden", "ordinal", **_where("hidden = 1")),
    Index("vms_ended", "ended_at"),
    Index("vms_kind", "kind", "last_at"),
    Index("vms_cost", "archive", "cost", "created", "changed"),
    # all that the curve of what was spent is drawn from
    Index("vms_spans", "archive", "spans", "changed"),
    # all that costs are summed from
    Index("vms_paid", "vm_id", "name", "paid", "archive", "hidden", "changed"),
)
Table(
    "vms_was",
    metadata,
    _integer("ordinal"),
    *_vm_columns(unique=False),
    _integer("until"),
    Index("vms_was_id", "vm_id"),
)

anomalies = Table(
    "anomalies",
    metadata,
    _ordinal(),
    _integer("changed"),
    _text("subject"),
    _integer("position"),
    _text("archive", null=True),
    _bytes("object"),
    Index("anomalies_subject", "subject"),
    Index("anomalies_position", "position", "ordinal"),
)

# gaps that are over; the open ones follow from the sources
blind = Table(
    "blind",
    metadata,
    _ordinal(),
    _integer("changed"),
    _text("source"),
    _text("archive", null=True),
    _bytes("object"),
    Index("blind_source", "source", "ordinal"),
)

# what a person looks for in time: ends of runs, machines coming and going, anomalies
marks = Table(
    "marks",
    metadata,
    _ordinal(),
    _integer("changed"),
    _integer("position"),
    _integer("at"),
    _text("kind"),
    _text("subject"),
    _integer("track"),  # of the tape: 0 anomalies, 1 ends of runs, 2 machines
    Index("marks_track", "track", "at", "position"),
)

# the fold as it was at some positions, evenly spaced: any moment is opened from the one before it
Table("moments", metadata, Column("position", Integer, primary_key=True), _bytes("world"), _bytes("lasting"))

# runs that a moment's own fold took away
Table("gone", metadata, Column("run_id", Text, primary_key=True), sqlite_with_rowid=False)


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


RUN_COLUMNS: Final = _names(runs)
VM_COLUMNS: Final = _names(vms)
NOTES: Final = {table.name: _names(table) for table in (anomalies, blind, marks)}
"""Tables that only grow, with their columns."""


@cache
def ddl() -> str:
    """The statements that make the tables in SQLite, as one script."""
    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in metadata.tables.values():
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes]
    return ";".join(statements) + ";"


def seen_at(position: int) -> str:
    """Views in an empty store that show what the attached store `base` knew at one of its moments, below what the empty
    store itself gets.
    """
    found = []
    for table, columns, key in (("runs", RUN_COLUMNS, "run_id"), ("vms", VM_COLUMNS, "vm_id")):
        newer = f"AND {key} NOT IN (SELECT {key} FROM main.{table})"  # noqa: S608 - names of ours
        newer += " AND run_id NOT IN (SELECT run_id FROM main.gone)" if table == "runs" else ""
        found.append(
            f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table} "  # noqa: S608
            f"UNION ALL SELECT {columns} FROM base.{table} WHERE changed <= {position} {newer} "
            f"UNION ALL SELECT {columns} FROM base.{table}_was "
            f"WHERE changed <= {position} AND until > {position} {newer}"
        )
    found += [
        f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table} "  # noqa: S608
        f"UNION ALL SELECT {columns} FROM base.{table} WHERE changed <= {position}"
        for table, columns in NOTES.items()
    ]
    return ";".join(found)
