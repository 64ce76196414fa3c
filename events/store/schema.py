"""The tables of a record, declared once; migrations, opening and verify are compared with this.

`events` has one row an event. `parts` holds what events share (questions, answers, items of answers), once by content.
`streams` and `head` are the only rows that ever change: they say where the next event goes.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    column,
    create_engine,
    table,
    text,
    type_coerce,
)
from sqlalchemy.types import NULLTYPE

if TYPE_CHECKING:
    import sqlite3

    from alembic.config import Config

APPLICATION_ID: Final = 0x53544E4F
"""`STNO`, at byte 68 of the file: how a record is told from any other SQLite file before it is opened."""

FORMAT: Final = 1
"""How bytes inside the rows are to be read (codec, parts, chain); kept in `meta`."""

REVISIONS: Final = ("0001", "0002")
"""The Alembic revisions this code reads."""

REVISION: Final = REVISIONS[-1]
"""The one it writes."""

LAST_POLL_KIND: Final = 2
"""Kinds 1 and 2 are polls: too many to index by stream."""

metadata = MetaData()

# SQLite gives a row id only to a column declared exactly INTEGER.
_ROWID = BigInteger().with_variant(Integer(), "sqlite")

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

revision = table("alembic_version", column("version_num", Text))
"""Alembic's own."""

head = Table(
    "head",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("id", _ROWID, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False),
    Column("item_id", BigInteger, ForeignKey("parts.id")),
    Column("since", BigInteger),
)

parts = Table(
    "parts",
    metadata,
    Column("id", _ROWID, primary_key=True),
    Column("commitment", LargeBinary, nullable=False, unique=True),
    Column("base_id", BigInteger, ForeignKey("parts.id")),
    Column("encoding", SmallInteger, nullable=False),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("position", _ROWID, primary_key=True, autoincrement=False),
    Column("stream_id", BigInteger, ForeignKey("streams.id"), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("event_id", LargeBinary),
    Column("observed_at", BigInteger, nullable=False),
    Column("took", BigInteger, nullable=False),
    Column("recorded_after", BigInteger, nullable=False),
    Column("scope_id", BigInteger, ForeignKey("parts.id")),
    Column("body_id", BigInteger, ForeignKey("parts.id")),
    Column("data", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

_indexed = text(f"kind > {LAST_POLL_KIND}")
_identified = text("event_id IS NOT NULL")
Index(
    "events_stream", events.c.stream_id, events.c.version, unique=True, sqlite_where=_indexed, postgresql_where=_indexed
)
_rare = text("kind > 1")
Index("events_kind", events.c.kind, events.c.position, sqlite_where=_rare, postgresql_where=_rare)
Index("events_event_id", events.c.event_id, unique=True, sqlite_where=_identified, postgresql_where=_identified)


def _refusal(table: str, verb: str) -> str:
    return (
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'the record is append-only: no {verb} on {table}'); END"
    )


TRIGGERS: Final[dict[str, str]] = {
    f"{table}_no_{verb.lower()}": _refusal(table, verb)
    for table, verbs in (
        ("events", ("UPDATE", "DELETE")),
        ("parts", ("UPDATE", "DELETE")),
        ("meta", ("UPDATE", "DELETE")),
        ("streams", ("DELETE",)),
        ("head", ("DELETE",)),
    )
    for verb in verbs
}
"""SQLite's triggers by name, as `sqlite_schema` must show them."""

_NEW: Final[dict[str, frozenset[str]]] = {"0001": frozenset({"events_kind"})}
"""By older revision: what it does not have yet."""

_ALEMBIC: Final = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
_QUOTED: Final = re.compile(r'"(\w+)"')
_LAYOUT: Final = re.compile(r" ?([(),]) ?")


def expected_schema(revision: str = REVISION) -> dict[str, tuple[str, ...]]:
    """Kind, table and plain SQL of everything the schema of a SQLite record has, by name."""
    new = _NEW.get(revision, frozenset())
    with create_engine("sqlite://").begin() as connection:
        metadata.create_all(connection)
        for sql in (*TRIGGERS.values(), _ALEMBIC):
            connection.exec_driver_sql(sql)
        return {name: what for name, what in described(connection).items() if name not in new}


def described(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Kind, table and plain SQL by name, of what a SQLite database has."""
    rows = driver(connection).execute("SELECT name, type, tbl_name, sql FROM sqlite_schema").fetchall()
    return {str(name): (str(kind), str(table), plain_sql(sql)) for name, kind, table, sql in rows}


def plain_sql(sql: object) -> str:
    """SQL without the layout and the quotes around names that differ between writers of it."""
    return _LAYOUT.sub(r"\1", _QUOTED.sub(r"\1", " ".join(str(sql).split())))


def alembic_config() -> "Config":
    """Alembic's settings for a record, with no settings file needed."""
    from alembic.config import Config

    # Inside the installed package, or beside it in a source tree.
    installed = Path(__file__).parents[1] / "_migrations"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "migrations"
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def migrate(connection: Connection) -> None:
    """Bring the schema to this version inside the caller's transaction, so that it is upgraded whole or not at all."""
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column as the driver gives it: a hand may have put any type there, which the declared type cannot read."""
    return type_coerce(column, NULLTYPE)


def driver(connection: Connection) -> "sqlite3.Connection":
    """The driver's own connection, for the statements that run for every event or part: a statement costs 3 µs through
    it and 30 µs through SQLAlchemy, which looks at the columns of every result. Ask for it each time, as SQLAlchemy
    makes another after a failure.

    Raises:
        sqlalchemy.exc.ResourceClosedError: the connection is closed.
    """
    return cast("sqlite3.Connection", connection.connection.driver_connection)
