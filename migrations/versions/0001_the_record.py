"""The record: events, parts, streams, head, meta and the triggers that refuse change."""

import sqlalchemy as sa
from alembic import op

from steno.events.store.schema import run_script

revision: str = "0001"
down_revision: str | None = None

_ROWID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_REFUSED = {"UPDATE": ("events", "parts", "meta"), "DELETE": ("events", "parts", "meta", "streams", "head")}


def _to_part(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), sa.ForeignKey("parts.id"))


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        run_script(connection, revision)
        return
    op.create_table(
        "meta", sa.Column("key", sa.Text(), primary_key=True), sa.Column("value", sa.LargeBinary(), nullable=False)
    )
    op.create_table(
        "head",
        sa.Column("id", sa.SmallInteger(), sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "parts",
        sa.Column("id", _ROWID, primary_key=True),
        sa.Column("commitment", sa.LargeBinary(), nullable=False, unique=True),
        _to_part("base_id"),
        sa.Column("encoding", sa.SmallInteger(), nullable=False),
        sa.Column("crc", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "streams",
        sa.Column("id", _ROWID, primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        _to_part("item_id"),
        sa.Column("since", sa.BigInteger()),
    )
    op.create_table(
        "events",
        sa.Column("position", _ROWID, primary_key=True, autoincrement=False),
        sa.Column("stream_id", sa.BigInteger(), sa.ForeignKey("streams.id"), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("event_id", sa.LargeBinary()),
        sa.Column("observed_at", sa.BigInteger(), nullable=False),
        sa.Column("took", sa.BigInteger(), nullable=False),
        sa.Column("recorded_after", sa.BigInteger(), nullable=False),
        _to_part("scope_id"),
        _to_part("body_id"),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_index("events_stream", "events", ["stream_id", "version"], unique=True, sqlite_where=sa.text("kind > 2"))
    identified = sa.text("event_id IS NOT NULL")
    op.create_index("events_event_id", "events", ["event_id"], unique=True, sqlite_where=identified)
    for verb, tables in _REFUSED.items():
        for table in tables:
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, 'the record is append-only: no {verb} on {table}'); END"
            )
    # "STNO": tells a record from other SQLite files.
    op.execute(f"PRAGMA application_id = {0x53544E4F}")
