"""Connections to SQLite files of records, and which files this process has open.

POSIX drops all locks of a process on a file when it closes any descriptor of it. A second `open()` of a record would
drop the locks of every connection in this process, and the next process to close the record would remove the log under
them (https://sqlite.org/howtocorrupt.html, 2.2).
"""

import fcntl
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from steno.events.errors import NotARecord, RecordDamaged, RecordLocked, RecordNotWritable
from steno.events.store.chain import Head

_CHECKPOINT: Final = 1_500  # pages of the log before a writer moves them to the file; more slow durable appends down
BUSY_TIMEOUT: Final = 5.0  # seconds a writer waits for another before it gives up

_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNWRITABLE: Final = (
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_TOOBIG,
)  # fmt: skip

_OTHER_FILE: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # no database, or without our tables

_SHARED: Final = (510, 0x40000002)  # bytes of a file, and the first of them, that every connection of SQLite locks

_guard = threading.Lock()
_open: Counter[tuple[int, int]] = Counter()
_own: dict[tuple[int, int], tuple[int, int]] = {}  # file → when it was written last, and the head in it
_kept: list[sqlite3.Connection] = []  # until the process ends


class _Compiler(SQLiteCompiler):
    def limit_clause(self, select: Any, **options: Any) -> str:
        """Without `OFFSET 0`, which would be one more parameter."""
        return f"\n LIMIT {self.process(select._limit_clause, **options)}"


class Dialect(SQLiteDialect_pysqlite):
    """For statements compiled once and run by the driver: their parameters are those the caller names."""

    statement_compiler = _Compiler


class _CountedConnection(sqlite3.Connection):
    """Counted from before it is made until it is closed; made by `_counted` alone."""

    file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close it; a second call does nothing."""
        super().close()
        file, self.file = self.file, None
        _closed(file)


def connect(path: Path, *, write: bool, mends: bool = True) -> Connection:
    """A connection to the record, without transactions of its own; any thread may use it. `mends`: it may move a log
    into the file.
    """
    # A reader of a WAL file makes files beside it, which only a connection that could write removes. Where nothing can
    # be made, nobody is writing either.
    mode = "rw" if write or (mends and may_write(path) and may_write(path.parent)) else "ro"
    if mode == "ro" and not path.with_name(path.name + "-wal").exists():
        mode += "&immutable=1"

    def make() -> sqlite3.Connection:
        made = _counted(path, f"file:{quote(str(path.absolute()))}?mode={mode}")
        if not write:
            made.execute("PRAGMA query_only = ON")
        # A reader passes over pages once, and the system caches them; a writer returns to its indexes.
        made.execute(f"PRAGMA cache_size = -{4_000 if write else 1_000}")
        made.execute("PRAGMA synchronous = NORMAL")
        made.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        return made

    with translated(str(path)):
        return create_engine("sqlite+pysqlite://", creator=make, poolclass=NullPool).connect()


@contextmanager
def while_closed(path: Path) -> Iterator[bool]:
    """True if no connection of this process has the file: then the block may open and close it."""
    with _guard:
        yield file_id(path) not in _open


def is_in_use(path: Path) -> bool:
    """True if a connection of any process has the file, as far as this user may know."""
    with while_closed(path) as may:
        if not may:
            return True
        try:
            with path.open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SHARED)
        except OSError:
            return True
    return False


def own_head(path: str) -> Head | None:
    """The head in the file itself, without its log. None: the file alone is malformed, as while a process moves its
    log into it, and after one was killed meanwhile. Raises sqlite3.Error or TypeError if it is another file.
    """
    try:
        with closing(_counted(path, f"file:{quote(path)}?mode=ro&immutable=1")) as alone:
            position, digest = alone.execute("SELECT position, hash FROM head").fetchone()
            return Head(position=position, hash=digest.hex())
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _OTHER_FILE:
            raise
        return None


def was_written_over(path: str) -> bool:
    """True if somebody wrote into an open file: its own head went back, which no log does. From then on no connection
    of this process moves the log into it.
    """
    status = os.stat(path)  # noqa: PTH116 - ten a second
    file = status.st_dev, status.st_ino
    written, before = _own.get(file, (0, -1))
    if written == status.st_mtime_ns:
        return False
    now = -1
    with suppress(sqlite3.Error, TypeError):
        if (head := own_head(path)) is None:
            return False
        now = head.position
    if now >= before:
        _own[file] = status.st_mtime_ns, now
        return False
    _kept.append(_counted(path, f"file:{quote(path)}?mode=ro"))
    with suppress(sqlite3.Error):
        _kept[-1].execute("SELECT 1 FROM head").fetchone()  # locks the file
    return True


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns SQLite's and the system's errors into those of `steno.events.errors`."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise _ours(error.orig if isinstance(error, DBAPIError) else error, where) from error
    except UnicodeDecodeError as error:
        # SQLite quotes damaged text, which Python cannot decode.
        raise _ours(None, where) from error
    except OSError as error:
        raise RecordNotWritable(f"The record {where} cannot be written ({error.strerror}).") from error


def may_write(path: Path) -> bool:
    """True if this process may write, by its effective user and capabilities if the system can tell."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def file_id(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - ten a second
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _counted(path: Path | str, uri: str) -> sqlite3.Connection:
    file = file_id(path)
    with _guard:
        if file is not None:
            _open[file] += 1
    try:
        made = sqlite3.connect(
            uri,
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT,
            check_same_thread=False,
            cached_statements=64,
            factory=_CountedConnection,
        )
    except BaseException:
        _closed(file)
        raise
    made.file = file
    return made


def _closed(file: tuple[int, int] | None) -> None:
    if file is not None:
        with _guard:
            _open[file] -= 1
            if _open[file] <= 0:
                del _open[file]
                _own.pop(file, None)


def _ours(error: BaseException | None, where: str) -> Exception:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _LOCKED:
        return RecordLocked(f"The record {where} is held by another process: try again when it is done.")
    if code == sqlite3.SQLITE_FULL:
        message = f"The disk of the record {where} is full: make room and try again; what was acknowledged is there."
        return RecordNotWritable(message)
    if code in _UNWRITABLE:
        return RecordNotWritable(f"The record {where} cannot be written ({error}): check its disk and permissions.")
    if code == sqlite3.SQLITE_NOTADB:
        return NotARecord(f"{where} is not a Steno record.")
    why = "" if error is None else f" ({error})"
    return RecordDamaged(f"The record {where} is damaged{why}: run `steno verify`, restore it from a copy.")
