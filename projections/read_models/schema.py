"""The tables of the read models; a change here needs a new VERSION, and older files are rebuilt.

Columns are those of the row's struct. `ordinal` is the order of first sight, `changed` the position of the write. A row
that a past moment still needs is kept in the `_was` table, from `changed` to the position of its rewrite, `until`.
Money is in micro-dollars, time in microseconds UTC.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Final, get_args

import msgspec
from sqlalchemy import Column, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from steno.engine.objects import RanObject, RunObject, VmObject
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm

VERSION: Final = 23

metadata = MetaData()

decode_run: Final = msgspec.msgpack.Decoder(Run).decode
decode_vm: Final = msgspec.msgpack.Decoder(Vm).decode
decode_run_object: Final = msgspec.json.Decoder(RunObject).decode
_ran_object: Final = msgspec.json.Decoder(RanObject).decode
_vm_object: Final = msgspec.json.Decoder(VmObject).decode


class RunRow(msgspec.Struct, frozen=True):
    run_id: str
    provider: str
    provider_id: str | None
    name: str | None
    state: str = ""
    ended: bool = False
    is_foreign: bool = False  # it was submitted outside Steno
    sort_at: int = 0  # when it was submitted, else first seen
    cost: int | None = None  # None: unknown
    odd: bytes | None = None  # the anomaly that its cost is, as JSON
    user: str | None = None  # who submitted it
    reason: str | None = None
    project: str | None = None
    source: str = ""  # whose polls show it, or its archive
    gpu: str = "\n"  # what it got, else what it asked for: models, also with their number, each between line ends
    vm_id: str | None = None
    part_of: str | None = None  # the provider's id of the array of which it is a task
    task: int | None = None  # its number there
    took: int | None = None  # microseconds; None: unknown
    start: str | None = None  # cold or warm; None: unknown, or no machine
    waited: int | None = None  # microseconds from submission to running; None: unknown, or tried again
    words: str = ""  # what a search looks through, in lower case: name, command, ids
    against: bytes | None = None  # `cost_rows.Against`; None: neither side charges it
    archive: str | None = None  # the archive that alone shows it; None: it is live
    hidden: bool = False  # lists leave it out
    object: bytes = b""  # the run object as JSON
    ran: bytes = b"null"  # `RanObject` as JSON
    folded: bytes = b""  # the engine's own run, so that the fold can go on; see `world_table`

    @property
    def decoded(self) -> Run:
        """The engine's own run."""
        return decode_run(self.folded)

    @property
    def public(self) -> RunObject:
        return decode_run_object(self.object)

    @property
    def executed(self) -> RanObject:
        return _ran_object(self.ran)


class VmRow(msgspec.Struct, frozen=True):
    vm_id: str
    provider_id: str
    name: str | None
    billed: bool = False  # it may be billed now; never in an archive
    ended_at: int | None = None  # None: it has not ended. In an archive, the end of its bill
    created: int = 0
    cost: int = 0  # so far
    last_at: int = 0  # the newest poll that showed it
    kind: str = ""  # machines of one kind cost the same
    gpu: str = ""  # `MI300X:2`; `none`
    spans: bytes = b"\x90"  # (since, until, cost) of its stretches at one price, as msgpack
    paid: bytes = b""  # what its bill is made of, encoded by `cost_rows`
    days: bytes = b"\x92\x90\x90"  # `MachineDays` as msgpack
    archive: str | None = None  # the archive that alone shows it; None: it is live
    hidden: bool = False  # lists leave it out
    object: bytes = b""  # the machine object as JSON
    folded: bytes = b""  # the engine's own machine; see `world_table`

    @property
    def decoded(self) -> Vm:
        """The engine's own machine."""
        return decode_vm(self.folded)

    @property
    def public(self) -> VmObject:
        return _vm_object(self.object)


PACKED: Final = ("object", "ran", "folded")
"""The last fields of a row, in this order: one column, `packed`, holds them (`row_table`)."""
_TYPES: Final[dict[Any, Any]] = {str: Text, int: Integer, bool: Integer, bytes: LargeBinary}
RUN_GOES_ON: Final = "ended = 0 AND archive IS NULL"
VM_GOES_ON: Final = "billed = 1 OR ended_at IS NULL"
SHOWN: Final = "hidden = 0"


def _column(name: str, kind: Any, **options: Any) -> Column[Any]:
    null = isinstance(kind, UnionType)
    return Column(name, _TYPES[get_args(kind)[0] if null else kind], nullable=null, **options)


def _ordinal() -> Column[Any]:
    return Column("ordinal", Integer, primary_key=True)


def _row_columns(row: type[msgspec.Struct], key: str | None = None) -> Iterator[Column[Any]]:
    yield _column("changed", int)
    for field in msgspec.structs.fields(row):
        if field.name not in PACKED:
            yield _column(field.name, field.type, unique=field.name == key or None)
    yield _column("packed", bytes)


def _added(name: str, columns: dict[str, Any], *indexes: Index) -> Table:
    """An append-only table."""
    made = (_column(column, kind) for column, kind in columns.items())
    return Table(name, metadata, _ordinal(), _column("changed", int), *made, *indexes)


meta = Table("meta", metadata, Column("key", Text, primary_key=True), _column("value", bytes), sqlite_with_rowid=False)

runs = Table(
    "runs",
    metadata,
    _ordinal(),
    *_row_columns(RunRow, "run_id"),
    Index("runs_name", "name", "ordinal"),
    Index("runs_provider_id", "provider_id"),
    Index("runs_part_of", "part_of", "task", sqlite_where=text("part_of IS NOT NULL")),
    Index("runs_open", "sort_at", sqlite_where=text(RUN_GOES_ON)),
    Index("runs_sort", "sort_at", "ordinal"),
    Index("runs_changed", "changed"),
    Index("runs_hidden", "ordinal", sqlite_where=text("hidden = 1")),
    Index("runs_odd", "ordinal", sqlite_where=text("odd IS NOT NULL")),
    # covering: how many starts, and how long they took
    Index("runs_starts", "start", "ended", "archive", "waited", "sort_at", "hidden", "changed"),
)
vms = Table(
    "vms",
    metadata,
    _ordinal(),
    *_row_columns(VmRow, "vm_id"),
    Index("vms_name", "name", "ordinal"),
    Index("vms_provider_id", "provider_id"),
    Index("vms_billed", "ordinal", sqlite_where=text("billed = 1")),
    Index("vms_hidden", "ordinal", sqlite_where=text("hidden = 1")),
    Index("vms_ended", "ended_at"),
    Index("vms_kind", "kind", "last_at"),
)
WAS: Final = {
    table.name: Table(
        f"{table.name}_was",
        metadata,
        _column("ordinal", int),
        *_row_columns(row),
        _column("until", int),
        Index(f"{table.name}_was_id", key),
    )
    for table, row, key in ((runs, RunRow, "run_id"), (vms, VmRow, "vm_id"))
}

anomalies = _added(
    "anomalies",
    {"subject": str, "position": int, "archive": str | None, "object": bytes},
    Index("anomalies_subject", "subject"),
    Index("anomalies_position", "position", "ordinal"),
)
# closed gaps; open gaps follow from the sources
blind = _added(
    "blind", {"source": str, "archive": str | None, "object": bytes}, Index("blind_source", "source", "ordinal")
)
# ends of runs, machines coming and going, anomalies; `track` is the tape's:
# 0 anomalies, 1 ends of runs, 2 machines
marks = _added(
    "marks",
    {"position": int, "at": int, "kind": str, "subject": str, "track": int},
    Index("marks_track", "track", "at", "position"),
)

# what the rules saw of each run, by its place in `runs` (`case_log`)
run_cases = Table("run_cases", metadata, Column("ordinal", Integer, primary_key=True), _column("cases", bytes))

# what filters of runs know: every value that a run had
run_values = Table(
    "run_values",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    _column("changed", int),
    sqlite_with_rowid=False,
)

# every move from state to state that the runs and the machines of a provider ever made, and its first example;
# `changed` is the position of that
moves = Table(
    "moves",
    metadata,
    *(Column(name, Text, primary_key=True) for name in ("kind", "provider", "before", "after")),
    _column("changed", int),
    _column("subject", str),
    sqlite_with_rowid=False,
)

# the fold at some evenly spaced positions: a moment is opened from the one before it
moments = Table(
    "moments",
    metadata,
    Column("position", Integer, primary_key=True),
    _column("world", bytes),
    _column("lasting", bytes),
)

# runs that a moment's own fold removed
gone = Table("gone", metadata, Column("run_id", Text, primary_key=True), sqlite_with_rowid=False)


ORDERED: Final = (runs, vms, anomalies, blind, marks)  # tables in order of first sight


@cache
def ddl() -> str:
    """The SQLite script that creates the tables."""
    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in metadata.tables.values():
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes]
    return ";".join(statements) + ";"


def views_below(position: int) -> str:
    """Views in an empty store of what the attached store `base` knew at a moment, below the empty store's own rows."""
    views = []
    then = f"WHERE changed <= {position}"
    for table, key in ((runs, "run_id"), (vms, "vm_id")):
        columns = ", ".join(table.columns.keys())
        below = f"AND {key} NOT IN (SELECT {key} FROM main.{table})"  # noqa: S608 - names of ours
        below += " AND run_id NOT IN (SELECT run_id FROM main.gone)" if table is runs else ""
        views.append(
            f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table} "  # noqa: S608
            f"UNION ALL SELECT {columns} FROM base.{table} {then} {below} "
            f"UNION ALL SELECT {columns} FROM base.{table}_was {then} AND until > {position} {below}"
        )
    for notes in (anomalies, blind, marks, run_values, moves):
        columns = ", ".join(notes.columns.keys())
        views.append(
            f"CREATE TEMP VIEW {notes} AS SELECT {columns} FROM main.{notes} "  # noqa: S608
            f"UNION ALL SELECT {columns} FROM base.{notes} {then}"
        )
    return ";".join(views)
