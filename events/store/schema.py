"""The tables of a record, declared once; migrations, opening and verify are compared with this.

`events` has one row an event, `parts` what events share, once by content. Only rows of `streams` and `head` ever
change: they say where the next event goes. Only rows of `outputs` are ever deleted.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, SmallInteger, Table, Text

from steno.events.store.store import CLOCKED, REVISION

if TYPE_CHECKING:
    from alembic.config import Config

metadata = sa.MetaData()

# SQLite makes only a column declared exactly INTEGER the row id.
_ROWID = BigInteger().with_variant(sa.Integer(), "sqlite")

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

revision = Table(  # Alembic's own
    "alembic_version",
    sa.MetaData(),
    Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

head = Table(
    "head",
    metadata,
    Column("id", SmallInteger, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
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
    Column("clock", LargeBinary),  # the epoch and boot time of `observed_at` (`steno.events.clock.Stamp`)
)

outputs = Table(  # what runs printed: may be dropped, so that the chain covers its hash alone
    "outputs",
    metadata,
    Column("position", _ROWID, primary_key=True, autoincrement=False),  # of its `OutputRecorded`
    Column("data", LargeBinary, nullable=False),  # a zstd frame
)

for _name, _columns, _unique, _condition in (
    ("events_stream", ("stream_id", "version"), True, "kind > 2"),  # polls are too many to index by stream
    ("events_kind", ("kind", "position"), False, "kind > 1"),
    ("events_event_id", ("event_id",), True, "event_id IS NOT NULL"),
):
    _where = sa.text(_condition)
    _given = [events.c[name] for name in _columns]
    sa.Index(_name, *_given, unique=_unique, sqlite_where=_where)


REFUSED: Final = {"UPDATE": (events, parts, meta, outputs), "DELETE": (events, parts, meta, streams, head)}
"""The statements that a trigger refuses, by table."""


@cache
def compiled(statement: Any, dialect: sa.Dialect, schema: str = "") -> str:
    """A statement's text; its constants must be literals in it. A record of an older schema has no clock."""
    text = str(statement.compile(dialect=dialect))
    return text.replace("events.clock", "NULL AS clock") if "" < schema < CLOCKED else text


def make_tables(connection: sa.Connection) -> None:
    """Make the newest schema, as the migrations do, without Alembic: it takes 9 MB and 0.2 s to import."""
    metadata.create_all(connection, checkfirst=False)
    revision.create(connection, checkfirst=False)
    connection.execute(revision.insert(), {"version_num": REVISION})


def migrations_folder() -> Path:
    """Inside the installed package, or beside it in a source tree."""
    installed = Path(__file__).parents[1] / "_migrations"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "migrations"


def alembic_config(connection: sa.Connection | None = None) -> "Config":
    """Alembic's settings for a record, without a settings file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrate(connection: sa.Connection, version: str = REVISION) -> None:
    """Bring the schema to a version inside the caller's transaction, whole or not at all."""
    from alembic import command

    command.upgrade(alembic_config(connection), version)


def run_script(connection: sa.Connection, version: str) -> None:
    """Run the SQL of a migration that PostgreSQL has of its own."""
    driver = connection.connection.driver_connection
    assert driver is not None  # noqa: S101
    driver.execute((migrations_folder() / "postgres" / f"{version}.sql").read_bytes())
