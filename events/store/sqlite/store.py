"""The SQLite store: a record in one file, its company in files beside it."""

import glob
import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from sqlalchemy import (
    Connection,
    Executable,
    bindparam,
    create_engine,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from steno.events.clock import Clock
from steno.events.errors import RecordLocked, RecordNotWritable, RecordReplaced, StenoError
from steno.events.store.rows import HEAD, expect_head
from steno.events.store.schema import compiled, events, head, meta, migrate, parts, revision, streams
from steno.events.store.sqlite.connection import (
    Dialect,
    connect,
    file_id,
    is_in_use,
    may_write,
    own_head,
    translated,
    was_written_over,
)
from steno.events.store.sqlite.files import FileBlob, last_holder, locked, sync_folder, take_lease
from steno.events.store.sqlite.opening import create, expect_file, read_identity, schema_damage
from steno.events.store.store import (
    REVISION,
    Holder,
    Identity,
    Lease,
    Store,
    StoreStatus,
    described,
    expect_nobody_acts,
    new_identity,
)
from steno.events.store.verify import Verifier

_EVENT_ROW: Final = re.compile(r"^row (\d+) missing from index events_")
_DIALECT: Final = Dialect(paramstyle="qmark")

_ADVANCE: Final = update(head).values(position=bindparam("at"), hash=bindparam("digest"))
_INSERT: Final = insert(events)
_STREAM: Final = select(streams).where(streams.c.name == bindparam("stream"))
_NEW_STREAM: Final = insert(streams).values(name=bindparam("stream"), version=literal_column("0"))
_MOVE: Final = (
    update(streams)
    .values(version=bindparam("now"), item_id=bindparam("item"), since=bindparam("asked"))
    .where(streams.c.id == bindparam("stream"))
)
_COMPANY: Final = ("vault", "tokens", "local")  # what must not be passed over
_ENDINGS: Final = ("-wal", "-shm", "")
_FIND_PART: Final = select(parts.c.id).where(parts.c.commitment == bindparam("commitment_"))
_NEW_PART: Final = text(
    "INSERT INTO parts (commitment, base_id, encoding, crc, data) VALUES (:commitment, :base, :encoding, :crc, :data) "
    "ON CONFLICT (commitment) DO NOTHING"
)


class SqliteSession:
    """An open connection to a record in a file."""

    def __init__(self, path: Path, connection: Connection, identity: Identity) -> None:
        self.connection = connection
        self.identity = identity
        self._where = str(path.absolute())
        self._file = file_id(path)
        self._full = False

    def guard(self) -> AbstractContextManager[None]:
        return translated(self._where)

    def run(self, statement: Executable, *given: object) -> sqlite3.Cursor:
        return self._driver.execute(compiled(statement, _DIALECT, self.identity.schema), given)

    def stream(self, statement: Executable) -> sqlite3.Cursor:
        return self.run(statement)

    def expect_in_place(self) -> None:
        if file_id(self._where) != self._file or (self._file is not None and was_written_over(self._where)):
            raise RecordReplaced(
                f"The record {self._where} was moved, removed or replaced while it was open, and nothing more is "
                "written to it: move it back, or start again with its new name."
            )

    def begin(self, *, durable: bool, locked: bool) -> tuple[int, bytes]:  # noqa: ARG002 - it always is
        execute = self.connection.exec_driver_sql
        if durable is not self._full:
            execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._full = durable
        execute("BEGIN IMMEDIATE")
        self.expect_in_place()
        ends: tuple[int, bytes] = self.run(HEAD).fetchone()
        return ends

    def bind(self, leases: Sequence[Lease]) -> None:
        """A locked file falls with its process, and with nothing else."""

    def find_stream(self, name: str) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.run(_STREAM, name).fetchone()
        return row

    def add_stream(self, name: str) -> int:
        return cast(int, self.run(_NEW_STREAM, name).lastrowid)  # RETURNING takes twice as long

    def add_part(self, commitment: bytes, base: int | None, encoding: int, crc: int, data: bytes) -> tuple[int, bool]:
        cursor = self.run(_NEW_PART, commitment, base, encoding, crc, data)
        if cursor.rowcount:
            return cast(int, cursor.lastrowid), True
        return int(self.run(_FIND_PART, commitment).fetchone()[0]), False

    def add_events(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._driver.executemany(compiled(_INSERT, _DIALECT), rows)

    def commit(self, end: tuple[int, bytes], streams: Sequence[tuple[int | None, ...]]) -> None:
        if streams:
            self._driver.executemany(compiled(_MOVE, _DIALECT), streams)
            self.run(_ADVANCE, *end)
        self.connection.commit()

    def rollback(self) -> None:
        try:
            self.connection.rollback()
        except (DBAPIError, sqlite3.Error):
            self.connection.invalidate()
            self._full = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:  # a signal may raise as soon as the transaction is there
            self.connection.exec_driver_sql("BEGIN")
            yield
        finally:
            self.rollback()

    def shrink(self) -> None:
        self._driver.execute("PRAGMA shrink_memory")

    def damage(self, *, pages: bool = True) -> Iterator[tuple[int | None, str, str]]:
        try:
            for (message,) in self._driver.execute("PRAGMA integrity_check(100)") if pages else ():
                for line in str(message).splitlines():
                    if line != "ok" and not line.startswith("***"):
                        row = _EVENT_ROW.search(line)
                        yield None if row is None else int(row[1]), "page", line
        except (sqlite3.Error, ValueError) as error:
            yield None, "page", f"reading stopped: {error}"
        yield from schema_damage(self.connection)

    def close(self) -> None:
        if self._file is not None and file_id(self._where) is None:
            # Of a file that was moved, SQLite leaves the newest events in a log of the old name.
            with suppress(DBAPIError, sqlite3.Error):  # another process has it open
                self._driver.execute("PRAGMA busy_timeout = 0")
                self._driver.execute("PRAGMA journal_mode = DELETE")
        self.connection.close()

    @property
    def _driver(self) -> sqlite3.Connection:
        """Not cached: SQLAlchemy makes another after a failure."""
        return cast(sqlite3.Connection, self.connection.connection.driver_connection)


class SqliteStore:
    """A record in one file, its company in files beside it, named after it."""

    def __init__(self, place: str) -> None:
        self._given = Path(place).expanduser()
        self.path = Path(os.path.realpath(self._given))  # two names would be two leases, vaults and logs

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path.absolute()}"

    def __str__(self) -> str:
        return str(self.path)

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> SqliteSession:
        path = self.path
        if write and create:
            self.create(new_identity(clock))
        self._expect_file(write=write)
        self._expect_own_log()
        with ExitStack() as opened:
            connection = opened.enter_context(connect(path, write=write))
            opened.enter_context(translated(str(path)))
            session = SqliteSession(path, connection, read_identity(connection, path, write=write, check=check))
            session.expect_in_place()
            if check:
                expect_head(session, path)
            opened.pop_all()
        return session

    def create(self, identity: Identity) -> None:
        if not _has_content(self.path):
            _create(self.path, identity)

    def upgrade(self) -> None:
        self._expect_file(write=True)
        with connect(self.path, write=True) as connection, translated(str(self.path)):
            read_identity(connection, self.path, write=False)
            connection.rollback()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            if connection.execute(select(revision.c.version_num)).scalar() != REVISION:
                expect_nobody_acts(self, self._holders())
            migrate(connection)
            connection.commit()

    def replace(self, fill: Callable[[Store], object]) -> str | None:
        draft, kept = SqliteStore(f"{self.path}.restoring"), self.folder(f"replaced-{os.urandom(4).hex()}")
        expect_nobody_acts(self, self._holders())
        if self.path.exists() and is_in_use(self.path):
            raise RecordLocked(f"A process has the record {self.path} open: stop it first.")
        for ending in _ENDINGS:  # of a restore that was interrupted
            Path(f"{draft.path}{ending}").unlink(missing_ok=True)
        fill(draft)
        with translated(str(self.path)):
            for ending in _ENDINGS:
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{kept}{ending}")
            draft.path.rename(self.path)
            sync_folder(self.path.parent)
        return str(kept) if kept.exists() else None

    def status(self) -> StoreStatus:
        with connect(self.path, write=False) as connection, translated(str(self.path)):
            schema = str(connection.execute(select(revision.c.version_num)).scalar())
        wal = self.path.with_name(self.path.name + "-wal")
        size = self.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
        database = f"SQLite {sqlite3.sqlite_version}"
        return StoreStatus(database=database, schema=schema, bytes=size, partitions=1, oldest_transaction_seconds=0)

    def admit(self, role: str, *, appends: bool, keeps_tokens: bool = False) -> None:  # noqa: ARG002
        raise StenoError(f"A SQLite record has no role {role}: change the permissions of {self.path} and its folder.")

    def is_writable(self) -> bool:
        return may_write(self.path.parent)

    def blob(self, name: str) -> FileBlob:
        return FileBlob(self.folder(name))

    def lease(self, name: str) -> Lease | None:
        return take_lease(self._lease(name), name)

    def leases(self) -> list[Holder]:
        self._expect_file(write=False)
        return sorted((holder for holder in self._holders() if holder.name), key=lambda holder: holder.name)

    def clock(self, own: Clock) -> Clock:
        return own

    def folder(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}")

    def place(self, name: str) -> str:
        return f"sqlite:///{self.folder(name)}"

    def _expect_file(self, *, write: bool) -> None:
        """As `expect_file`; RecordNotWritable where an older version kept company beside a link to the record."""
        for name in _COMPANY if self._given.is_symlink() else ():
            beside = self._given.with_name(f"{self._given.name}.{name}")
            if beside.exists() and Path(os.path.realpath(beside)) != self.folder(name):
                raise RecordNotWritable(
                    f"{self._given} is a link to {self.path}, whose files are beside itself: stop what uses the link, "
                    f"then move {beside} to {self.folder(name)}."
                )
        expect_file(self.path, write=write)

    def _expect_own_log(self) -> None:
        """Raise RecordNotWritable if a killed process left the log, and a copy took the file's place: SQLite would mix
        them. The chain has to go on from the file's own head.
        """
        log = self.path.with_name(self.path.name + "-wal")
        if not log.exists() or not log.stat().st_size or is_in_use(self.path):
            return
        try:
            with connect(self.path, write=False, mends=False) as connection:
                identity = read_identity(connection, self.path, write=False, check=False)
                session, after = SqliteSession(self.path, connection, identity), own_head(str(self.path.absolute()))
                why = "".join(damage.detail for damage in Verifier(session, None, None, after).run().damage[:1])
        except (sqlite3.Error, DBAPIError, TypeError) as error:
            why = str(error)
        if why:
            raise RecordNotWritable(
                f"{log} is not the log of {self.path} ({why}): if a copy was put there, move the log away, or put the "
                "copy there with `steno db restore`."
            )

    def _holders(self) -> Iterator[Holder]:
        """The holder of every lease; a lease of an older version has no name."""
        holders = map(last_holder, self.path.parent.glob(f"{glob.escape(self.path.name)}.lease-*"))
        return (holder for holder in holders if holder is not None)

    def _lease(self, name: str) -> Path:
        return self.folder(f"lease-{name.replace('/', '-')}")


STORE: Final = SqliteStore


def _has_content(path: Path) -> bool:
    try:
        status = path.stat()
        # A pipe or a device has no size; a record must not replace it.
        return status.st_size > 0 or not stat.S_ISREG(status.st_mode) or path.with_name(path.name + ".vault").exists()
    except OSError:
        return False


def _create(path: Path, identity: Identity) -> None:
    """Make the record, whole or not at all; if another process has made it meanwhile, that one stays."""
    with translated(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent, os.O_RDONLY):
            if _has_content(path):
                return
            log = path.with_name(path.name + "-wal")
            if log.exists() and log.stat().st_size:  # SQLite would mix it into the new file
                raise RecordNotWritable(f"{log} has events of a record that is no longer at {path}: move it after it.")
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
            os.close(descriptor)
            try:
                make = partial(sqlite3.connect, name, isolation_level=None)
                with create_engine("sqlite+pysqlite://", creator=make, poolclass=NullPool).connect() as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                    fill(connection, identity)
                Path(name).replace(path)
            finally:
                for ending in ("", "-wal", "-shm", "-journal"):
                    Path(name + ending).unlink(missing_ok=True)
            sync_folder(path.parent)


def fill(connection: Connection, identity: Identity) -> None:
    """Write schema, description and head of a new record, in one transaction."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    create(connection)
    connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in described(identity)])
    connection.execute(head.insert(), {"id": 1, "position": 0, "hash": identity.genesis()})
    connection.commit()
