"""The tables of a record, declared once; migrations, opening and verify are held to this.

`events` has one row an event. `parts` holds what events share (questions, answers, items of answers), once by content.
`streams` and `head` are the only rows that ever change: they say where the next event goes.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)

APPLICATION_ID: Final = 0x53544E4F
"""`STNO`, at byte 68 of the file: how a record is told from any other SQLite file before it is opened."""

FORMAT: Final = 1
"""How bytes inside the rows are to be read (codec, parts, chain); kept in `meta`."""

REVISION: Final = "0001"
"""The Alembic revision this code reads and writes."""

LAST_POLL_KIND: Final = 2
"""Kinds 1 and 2 are polls: too many to index by stream."""

metadata = MetaData()

# SQLite gives a row id only to a column declared exactly INTEGER.
_ROWID = BigInteger().with_variant(Integer(), "sqlite")

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

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
