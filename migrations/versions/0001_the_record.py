"""The record: events, parts, streams, head, meta and the triggers that refuse change."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ROWID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_REFUSED = (
    ("events", "UPDATE"),
    ("events", "DELETE"),
    ("parts", "UPDATE"),
    ("parts", "DELETE"),
    ("meta", "UPDATE"),
    ("meta", "DELETE"),
    ("streams", "DELETE"),
    ("head", "DELETE"),
)


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "head",
        sa.Column("id", sa.SmallInteger(), sa.CheckConstraint("id = 1"), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "parts",
        sa.Column("id", _ROWID, nullable=False),
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
        sa.Column("base_id", sa.BigInteger(), nullable=True),
        sa.Column("encoding", sa.SmallInteger(), nullable=False),
        sa.Column("crc", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("commitment"),
        sa.ForeignKeyConstraint(["base_id"], ["parts.id"]),
    )
    op.create_table(
        "streams",
        sa.Column("id", _ROWID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("item_id", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.ForeignKeyConstraint(["item_id"], ["parts.id"]),
    )
    op.create_table(
        "events",
        sa.Column("position", _ROWID, autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("event_id", sa.LargeBinary(), nullable=True),
        sa.Column("observed_at", sa.BigInteger(), nullable=False),
        sa.Column("took", sa.BigInteger(), nullable=False),
        sa.Column("recorded_after", sa.BigInteger(), nullable=False),
        sa.Column("scope_id", sa.BigInteger(), nullable=True),
        sa.Column("body_id", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"]),
        sa.ForeignKeyConstraint(["scope_id"], ["parts.id"]),
        sa.ForeignKeyConstraint(["body_id"], ["parts.id"]),
    )
    op.create_index("events_stream", "events", ["stream_id", "version"], unique=True, sqlite_where=sa.text("kind > 2"))
    op.create_index(
        "events_event_id", "events", ["event_id"], unique=True, sqlite_where=sa.text("event_id IS NOT NULL")
    )
    for table, verb in _REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'the record is append-only: no {verb} on {table}'); END"
        )
    # "STNO": how a record is told from any other SQLite file.
    op.execute(f"PRAGMA application_id = {0x53544E4F}")


def downgrade() -> None:
    raise NotImplementedError("The record is never taken back to an older schema.")
