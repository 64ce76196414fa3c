"""A whole SQLite record: its file, its schema, its description of itself, its head."""

import os
import re
import sqlite3
import stat
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine, select, text
from sqlalchemy.exc import DBAPIError

from steno.events.errors import NotARecord, RecordDamaged, RecordNotFound, RecordNotWritable
from steno.events.store.schema import REFUSED, make_tables, meta, migrate, revision
from steno.events.store.sqlite.connection import may_write, while_closed
from steno.events.store.store import REVISION, REVISIONS, SQLITE, Identity
from steno.events.store.store import read_identity as checked_identity

_APPLICATION_ID: Final = 0x53544E4F  # `STNO`, at byte 68 of the file: tells a record from other SQLite files

_QUOTED: Final = re.compile(r'"(\w+)"')
_LAYOUT: Final = re.compile(r" ?([(),]) ?")

_SEALED: Final = text("SELECT 1 FROM sealed LIMIT 1")  # a table of schema 0003 only


def schema_damage(connection: Connection) -> Iterator[tuple[None, str, str]]:
    """(None, kind, detail) of each deviation from the schema of the record's revision."""
    expected = expected_schema(str(connection.execute(select(revision.c.version_num)).scalar()))
    schema = described(connection)
    for name in expected.keys() | schema.keys():
        kind = expected.get(name, schema.get(name, ("", "")))[0]
        what = "trigger" if kind == "trigger" else "schema"
        if name not in schema:
            yield None, what, f"{kind} {name} is missing"
        elif name not in expected:
            yield None, what, f"{kind} {name} does not belong here"
        elif expected[name] != schema[name]:
            yield None, what, f"{kind} {name} was changed"


@cache
def expected_schema(version: str = REVISION) -> dict[str, tuple[str, ...]]:
    """By name: kind, table and plain SQL of everything in a record of a revision."""
    with create_engine("sqlite://").begin() as connection:
        if version in REVISIONS[:-1]:
            migrate(connection, version)
        else:
            create(connection)
        return described(connection)


def create(connection: Connection) -> None:
    """Make the newest schema in an empty database."""
    make_tables(connection)
    for verb, tables in REFUSED.items():
        for table in tables:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
                f"BEGIN SELECT RAISE(ABORT, 'the record is append-only: no {verb} on {table.name}'); END"
            )
    connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")


def described(connection: Connection) -> dict[str, tuple[str, ...]]:
    """By name: kind, table and plain SQL of everything in a database."""
    rows = connection.exec_driver_sql("SELECT name, type, tbl_name, sql FROM sqlite_schema").fetchall()
    return {str(name): (str(kind), str(table), plain_sql(sql)) for name, kind, table, sql in rows}


def plain_sql(sql: object) -> str:
    """SQL without layout and quotes around names, which differ between writers."""
    return _LAYOUT.sub(r"\1", _QUOTED.sub(r"\1", " ".join(str(sql).split())))


def expect_file(path: Path, *, write: bool) -> None:
    """Check that it is a record that may be read, or written, by file mode and first bytes."""
    _expect_record(path)
    if write and not may_write(path):
        raise RecordNotWritable(
            f"The record {path} is read-only: change its permissions or give another with --record."
        )
    if write and not may_write(path.parent):
        raise RecordNotWritable(f"The folder {path.parent} is read-only, and a record is written beside itself.")


def _expect_record(path: Path) -> None:
    """Read the first bytes of the file without SQLite, which might write; skipped if we have it open already."""
    try:
        there = path.stat()
        if not stat.S_ISREG(there.st_mode) and not stat.S_ISDIR(there.st_mode):
            raise NotARecord(f"{path} is a pipe or a device, not a record.")
        if stat.S_ISREG(there.st_mode) and there.st_nlink > 1:  # SQLite keeps a log for each name, and loses events
            raise RecordNotWritable(
                f"The record {path} has {there.st_nlink} hard links: stop what uses it and remove the others "
                f"(`find -samefile {path}`), or open a copy."
            )
        with while_closed(path) as may:
            if not may:
                return
            with path.open("rb") as file:
                first = file.read(100)
                size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        raise RecordNotFound(f"There is no record at {path}: `steno record` or `steno import` makes one.") from None
    except IsADirectoryError:
        raise NotARecord(f"{path} is a folder, not a record.") from None
    except OSError as error:
        raise RecordNotWritable(f"The record {path} cannot be opened ({error.strerror}).") from error
    if len(first) < 100 and SQLITE.startswith(first[:16]):
        raise RecordDamaged(f"The record {path} is cut to {size} bytes: restore it from a copy.")
    if not first.startswith(SQLITE):
        raise NotARecord(f"{path} is not a Steno record.")
    page_size, pages, application = struct.unpack(">16x H 10x I 36x I 28x", first)
    if application != _APPLICATION_ID:
        raise NotARecord(f"{path} is a SQLite file, but not a Steno record.")
    whole = pages * (65536 if page_size == 1 else page_size)
    wal = path.with_name(path.name + "-wal")
    if size < whole and not (wal.exists() and wal.stat().st_size):
        raise RecordDamaged(f"The record {path} is cut: {size} of {whole} bytes are there; restore it from a copy.")


def read_identity(connection: Connection, path: Path, *, write: bool, check: bool = True) -> Identity:
    """The record's description of itself, as `steno.events.store.store.read_identity`."""
    revisions: list[str] = []
    description: dict[str, bytes] = {}
    sealed = False
    try:
        revisions += map(str, connection.execute(select(revision.c.version_num)).scalars())
        description |= {str(key): bytes(value) for key, value in connection.execute(select(meta.c.key, meta.c.value))}
        sealed = revisions == ["0003"] and connection.execute(_SEALED).scalar() is not None
    except (DBAPIError, sqlite3.Error, TypeError) as error:
        if check and not isinstance(error, TypeError) and "no such table" not in str(error):
            raise
    return checked_identity(revisions, description, str(path), write=write, check=check, sealed=sealed)
