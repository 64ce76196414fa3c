"""The projections' SQLite file: objects of runs and machines, notes, and the folded world. Disposable: a damaged file
is rebuilt from the record.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
import zstandard
from sqlalchemy import bindparam, delete, exists, func, select, text

from steno.events.store.sqlite.connection import file_id
from steno.projections.read_models.database import StoreUnreadable, insertion
from steno.projections.read_models.notes import MarkTable, NoteTable
from steno.projections.read_models.schema import ORDERED, VERSION, WAS, ddl, moments, views_below
from steno.projections.read_models.tables import CaseTable, RunTable, VmTable

_BUSY: Final = 5.0  # seconds that a writer waits for another
_MOMENT_BEFORE: Final = select(func.max(moments.c.position)).where(moments.c.position <= bindparam("position"))
_KEEP: Final = insertion(moments).prefix_with("OR REPLACE")
_FIRST_OF_EACH: Final = (
    select(func.min(moments.c.position))
    .where(moments.c.position >= bindparam("spacing"))
    .group_by(text("position / :spacing"))
)
_THIN_OUT: Final = delete(moments).where(moments.c.position.not_in(_FIRST_OF_EACH))
_FORGET: Final = tuple(  # rows that no kept moment shows
    delete(was).where(~exists().where(moments.c.position >= was.c.changed, moments.c.position < was.c.until))
    for was in WAS.values()
)
_WORLD_BELOW: Final = "SELECT world, lasting FROM base.moments WHERE position = ?"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the projections, and their position."""

    version: int = VERSION
    rules: str  # name and version of all that decides; a change rebuilds the read models
    record: str = ""  # the record's own id: these projections belong to it and no other
    position: int = 0
    chain: str = ""  # the record's hash there, as `Record.digest`: a restored record has another


_checkpoint = msgspec.json.Decoder(Checkpoint)


class ProjectionStore(NoteTable, MarkTable):
    """An open projections file, or a store in memory; for one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, stamp: object = None) -> None:
        super().__init__(connection)
        self.runs = RunTable(self)
        self.vms = VmTable(self)
        self.cases = CaseTable(self)
        self.stamp = stamp  # `ReadModels.stamp` of the file, or of the one below; None: in memory
        self.base = 0  # the moment of another store that this one is attached above
        self.learnt: dict[str, tuple[str | None, str]] = {}  # what of it was learnt later: `known_worlds.Learnt`

    @classmethod
    def create(cls, path: Path | None) -> "ProjectionStore":
        if path is not None:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = connected(":memory:" if path is None else str(path))
        if path is not None:
            connection.execute("PRAGMA page_size = 8192")
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript("BEGIN;" + ddl() + "COMMIT;")
        store = cls(connection, None if path is None else file_id(path))
        store.put("schema", store.schema_sum())
        return store

    def attach(self, base: str, position: int) -> None:
        """Begin, empty and in memory, on top of one moment of the store at a URI."""
        self.base = position
        self._connection.execute(f"ATTACH '{base}' AS base")
        last = "SELECT max(ordinal) FROM base."
        taken = (self._connection.execute(last + table.name).fetchone()[0] for table in ORDERED)
        self.last_place = max(place or 0 for place in taken)
        self._connection.executescript(views_below(position))
        self._connection.execute("INSERT INTO meta SELECT * FROM base.meta WHERE key LIKE 'dictionary/%'")
        self.cases.stand_on("base")
        self._begins = "BEGIN"  # an immediate one would take the lock of the store below too

    def copy(self) -> "ProjectionStore":
        store = ProjectionStore(connected(":memory:"))
        self._connection.backup(store._connection)
        return store

    def __enter__(self) -> "ProjectionStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def schema_sum(self) -> bytes:
        """A checksum of the file's tables and indexes."""
        # As bytes: damaged text does not decode.
        query = "SELECT name, CAST(sql AS BLOB) FROM main.sqlite_master ORDER BY name"
        return b"%08x" % crc32(repr(self._connection.execute(query).fetchall()).encode())

    # -- how far ---

    def checkpoint(self) -> Checkpoint | None:
        """The position of this store; None if unreadable."""
        try:
            return self.read_checkpoint()
        except sqlite3.Error:
            return None

    def read_checkpoint(self) -> Checkpoint:
        """As `checkpoint`; raises `sqlite3.DatabaseError` if unreadable."""
        try:
            value = self.get("checkpoint")
        except UnicodeDecodeError as error:
            # SQLite's messages quote damaged text, which does not decode
            raise sqlite3.DatabaseError("its schema is damaged") from error
        try:
            return _checkpoint.decode(b"" if value is None else value)
        except msgspec.MsgspecError as error:
            raise sqlite3.DatabaseError("there is no checkpoint in it") from error

    def set_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.put("checkpoint", msgspec.json.encode(checkpoint))

    # -- moments ---

    def moment_before(self, position: int) -> int | None:
        """The newest kept moment up to this position, or None."""
        moment: int | None = self.first(_MOMENT_BEFORE, position=position)[0]
        return moment

    def world_below(self, moment: int) -> tuple[bytes, bytes] | None:
        """The world at a moment of the store below (`world_table.pieces`); None if it is no longer kept."""
        row = self._connection.execute(_WORLD_BELOW, (moment,)).fetchone()
        try:
            return None if row is None else (zstandard.decompress(row[0]), zstandard.decompress(row[1]))
        except zstandard.ZstdError as error:
            raise StoreUnreadable("a moment cannot be unpacked") from error

    def keep_moment(self, position: int, world: bytes, lasting: bytes, *, spacing: int) -> None:
        """Keep the world as a moment; per `spacing` positions, only the first one stays."""
        self.execute(_KEEP, position=position, world=zstandard.compress(world), lasting=zstandard.compress(lasting))
        if self.execute(_THIN_OUT, spacing=spacing).rowcount:
            for statement in _FORGET:
                self.execute(statement)
        self.note_moments()

    def note_moments(self) -> None:
        """Update what the tables know of the store."""
        self.runs.forget()
        self.vms.forget()
        self.runs.newest_moment = self.vms.newest_moment = self.moment_before((1 << 63) - 1)


def connected(where: str, *, uri: bool = False) -> sqlite3.Connection:
    """A connection for any thread, without implicit transactions."""
    return sqlite3.connect(where, uri=uri, timeout=_BUSY, isolation_level=None, check_same_thread=False)
