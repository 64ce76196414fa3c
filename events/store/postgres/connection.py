"""Connections to PostgreSQL: what libpq is given, and what its errors mean here.

Passwords, services and TLS are libpq's: the URL, `PGPASSWORD`, `~/.pgpass`, `PGSERVICE`, `sslmode` …
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors

from events.errors import (
    LeaseLost,
    NotARecord,
    RecordDamaged,
    RecordLocked,
    RecordNotFound,
    RecordNotWritable,
    RecordUnreachable,
)

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

LOCK_TIMEOUT: Final = 5  # seconds a writer waits for another before it gives up
_CONNECT_TIMEOUT: Final = 10
_IDLE_TIMEOUT: Final = 60  # seconds after which the server ends a transaction that does nothing
_DRIVER: Final = re.compile(r"^postgres(ql)?(\+psycopg)?://")
_SECRET: Final = re.compile(r"(://[^:/@?]*):[^@/?]*@|(password=)[^&]*")

HEAD_MOVED: Final = "ST001"  # the errors that `migrations/postgres` raises
_LEASE_LOST: Final = "ST002"
_REFUSED: Final = "ST003"


def libpq(url: str) -> str:
    """The URL as libpq reads it."""
    return _DRIVER.sub("postgresql://", url)


def shown(url: str) -> str:
    """The URL without its password."""
    return _SECRET.sub(lambda found: f"{found[1]}@" if found[1] else f"{found[2]}…", libpq(url))


def connect(url: str, *, write: bool) -> Connection:
    """A connection without transactions of its own. Raises psycopg.OperationalError."""
    settings = {
        "search_path": "steno",
        "lock_timeout": f"{LOCK_TIMEOUT}s",
        "idle_in_transaction_session_timeout": f"{_IDLE_TIMEOUT}s",
        "timezone": "UTC",
        "client_min_messages": "warning",
        "jit": "off",  # compiling a query takes longer than any of ours
    }
    if not write:
        settings["default_transaction_read_only"] = "on"
    made = psycopg.connect(
        libpq(url), autocommit=True, connect_timeout=_CONNECT_TIMEOUT, fallback_application_name="steno"
    )
    try:
        pairs = "".join(f"SET {name} = '{value}';" for name, value in settings.items())
        made.execute(pairs.encode())
    except BaseException:
        made.close()
        raise
    return made


def is_lost(error: BaseException) -> bool:
    """Whether the connection went, so that another may do better."""
    ended = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.IdleInTransactionSessionTimeout,
    )
    return isinstance(error, ended) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Turns PostgreSQL's errors into those of `events.errors`."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(error, shown(url)) from error


def _ours(error: psycopg.Error, where: str) -> Exception:
    state, why = error.sqlstate or "", _first_line(error)
    if state == _LEASE_LOST:
        return LeaseLost(f"Another process acts on {where} since this one was silent: nothing was written.")
    if state in ("55P03", "40P01", "57014", HEAD_MOVED):
        return RecordLocked(f"The record {where} is held by another process: try again when it is done.")
    if state == "3D000" or ("does not exist" in why and 'FATAL:  database "' in why):
        return RecordNotFound(f"There is no database for the record {where}: create it with `createdb`.")
    if state in ("3F000", "42P01", "42883"):
        return NotARecord(f"The schema steno of {where} is not a Steno record ({why}).")
    if state == "42501":
        return RecordNotWritable(f"This user may not do that with the record {where} ({why}): see `steno db grant`.")
    if state in ("25006", "25P02", "53400", _REFUSED):
        return RecordNotWritable(f"The record {where} cannot be written ({why}).")
    if state in ("53100", "53200"):
        message = f"The server of the record {where} is full: make room and try again; what was acknowledged is there."
        return RecordNotWritable(message)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return RecordUnreachable(f"The database of the record {where} cannot be reached: {why}.")
    if isinstance(error, psycopg.ProgrammingError) and not state:
        return NotARecord(f"{where} is not a PostgreSQL URL that libpq understands ({why}).")
    return RecordDamaged(f"The record {where} is damaged ({why}): run `steno verify`, restore it from a copy.")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "FATAL:" in line or "failed:" in line] or lines or [type(error).__name__]
    return said[0].rstrip(".")
