"""Opens the file of a record: refuses what is none, is damaged, too new or not writable, and writes nothing when it
refuses.
"""

import fcntl
import os
import secrets
import sqlite3
import stat
import struct
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from events.clock import Clock
from events.errors import (
    NotARecord,
    RecordDamaged,
    RecordLocked,
    RecordNotFound,
    RecordNotWritable,
    RecordTooNew,
)
from events.store import open_files as held
from events.store.chain import MARK_BYTES, genesis, mark
from events.store.open_files import before_anybody
from events.store.schema import APPLICATION_ID, FORMAT, REVISION, head, meta

BUSY_TIMEOUT: Final = 5.0
"""Seconds a writer waits for another before it gives up."""

_MAGIC: Final = b"SQLite format 3\x00"
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNWRITABLE: Final = frozenset(
    {
        sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_TOOBIG,
    }
)  # fmt: skip


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What `meta` says of a record."""

    format: int
    record_id: str
    key: bytes
    created_at: int

    def genesis(self) -> bytes:
        """The hash before position 1, which holds all of this."""
        return genesis(self.format, self.record_id, self.created_at, self.key)


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An open record, before anything is done with it."""

    url: str
    path: Path
    connection: Connection
    identity: Identity


def path_of(where: str | Path) -> Path:
    """The file of a record: a path as it is, or the path in a SQLite URL.

    Raises:
        NotARecord: the URL names no file we can keep a record in.
    """
    text = str(where)
    if "://" not in text:
        return Path(text).expanduser()
    try:
        url = make_url(text)
    except ArgumentError:
        raise NotARecord(f"{text} is not a database URL: give a path or sqlite:///PATH.") from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise NotARecord(f"A record is kept in a SQLite file: give a path or sqlite:///PATH, not {url!r}.")
    return Path(url.database).expanduser()


def open_record(where: str | Path, *, write: bool, create: bool, check: bool, clock: Clock) -> Opened:
    """A connection to the record, checked.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: nothing was written.
    """
    path = path_of(where)
    if write and create and not _has_content(path):
        _create(path, clock)
    _look(path)
    if write:
        _expect_writable(path)
    connection = _connect(path, write=write)
    try:
        with translated(str(path)):
            if check:
                identity = _identity(connection, path)
                _expect_head(connection, path, identity)
            else:
                _expect_no_newer(connection, path)
                identity = _identity_as_it_is(connection)
    except BaseException:
        connection.close()
        raise
    return Opened(url=f"sqlite:///{path}", path=path, connection=connection, identity=identity)


@contextmanager
def connect_for_upgrade(where: str | Path) -> Iterator[Connection]:
    """A connection inside a write transaction, to a record whose schema may be old.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: nothing was written.
    """
    path = path_of(where)
    _look(path)
    _expect_writable(path)
    connection = _connect(path, write=True)
    try:
        with translated(str(path)):
            _identity(connection, path)
            connection.rollback()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
    finally:
        connection.close()


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns SQLite's and the system's errors into ours."""
    try:
        yield
    except DBAPIError as error:
        raise _ours(error.orig, where) from error
    except sqlite3.Error as error:
        raise _ours(error, where) from error
    except UnicodeDecodeError as error:
        # SQLite quotes damaged text in its messages; Python cannot read them.
        raise _ours(None, where) from error
    except OSError as error:
        raise RecordNotWritable(f"The record {where} cannot be written ({error.strerror}).") from error


def _ours(error: BaseException | None, where: str) -> Exception:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _LOCKED:
        return RecordLocked(f"The record {where} is held by another process: try again when it is done.")
    if code == sqlite3.SQLITE_FULL:
        full = f"The disk of the record {where} is full"
        return RecordNotWritable(f"{full}: make room and try again; what was acknowledged is there.")
    if code in _UNWRITABLE:
        return RecordNotWritable(f"The record {where} cannot be written ({error}): check its disk and permissions.")
    if code == sqlite3.SQLITE_NOTADB:
        return NotARecord(f"{where} is not a Steno record.")
    why = "" if error is None else f" ({error})"
    return RecordDamaged(f"The record {where} is damaged{why}: run `steno verify`, restore it from a copy.")


def _has_content(path: Path) -> bool:
    try:
        found = path.stat()
        # A pipe or a device has no size; a record must not take its place.
        return found.st_size > 0 or not stat.S_ISREG(found.st_mode) or path.with_name(path.name + ".vault").exists()
    except OSError:
        return False


def _look(path: Path) -> None:
    """Read the first bytes of the file, without SQLite, which might write; not where we have it open already."""
    with before_anybody(path) as may:
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


def _may_write(path: Path) -> bool:
    """Whether this process may, as it acts now: by its effective user and capabilities where the system can tell."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _expect_writable(path: Path) -> None:
    if not _may_write(path):
        raise RecordNotWritable(
            f"The record {path} is read-only: change its permissions or give another with --record."
        )
    if not _may_write(path.parent):
        raise RecordNotWritable(f"The folder {path.parent} is read-only, and a record is written beside itself.")


def _connect(path: Path, *, write: bool) -> Connection:
    uri = f"file:{quote(str(path.absolute()))}"
    # A reader of a WAL file makes files beside it; only a connection that could write takes them away again.
    open_wide = write or (_may_write(path) and _may_write(path.parent))
    if open_wide:
        uri += "?mode=rw"
    elif path.with_name(path.name + "-wal").exists():
        uri += "?mode=ro"
    else:
        # Where nothing can be made, nobody is writing either.
        uri += "?mode=ro&immutable=1"

    def connect() -> sqlite3.Connection:
        made = held.connect(path, uri, BUSY_TIMEOUT)
        if not write:
            made.execute("PRAGMA query_only = ON")
        # A reader passes over pages once, and the system keeps them too; a writer comes back to its indexes.
        made.execute(f"PRAGMA cache_size = -{16_000 if write else 1_000}")
        made.execute("PRAGMA synchronous = NORMAL")
        return made

    with translated(str(path)):
        return create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool).connect()


def _identity(connection: Connection, path: Path) -> Identity:
    try:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        found = {str(key): bytes(value) for key, value in connection.exec_driver_sql("SELECT key, value FROM meta")}
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
    if identity.format > FORMAT or (isinstance(revision, str) and revision > REVISION):
        raise _too_new(path, revision)
    if revision != REVISION or identity.format < 1:
        raise RecordDamaged(f"The record {path} does not say its schema: restore it from a copy.")
    return identity


def _expect_no_newer(connection: Connection, path: Path) -> None:
    """A schema of a later version is not ours to judge; one that cannot be read at all is damage to be named."""
    try:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchall()
    except (DBAPIError, sqlite3.Error):
        return
    if len(found) == 1 and isinstance(revision := found[0][0], str) and revision > REVISION:
        raise _too_new(path, revision)


def _too_new(path: Path, revision: object) -> RecordTooNew:
    return RecordTooNew(f"The record {path} was written by a newer version (schema {revision}): update steno.")


def _identity_as_it_is(connection: Connection) -> Identity:
    """What can be read of the description of a record that is to be verified, damaged or not."""
    try:
        found = {str(key): bytes(value) for key, value in connection.exec_driver_sql("SELECT key, value FROM meta")}
    except (DBAPIError, sqlite3.Error, TypeError):
        found = {}
    return Identity(
        format=_whole_number(found.get("format")),
        record_id=found.get("record_id", b"").decode("utf-8", "replace"),
        key=found.get("key", b""),
        created_at=_whole_number(found.get("created_at")),
    )


def _whole_number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1


def _expect_head(connection: Connection, path: Path, identity: Identity) -> None:
    """The head names the newest event."""
    # In one transaction: another process may append between the two questions.
    connection.exec_driver_sql("BEGIN")
    try:
        head = connection.exec_driver_sql("SELECT position, hash FROM head").one_or_none()
        last = connection.exec_driver_sql(
            "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"
        ).one_or_none()
    finally:
        connection.rollback()
    if head is not None and last is None and head[0] == 0 and head[1] == identity.genesis():
        return
    if (
        head is None
        or last is None
        or head[0] != last[0]
        or bytes(head[1])[:MARK_BYTES] != bytes(last[1])[:MARK_BYTES]
        or mark(head[0], bytes(head[1])) != bytes(last[1])
    ):
        raise RecordDamaged(f"The newest events of the record {path} are missing or changed: run `steno verify`.")


def _create(path: Path, clock: Clock) -> None:
    """Make the record, whole or not at all; if another process has made it meanwhile, that one's stands."""
    with translated(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not _has_content(path):
                _create_beside(path, clock)
                os.fsync(folder)
        finally:
            os.close(folder)


def _create_beside(path: Path, clock: Clock) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(descriptor)
    made = Path(name)
    try:
        _fill(made, clock)
        made.replace(path)
    finally:
        for left in (name, f"{name}-wal", f"{name}-shm", f"{name}-journal"):
            Path(left).unlink(missing_ok=True)


def _fill(path: Path, clock: Clock) -> None:
    """Schema, description and head of a new record."""
    from events.store.migrate import upgrade_connection

    connect = partial(sqlite3.connect, path, isolation_level=None, timeout=BUSY_TIMEOUT)
    with create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool).connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        upgrade_connection(connection)
        identity = Identity(
            format=FORMAT, record_id=str(uuid.uuid4()), key=secrets.token_bytes(32), created_at=clock.now()
        )
        described = {
            "format": str(identity.format).encode(),
            "record_id": identity.record_id.encode(),
            "key": identity.key,
            "created_at": str(identity.created_at).encode(),
        }
        connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in described.items()])
        connection.execute(head.insert(), {"id": 1, "position": 0, "hash": identity.genesis()})
        connection.commit()
