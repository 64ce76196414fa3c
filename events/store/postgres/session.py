"""A session of a record on PostgreSQL, and its appends.

An append is computed from the head as this session knows it, without a lock, and sent in one round trip that locks the
head there, inserts, and moves it. If another process appended meanwhile, all of it is void, and is done once more with
the head locked first; so are the next appends, until the others pause.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn

import psycopg
from psycopg import errors
from sqlalchemy import Executable
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from steno.events.errors import RecordPaused, RecordReplaced
from steno.events.store.chain import mark
from steno.events.store.postgres.connection import (
    HEAD_MOVED,
    PATIENT,
    Connection,
    connect,
    damage,
    end_stalled,
    is_lost,
    shown,
    translated,
)
from steno.events.store.schema import compiled
from steno.events.store.store import HeadMoved, Identity, Lease

_DIALECT: Final = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]
_COPY_FROM: Final = 16  # rows from which COPY is faster than single inserts in one round trip
_PAGE: Final = 2_000  # rows that a long read has in memory at once
_PAUSES: Final = (0, 0.2, 0.5, 1, 2, 4)  # seconds before each try to learn whether a lost commit went through
_OVERTAKEN: Final = (HEAD_MOVED, "40P01")

_LOOK: Final = "SELECT * FROM look_at_head(false)"
_LOCK: Final = "SELECT * FROM look_at_head(true)"
_ADVANCE: Final = (
    "SELECT advance(%s::bigint, %s, %s::bigint, %s, %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::text[], %s::bigint[])"
)
_FIND: Final = "SELECT id FROM parts WHERE commitment = %s"
_STREAM: Final = "SELECT id, name, version, item_id, since FROM streams WHERE name = %s"
_KEPT: Final = "SELECT hash FROM events WHERE position = %s::bigint"
_INSERTS: Final = {
    "streams": ("id int8", "name text", "version int8"),
    "parts": ("id int8", "commitment bytea", "base_id int8", "encoding int2", "crc int8", "data bytea"),
    "events": (
        "position int8", "stream_id int8", "version int8", "kind int2", "event_id bytea", "observed_at int8",
        "took int8", "recorded_after int8", "scope_id int8", "body_id int8", "data bytea", "hash bytea", "clock bytea",
    ),
}  # fmt: skip


class _End(NamedTuple):
    """Where the record ends: the head, the highest ids, the first position without a partition."""

    position: int
    hash: bytes
    part: int
    stream: int
    past: int


@cache
def _insert(table: str) -> str:
    """The text of an insert of one row."""
    names, types = zip(*(column.split() for column in _INSERTS[table]), strict=True)
    places = ", ".join(f"%s::{kind}" for kind in types)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"  # noqa: S608 - our own words


@cache
def _copy(table: str) -> tuple[str, list[str]]:
    """The text of a COPY, and the columns' types."""
    names, types = zip(*(column.split() for column in _INSERTS[table]), strict=True)
    return f"COPY {table} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)", list(types)


class PostgresSession:
    """A connection to a record, made again where it broke outside a transaction."""

    def __init__(self, url: str, connection: Connection, identity: Identity, *, write: bool) -> None:
        self.identity = identity
        self._url = url
        self._connection = connection
        self._write = write
        self._inside = False  # a transaction is open at the server
        self._reading = False  # it is a snapshot
        self._locked = False  # it has locked the head
        self._durable = False
        self._begun = (0, b"")  # the head that this append follows
        self._end: _End | None = None
        self._crowded = False  # others append too: lock first
        self._renewed = False  # the connection is another since the last append
        self._rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in _INSERTS}
        self._new_parts: dict[bytes, int] = {}
        self._leases: tuple[Lease, ...] = ()

    @contextmanager
    def guard(self) -> Iterator[None]:
        try:
            with translated(self._url):
                yield
        except RecordPaused:
            self._connection.close()  # the next one may find the new primary, or the database's new settings
            raise

    # -- reading

    def run(self, statement: Executable, *given: object) -> Any:
        if any(self._rows.values()):
            self._send()
        return self.execute(compiled(statement, _DIALECT, self.identity.schema), given)

    def stream(self, statement: Executable) -> Iterator[tuple[Any, ...]]:
        if not self._reading:
            raise RuntimeError("a long read needs a snapshot")
        with self._connection.cursor(name=f"steno_{id(statement)}", binary=True) as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(compiled(statement, _DIALECT, self.identity.schema))

    def execute(
        self, text: str, given: Sequence[object] = (), *, prepare: bool | None = None
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        """The cursor after a statement of the driver's own; run again on a new connection if the old one was gone."""
        try:
            return self._connection.cursor(binary=True).execute(text.encode(), given, prepare=prepare)
        except psycopg.Error as error:
            if not (is_lost(error) or self._connection.closed) or self._reading:
                raise
            if self._inside:
                self._resume(None)
            self._reconnect()
            return self._connection.cursor(binary=True).execute(text.encode(), given, prepare=prepare)
        except BaseException as error:
            self._break_off(error)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self._write:
                self.execute(PATIENT, prepare=False)
            self._inside = self._reading = True
            yield
        finally:  # a signal may have raised as soon as the transaction was there
            self._inside, self._reading = True, False
            self._leave()

    def shrink(self) -> None:
        """The caches are the server's."""

    def damage(self, *, pages: bool = True) -> Iterator[tuple[int | None, str, str]]:
        del pages  # the server checks those that it reads
        yield from damage(self._connection)

    # -- appending

    def expect_in_place(self) -> None:
        """A connection that broke is made to the same record only."""

    def bind(self, leases: Sequence[Lease]) -> None:
        self._leases = tuple(leases)

    def begin(self, *, durable: bool, locked: bool) -> tuple[int, bytes]:
        renewed, self._renewed = self._renewed, False
        if renewed and not locked:
            raise HeadMoved  # a database that was restored may have lost what the writer's caches know
        self._durable, before = durable, self._end
        if locked or self._crowded:
            self._open()
            try:
                self._end = _End(*self._one(_LOCK))
            except errors.LockNotAvailable as error:
                self._retry_if_freed(error)
            self._crowded = locked or self._end != before
        elif before is None:
            self._end = _End(*self._one(_LOOK))
        self._locked = self._inside
        assert self._end is not None  # noqa: S101
        self._begun = self._end.position, self._end.hash
        return self._begun

    def find_stream(self, name: str) -> tuple[Any, ...] | None:
        return self.execute(_STREAM, (name,)).fetchone()

    def add_stream(self, name: str) -> int:
        added = self._known.stream + 1
        self._end = self._known._replace(stream=added)
        self._rows["streams"].append((added, name, 0))
        return added

    def add_part(self, commitment: bytes, base: int | None, encoding: int, crc: int, data: bytes) -> tuple[int, bool]:
        known = self._new_parts.get(commitment)
        if known is None and (row := self.execute(_FIND, (commitment,)).fetchone()) is not None:
            known = int(row[0])
        if known is not None:
            return known, False
        added = self._new_parts[commitment] = self._known.part + 1
        self._end = self._known._replace(part=added)
        self._rows["parts"].append((added, commitment, base, encoding, crc, data))
        return added, True

    def add_events(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._rows["events"] += rows

    def commit(self, end: tuple[int, bytes], streams: Sequence[tuple[int | None, ...]]) -> None:
        if streams or self._inside or any(self._rows.values()):
            moved = [[row[column] for row in streams] for column in (3, 0, 1, 2)]
            leases = [lease.name for lease in self._leases], [lease.token for lease in self._leases]
            self._send((*self._begun, *end, *moved, *leases))
        self._inside = False
        if self._end is not None:  # else on a connection that was made meanwhile: `begin` looks again
            self._end = self._end._replace(position=end[0], hash=end[1])
        self._new_parts.clear()

    def rollback(self) -> None:
        for rows in self._rows.values():
            rows.clear()
        self._new_parts.clear()
        self._end = None
        self._leave()

    def close(self) -> None:
        self._connection.close()

    def _send(self, last: Sequence[Any] | None = None) -> None:
        """Send the rows that wait; with `last`, move the head and commit."""
        rows, self._rows = self._rows, {name: [] for name in _INSERTS}
        try:
            self._make_room(rows["events"])
            self._send_rows(rows, last)
        except psycopg.Error as error:
            if is_lost(error) or self._connection.closed:
                self._resume(None if last is None else (last[2], last[3]))
            elif error.sqlstate in _OVERTAKEN:
                self._crowded = True
                raise HeadMoved from error
            elif isinstance(error, errors.LockNotAvailable):
                self._retry_if_freed(error)
            else:
                raise
        except BaseException as error:
            self._break_off(error)
            raise

    def _make_room(self, events: Sequence[tuple[Any, ...]]) -> None:
        if events and events[-1][0] >= self._known.past:
            (past,) = self._one("SELECT make_room(%s::bigint)", events[-1][0])
            self._end = self._known._replace(past=past)

    def _send_rows(self, rows: dict[str, list[tuple[object, ...]]], last: Sequence[Any] | None) -> None:
        connection = self._connection
        bulk = {table for table, waiting in rows.items() if len(waiting) >= _COPY_FROM}
        if bulk:
            self._claim()
        for table in bulk:
            text, types = _copy(table)
            with connection.cursor().copy(text.encode()) as copy:
                copy.set_types(types)
                for row in rows[table]:
                    copy.write_row(row)
        # Nothing is prepared in it: after an error the driver takes what the server skipped for prepared.
        with connection.pipeline():
            try:
                self._claim()
                cursor = connection.cursor(binary=True)
                for table in rows.keys() - bulk:
                    for row in rows[table]:
                        cursor.execute(_insert(table).encode(), row, prepare=False)
                if last is not None:
                    cursor.execute(_ADVANCE, last, prepare=False)
                    cursor.execute("COMMIT", prepare=False)
            except BaseException as error:
                self._break_off(error)  # before the pipeline waits for answers that nobody counts any more
                raise

    def _open(self) -> None:
        """Begin a transaction at the server if none is open."""
        if not self._inside:
            self.execute("BEGIN", prepare=False)
            self._inside = True
            if self._durable:
                self.execute("SET LOCAL synchronous_commit = on", prepare=False)

    def _claim(self) -> None:
        """Lock the head where this append begins, if that is not done."""
        self._open()
        if not self._locked:
            self.execute("SELECT claim(%s::bigint, %s)", self._begun, prepare=False)
            self._locked = True

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:
                self._connection.close()
            except BaseException as error:
                self._break_off(error)
                raise

    def _retry_if_freed(self, error: psycopg.Error) -> NoReturn:
        """Raises HeadMoved if who held the head had stood still, else the error."""
        self._leave()
        if end_stalled(self._connection):
            raise HeadMoved from error
        raise error

    def _break_off(self, error: BaseException) -> None:
        """Drop a connection if a signal raised in the middle of its answers: the next would be of something else."""
        if not isinstance(error, Exception):
            self._connection.close()

    def _one(self, text: str, *given: object) -> Sequence[Any]:
        row = self.execute(text, given).fetchone()
        assert row is not None  # noqa: S101 - a function's only row
        return row

    @property
    def _known(self) -> _End:
        """Where this append goes on."""
        if self._end is None:
            raise HeadMoved  # the connection is another one since `begin`
        return self._end

    # -- a connection that went

    def _reconnect(self) -> None:
        """Connect again. Raises psycopg.OperationalError, or RecordReplaced if another record is there now."""
        self._connection.close()
        self._connection = connect(self._url, write=self._write)
        self._inside, self._end, self._renewed = False, None, self._write
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'record_id'").fetchone()
        if row is None or row[0] != self.identity.record_id.encode():
            raise RecordReplaced(f"Another record took the place of {shown(self._url)}: restart.")

    def _resume(self, end: tuple[int, bytes] | None) -> None:
        """After a connection was lost in an append: return if all of it up to `end` was committed, else raise."""
        for pause in _PAUSES:
            time.sleep(pause)
            with suppress(psycopg.OperationalError):
                self._reconnect()
                break
        else:
            self._reconnect()
        row = None if end is None else self.execute(_KEPT, (end[0],)).fetchone()
        if end is None or row is None or bytes(row[0]) != mark(*end):
            raise HeadMoved
        self._end = _End(*self._one(_LOOK))
