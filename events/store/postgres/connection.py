"""Connections to PostgreSQL: what libpq is given, what its errors mean here, and what is changed in a record's schema.

Passwords, services and TLS are libpq's: the URL, `PGPASSWORD`, `~/.pgpass`, `PGSERVICE`, `sslmode` …
"""

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from steno.events.errors import (
    LeaseLost,
    NotARecord,
    RecordDamaged,
    RecordLocked,
    RecordNotFound,
    RecordNotWritable,
    RecordPaused,
    RecordUnreachable,
    StenoError,
)
from steno.events.store.schema import migrations_folder
from steno.events.store.store import REVISIONS

# It warns of what is raised here too (a pipeline that failed). `logging.config` would undo `disabled`.
logging.getLogger("psycopg").addFilter(lambda _: False)

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

LOCK_TIMEOUT: Final = 5  # seconds a writer waits for another before it gives up
_PATIENCE: Final[dict[str, int]] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""How long a server that is cut off is waited for, unless the URL says so. TCP alone waits a quarter of an hour."""
_GONE: Final = {
    "tcp_keepalives_idle": 2,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 2,
    "tcp_user_timeout": 4_000,
}
"""The same for the server, which frees the locks of who is cut off before others give up waiting for them."""
IDLE_TIMEOUT: Final = 60  # seconds after which the server ends a transaction that does nothing
STANDSTILL: Final = LOCK_TIMEOUT - 1  # the same for a writer's, so that who waits for its locks outlasts it
PATIENT: Final = f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT}s'"
"""For a transaction of a writer in which this process reads or works for long."""
_END_STALLED: Final = b"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
AND pid IN (SELECT pid FROM pg_locks WHERE relation IN ('head'::regclass, 'leases'::regclass)
    AND mode <> 'AccessShareLock')
AND state = 'active' AND wait_event = 'ClientRead' AND query NOT LIKE 'COPY %%'
AND query_start < clock_timestamp() - make_interval(secs => %s)
"""
_DRIVER: Final = re.compile(r"^postgres(ql)?(\+psycopg)?://")
_SECRET: Final = re.compile(r"(://[^:/@?]*):[^@/?]*@|(password=)[^&]*")

HEAD_MOVED: Final = "ST001"  # the errors that `migrations/postgres` raises

_HELD: Final = (RecordLocked, "The record {where} is held by another process: try again when it is done.")
_FOREIGN: Final = (
    NotARecord,
    "The schema steno of {where} is not a Steno record, or one before `steno db upgrade` ({why}).",
)
_REFUSED: Final = (RecordNotWritable, "The record {where} cannot be written ({why}).")
_READ_ONLY: Final = (
    RecordPaused,
    (
        "The database of the record {where} is read-only ({why}): write to its primary (several hosts in the URL: add "
        "target_session_attrs=read-write), or make it writable."
    ),
)
_FULL: Final = (
    RecordPaused,
    "The server of the record {where} is full ({why}): make room and try again; what was acknowledged is there.",
)
_AWAY: Final = (RecordUnreachable, "The database of the record {where} cannot be reached: {why}.")
_NO_URL: Final = (NotARecord, "{where} is not a URL that libpq understands ({why}).")
_DAMAGED: Final = (RecordDamaged, "The record {where} is damaged ({why}): run `steno verify`, restore it from a copy.")
_ERRORS: Final[dict[str, tuple[type[StenoError], str]]] = {  # by SQLSTATE
    HEAD_MOVED: _HELD,
    "ST002": (LeaseLost, "Another process acts on this source since this one was silent: nothing was written."),
    "ST003": _REFUSED,
    "55P03": _HELD,  # lock_timeout
    "40P01": _HELD,
    "57014": _HELD,
    "25P03": (
        RecordUnreachable,
        "This process stood still for so long that the database of the record {where} dropped it: try again.",
    ),
    "3D000": (RecordNotFound, "There is no database for the record {where}: create it with `createdb`."),
    "3F000": _FOREIGN,
    "42P01": _FOREIGN,
    "42883": _FOREIGN,
    "42704": (StenoError, "{why}: make it with `createuser`."),
    "42501": (RecordNotWritable, "This user may not use the record {where} so ({why}): see `steno db grant --help`."),
    "25006": _READ_ONLY,
    "53100": _FULL,
    "53200": _FULL,
}


def libpq(url: str) -> str:
    return _DRIVER.sub("postgresql://", url)


def shown(url: str) -> str:
    """The URL without its password."""
    return _SECRET.sub(lambda match: f"{match[1]}@" if match[1] else f"{match[2]}…", libpq(url))


def connect(url: str, *, write: bool) -> Connection:
    """A connection without transactions of its own. Raises psycopg.OperationalError."""
    settings = _GONE | {
        "search_path": "steno",
        "lock_timeout": f"{LOCK_TIMEOUT}s",
        "idle_in_transaction_session_timeout": f"{STANDSTILL if write else IDLE_TIMEOUT}s",
        "timezone": "UTC",
        "client_min_messages": "warning",
        "jit": "off",  # compiling a query takes longer than any of ours
    }
    if not write:
        settings["default_transaction_read_only"] = "on"
    given = conninfo_to_dict(libpq(url))
    patience = {name: value for name, value in _PATIENCE.items() if name not in given}
    made = psycopg.connect(make_conninfo(libpq(url), **patience), autocommit=True, fallback_application_name="steno")
    try:
        text = "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS s (name, value)"
        given_here = list(settings), [str(value) for value in settings.values()]
        # Behind a pooler it is not the process that greeted: nothing may be set in a session of others.
        if not made.execute(f"{text} WHERE pg_backend_pid() = %s", (*given_here, made.info.backend_pid)).rowcount:
            _expect_own_session(made, url)
            made.execute(text, given_here)
    except BaseException:
        made.close()
        raise
    return made


def end_stalled(connection: Connection) -> bool:
    """True if a process of this user stood still between two messages of a pipeline; the server drops its connection.

    It holds its locks, and to the server it is not idle: `idle_in_transaction_session_timeout` does not count there.
    """
    return bool(connection.execute(_END_STALLED, (STANDSTILL,)).fetchall())


def _expect_own_session(made: Connection, url: str) -> None:
    """Raise StenoError if a pooler gives one session of the server to several connections."""
    with psycopg.connect(made.info.dsn, password=made.info.password, autocommit=True) as other:
        seen = [
            [connection.execute("SELECT pg_backend_pid()").fetchone() for _ in range(3)] for connection in (made, other)
        ]
    if len({*seen[0]}) > 1 or seen[0][0] in seen[1]:
        raise StenoError(
            f"{shown(url)} is a pooler that gives each transaction another session (pool_mode = transaction), and "
            "Steno sets parameters of its session: use session pooling, or the server's own address."
        )


def is_lost(error: BaseException) -> bool:
    """True if the connection was lost, so that another may do better."""
    ended = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.IdleInTransactionSessionTimeout,
    )
    return isinstance(error, ended) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Turns PostgreSQL's errors into those of `steno.events.errors`."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(error, shown(url)) from error


def _ours(error: psycopg.Error, where: str) -> Exception:
    state, why = error.sqlstate or "", _first_line(error)
    if not state and "does not exist" in why and 'FATAL:  database "' in why:
        state = "3D000"  # a connection that is refused has none
    other: tuple[type[StenoError], str] = _DAMAGED
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        other = _AWAY
    elif isinstance(error, psycopg.ProgrammingError) and not state:
        other = _NO_URL
    kind, text = _ERRORS.get(state, other)
    return kind(text.format(where=where, why=why))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "FATAL:" in line or "failed:" in line] or lines or [type(error).__name__]
    return causes[0].rstrip(".")


# -- the schema of a record, compared with `migrations/postgres/schema.txt`, or `schema-REVISION.txt` of an older
# record; a test holds these equal to what the migrations make

Line = tuple[str, str, str]  # relation, kind, text

_DESCRIBE: Final = r"""
WITH own AS (
    SELECT c.oid, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'steno' AND c.relkind IN ('r', 'p', 'v', 'm'))
SELECT own.name, 'column', a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
  FROM own JOIN pg_attribute a ON a.attrelid = own.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT own.name, 'index', CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END
       || regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '')
       || CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END
  FROM own JOIN pg_index i ON i.indrelid = own.oid
UNION ALL
SELECT own.name, 'trigger', regexp_replace(pg_get_triggerdef(t.oid), ' ON \S+ ', ' ') || ' ' || t.tgenabled::text
  FROM own JOIN pg_trigger t ON t.tgrelid = own.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'function', 'function', p.proname || ' ' || md5(p.prosrc) || CASE WHEN p.prosecdef THEN ' definer' ELSE '' END
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'steno'
"""

_RANGES: Final = "SELECT name, format('FOR VALUES FROM (''%s'') TO (''%s'')', first, past) FROM ranges"
_ATTACHED: Final = (
    "SELECT c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid) "
    "FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'events'::regclass"
)


def damage(connection: Connection) -> Iterator[tuple[None, str, str]]:
    """(None, kind, detail) of each deviation from the schema of the record's revision."""
    try:
        lines = describe(connection)
        ranges = {str(name): str(bound) for name, bound in connection.execute(_RANGES.encode()).fetchall()}
        version = "".join(str(number) for (number,) in connection.execute("SELECT version_num FROM alembic_version"))
        parts = {str(name): str(bound) for name, bound in connection.execute(_ATTACHED.encode()).fetchall()}
        is_open = connection.execute("SELECT FROM head h WHERE to_jsonb(h) ->> 'open' IS NOT NULL").fetchone()
    except psycopg.DatabaseError as error:
        yield None, "page", f"reading stopped: {error}"
        return
    if is_open is not None:  # rows could be inserted at any time
        yield None, "schema", "head: open is set, though nobody appends"
    for name, bound in sorted(ranges.items() ^ parts.items()):
        which = "as the table ranges has it" if ranges.get(name) == bound else "as it is attached"
        yield None, "schema", f"partition {name} {bound}, {which}, is not so in the other"
    expected, actual = _by_relation(known(version)), _by_relation(lines)
    template = expected.pop("events_1")
    expected |= dict.fromkeys(parts, template)
    for relation in sorted(expected.keys() | actual.keys()):
        before, now = expected.get(relation, set()), actual.get(relation, set())
        for lines_there, why in ((before - now, "is missing or changed"), (now - before, "does not belong here")):
            for kind, text in sorted(lines_there):
                yield None, "trigger" if kind == "trigger" else "schema", f"{relation}: {kind} {text} {why}"


def _by_relation(lines: Iterable[Line]) -> dict[str, set[tuple[str, str]]]:
    relations: dict[str, set[tuple[str, str]]] = {}
    for relation, kind, text in lines:
        relations.setdefault(relation, set()).add((kind, text))
    return relations


def known(version: str) -> list[Line]:
    """The schema that the migrations up to a revision make."""
    name = f"schema-{version}.txt" if version in REVISIONS[:-1] else "schema.txt"
    lines = (migrations_folder() / "postgres" / name).read_text().splitlines()
    return [(relation, kind, text) for relation, kind, text in (line.split("\t") for line in lines)]


def describe(connection: Connection) -> list[Line]:
    """Everything in the schema of a record, in a form that all versions of the server share."""
    rows: list[Any] = connection.execute(_DESCRIBE.encode()).fetchall()
    return sorted((str(relation), str(kind), str(text)) for relation, kind, text in rows)
