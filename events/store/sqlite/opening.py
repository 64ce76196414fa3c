"""Checks before a SQLite record is used: its file, its description of itself, its head. Nothing is written."""

import os
import sqlite3
import stat
import struct
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from events.errors import (
    NotARecord,
    RecordDamaged,
    RecordNotFound,
    RecordNotWritable,
    RecordTooNew,
    RecordTooOld,
)
from events.store.chain import MARK_BYTES, mark
from events.store.schema import APPLICATION_ID, FORMAT, REVISION, REVISIONS, events, head, meta, revision
from events.store.sqlite.connection import may_write, while_closed
from events.store.store import Identity

_MAGIC: Final = b"SQLite format 3\x00"


def expect_file(path: Path) -> None:
    """Read the first bytes of the file, without SQLite, which might write; not where we have it open already."""
    with while_closed(path) as may:
        if may:
            _look_at(path)


def _look_at(path: Path) -> None:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise NotARecord(f"{path} is a pipe or a device, not a record.")
        with path.open("rb") as file:
            first = file.read(100)
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        raise RecordNotFound(f"There is no record at {path}: `steno record` or `steno import` makes one.") from None
    except IsADirectoryError:
        raise NotARecord(f"{path} is a folder, not a record.") from None
    except OSError as error:
        raise RecordNotWritable(f"The record {path} cannot be opened ({error.strerror}).") from error
    if len(first) < 100 and _MAGIC.startswith(first[:16]):
        raise RecordDamaged(f"The record {path} is cut to {size} bytes: restore it from a copy.")
    if not first.startswith(_MAGIC):
        raise NotARecord(f"{path} is not a Steno record.")
    page_size, pages, application = _header_of(first)
    if application != APPLICATION_ID:
        raise NotARecord(f"{path} is a SQLite file, but not a Steno record.")
    wal = path.with_name(path.name + "-wal")
    if size < page_size * pages and not (wal.exists() and wal.stat().st_size):
        raise RecordDamaged(
            f"The record {path} is cut: {size} of {page_size * pages} bytes are there; restore it from a copy."
        )


def _header_of(first: bytes) -> tuple[int, int, int]:
    (page_size,) = struct.unpack_from(">H", first, 16)
    (pages,) = struct.unpack_from(">I", first, 28)
    (application,) = struct.unpack_from(">I", first, 68)
    return 65536 if page_size == 1 else page_size, pages, application


def expect_writable(path: Path) -> None:
    if not may_write(path):
        raise RecordNotWritable(
            f"The record {path} is read-only: change its permissions or give another with --record."
        )
    if not may_write(path.parent):
        raise RecordNotWritable(f"The folder {path.parent} is read-only, and a record is written beside itself.")


def read_identity(connection: Connection, path: Path, *, write: bool) -> Identity:
    """What the record says of itself; `write`: its schema must be this version's, else an older one will do.

    Raises:
        RecordDamaged, RecordTooNew, RecordTooOld: as they say.
    """
    try:
        schema = connection.execute(select(revision.c.version_num)).scalar()
        found = _described(connection)
        identity = Identity(
            format=int(found["format"]),
            record_id=found["record_id"].decode(),
            key=found["key"],
            created_at=int(found["created_at"]),
        )
    except (DBAPIError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, DBAPIError) and "no such table" not in str(error):
            raise
        raise RecordDamaged(f"The record {path} has lost its own description: restore it from a copy.") from error
    if identity.format > FORMAT or (schema is not None and str(schema) > REVISION):
        raise _too_new(path, schema)
    if schema not in REVISIONS or identity.format < 1:
        raise RecordDamaged(f"The record {path} does not say its schema: restore it from a copy.")
    if write and schema != REVISION:
        raise RecordTooOld(
            f"The record {path} has schema {schema}, this version writes {REVISION}: "
            f"run `steno db upgrade --record {path}`."
        )
    return identity


def read_damaged_identity(connection: Connection, path: Path) -> Identity:
    """As `read_identity`, as far as it can be read: verify names what is wrong with it.

    Raises:
        RecordTooNew: a schema of a later version is not ours to judge.
    """
    try:
        revisions = connection.execute(select(revision.c.version_num)).scalars().all()
    except (DBAPIError, sqlite3.Error):
        revisions = []
    if len(revisions) == 1 and str(schema := revisions[0]) > REVISION:
        raise _too_new(path, schema)
    try:
        found = _described(connection)
    except (DBAPIError, sqlite3.Error, TypeError):
        found = {}
    return Identity(
        format=_whole_number(found.get("format")),
        record_id=found.get("record_id", b"").decode("utf-8", "replace"),
        key=found.get("key", b""),
        created_at=_whole_number(found.get("created_at")),
    )


def expect_head(connection: Connection, path: Path, identity: Identity) -> None:
    """The head names the newest event.

    Raises:
        RecordDamaged: it does not.
    """
    # In one transaction: another process may append between the two questions.
    connection.exec_driver_sql("BEGIN")
    try:
        ends = connection.execute(select(head.c.position, head.c.hash)).one_or_none()
        last = connection.execute(
            select(events.c.position, events.c.hash).order_by(events.c.position.desc()).limit(1)
        ).one_or_none()
    finally:
        connection.rollback()
    if ends is not None and last is None and ends[0] == 0 and ends[1] == identity.genesis():
        return
    if (
        ends is None
        or last is None
        or ends[0] != last[0]
        or ends[1][:MARK_BYTES] != last[1][:MARK_BYTES]
        or mark(ends[0], ends[1]) != last[1]
    ):
        raise RecordDamaged(f"The newest events of the record {path} are missing or changed: run `steno verify`.")


def _described(connection: Connection) -> dict[str, bytes]:
    return {str(key): bytes(value) for key, value in connection.execute(select(meta.c.key, meta.c.value))}


def _too_new(path: Path, schema: object) -> RecordTooNew:
    return RecordTooNew(f"The record {path} was written by a newer version (schema {schema}): update steno.")


def _whole_number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1
