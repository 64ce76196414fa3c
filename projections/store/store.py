"""The projections' own SQLite file: runs and machines as objects, notes, and the folded world to go on from.

Disposable: a damaged file is rebuilt from the record.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

import msgspec

from events.store.sqlite.connection import file_id
from projections.store.mark_table import Mark, Marks, MarkTable
from projections.store.note_table import NoteTable
from projections.store.run_table import RunRow, RunTable
from projections.store.schema import NOTES, VERSION, VM_COLUMNS, ddl, seen_at
from projections.store.vm_table import VmTable

__all__ = ["Checkpoint", "Mark", "Marks", "ProjectionStore", "RunRow"]

_BUSY = 5.0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the projections are made of, and how far."""

    version: int = VERSION
    rules: str
    """Name and version of all that decides; a change rebuilds the read models."""
    record: str = ""
    """The record's own id: these projections belong to it and no other."""
    position: int = 0


_checkpoint = msgspec.json.Decoder(Checkpoint)


class ProjectionStore(RunTable, NoteTable, MarkTable):
    """One open projections file, or one in memory; used by one thread at a time."""

    vm_columns = VM_COLUMNS

    def __init__(self, database: sqlite3.Connection, stamp: object = None) -> None:
        self._database = database
        self.vms = VmTable(database)
        self._begins = "BEGIN IMMEDIATE"
        self.stamp = stamp
        """`ReadModels.stamp` while it is the one in use; None: it is in memory."""

    @classmethod
    def create(cls, path: Path | None) -> "ProjectionStore":
        """A new, empty store at `path`, or in memory."""
        if path is not None:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        database = _connect(":memory:" if path is None else str(path))
        if path is not None:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript("BEGIN;" + ddl() + "COMMIT;")
        store = cls(database, None if path is None else file_id(path))
        store.put("schema", _schema_sum(database))
        return store

    @classmethod
    def open(cls, path: Path, *, write: bool) -> "ProjectionStore | None":
        """The store at `path`; None where there is none, or none that this version can read."""
        stamp = file_id(path)
        if stamp is None:
            return None
        uri = f"file:{quote(str(path.resolve()))}?mode="
        for mode in ("rw",) if write else ("rw", "ro", "ro&immutable=1"):
            # A reader of a WAL file makes files beside it, where it may; where nobody may, nobody writes either.
            with contextlib.suppress(sqlite3.Error):
                store = cls(_connect(uri + mode, uri=True), stamp)
                if store.checkpoint() is not None and store.has_its_schema():
                    store._database.execute("PRAGMA synchronous = NORMAL" if write else "PRAGMA query_only = ON")
                    return store
                store.close()
        return None

    @classmethod
    def above(cls, base: Path, position: int) -> "ProjectionStore | None":
        """A store in memory that begins with what the store at `base` shows at one of its moments."""
        store = cls.create(None)
        database = store._database
        try:
            database.execute(f"ATTACH 'file:{quote(str(base.resolve()))}?mode=rw' AS base")
            floor = {
                table: database.execute(f"SELECT coalesce(max(ordinal), 0) FROM base.{table}").fetchone()[0]  # noqa: S608
                for table in ("runs", "vms", *NOTES)
            }
            database.executescript(seen_at(position))
        except sqlite3.Error:
            store.close()
            return None
        behind = "1 + max({floor}, coalesce((SELECT max(ordinal) FROM main.{{0}}), 0))"
        there = f"coalesce((SELECT ordinal FROM {{{{0}}}} WHERE {{{{1}}}} = ?), {behind})"  # noqa: S608
        store._begins = "BEGIN"  # an immediate one would take the lock of the store below too
        store.ordinal = there.format(floor=floor["runs"])
        store.vms.ordinal = there.format(floor=floor["vms"])
        store.note_ordinal = behind.format(floor=max(floor[table] for table in NOTES))
        return store

    def copy(self) -> "ProjectionStore":
        """The same content in memory."""
        database = _connect(":memory:")
        self._database.backup(database)
        return ProjectionStore(database)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> "ProjectionStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        self._database.execute(self._begins)
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside is of one position."""
        self.begin()
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self.end()

    def begin(self) -> None:
        """What is read from here to `end` is of one position."""
        self._database.execute("BEGIN")

    def end(self) -> None:
        """The transaction that `begin` began is over."""
        self._database.execute("ROLLBACK")

    # -- how far ---

    def checkpoint(self) -> Checkpoint | None:
        """How far this store is; None if it cannot be read."""
        try:
            return self.read_checkpoint()
        except sqlite3.Error:
            return None

    def read_checkpoint(self) -> Checkpoint:
        """As `checkpoint`.

        Raises:
            sqlite3.DatabaseError: why it cannot be read.
        """
        try:
            value = self.get("checkpoint")
        except UnicodeDecodeError as error:
            # SQLite quotes damaged text in its messages, and Python cannot read them
            raise sqlite3.DatabaseError("its schema is damaged") from error
        try:
            return _checkpoint.decode(b"" if value is None else value)
        except msgspec.MsgspecError as error:
            raise sqlite3.DatabaseError("there is no checkpoint in it") from error

    def has_its_schema(self) -> bool:
        """Whether tables and indexes are, to the byte, those that were made: a damaged page of theirs shows here."""
        return self.get("schema") == _schema_sum(self._database)

    def set_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Say how far this store is."""
        self.put("checkpoint", msgspec.json.encode(checkpoint))

    def get(self, key: str) -> bytes | None:
        """What is kept under a key."""
        row = self._database.execute("SELECT value FROM main.meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, value: bytes) -> None:
        """Keep a value under a key."""
        self._database.execute("INSERT OR REPLACE INTO main.meta (key, value) VALUES (?, ?)", (key, value))

    # -- moments ---

    def moments(self) -> tuple[int, ...]:
        """The positions whose world is kept, ascending."""
        return tuple(row[0] for row in self._database.execute("SELECT position FROM main.moments ORDER BY position"))

    def moment_before(self, position: int) -> int | None:
        """The newest position up to this one whose world is kept; None: none is."""
        query = "SELECT max(position) FROM main.moments WHERE position <= ?"
        found: int | None = self._database.execute(query, (position,)).fetchone()[0]
        return found

    def world_at(self, moment: int) -> tuple[bytes, bytes] | None:
        """What `projections.store.world_table` kept of the world at a moment; None: it is not kept (any more)."""
        return self._world(moment, "main")

    def world_below(self, moment: int) -> tuple[bytes, bytes] | None:
        """`world_at` of the store that this one is `above`."""
        return self._world(moment, "base")

    def _world(self, moment: int, schema: str) -> tuple[bytes, bytes] | None:
        query = f"SELECT world, lasting FROM {schema}.moments WHERE position = ?"  # noqa: S608 - names of ours
        found: tuple[bytes, bytes] | None = self._database.execute(query, (moment,)).fetchone()
        return found

    def keep_moment(self, position: int, world: bytes, lasting: bytes, *, spacing: int) -> None:
        """Keep the world as it is now; of the moments in the same `spacing` positions, only the first stays."""
        self._database.execute("INSERT OR REPLACE INTO main.moments VALUES (?, ?, ?)", (position, world, lasting))
        gone = self._database.execute(
            "DELETE FROM main.moments WHERE position NOT IN "
            "(SELECT min(position) FROM main.moments WHERE position >= ?1 GROUP BY position / ?1)",
            (spacing,),
        )
        if gone.rowcount:
            for table in ("runs_was", "vms_was"):
                self._database.execute(
                    f"DELETE FROM main.{table} WHERE NOT EXISTS (SELECT 1 FROM main.moments "  # noqa: S608
                    "WHERE position >= changed AND position < until)"
                )
        self.note_moments()

    def note_moments(self) -> None:
        """Look which moment is the newest."""
        self.newest_moment = self.vms.newest_moment = self.moment_before((1 << 63) - 1)


def _schema_sum(database: sqlite3.Connection) -> bytes:
    # As bytes: damaged text cannot be read as text.
    rows = database.execute("SELECT name, CAST(sql AS BLOB) FROM main.sqlite_master ORDER BY name").fetchall()
    return b"%08x" % crc32(repr(rows).encode())


def _connect(where: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(where, uri=uri, timeout=_BUSY, isolation_level=None, check_same_thread=False)
