"""Ranges of events that are sealed in files: which, and what finds an id and a stream in them."""

import sqlalchemy as sa
from alembic import op

from steno.events.store.schema import run_script

revision: str = "0003"
down_revision: str | None = "0002"

_ROWID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_WHEN = {
    ("DELETE", "events"): "WHEN OLD.position > (SELECT coalesce(max(last), 0) FROM sealed) ",
    ("UPDATE", "sealed"): "WHEN OLD.last <> NEW.last OR OLD.first <> NEW.first OR OLD.hash <> NEW.hash OR "
    "OLD.file <> NEW.file OR OLD.size <> NEW.size OR OLD.digest <> NEW.digest ",
}


def _number(name: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), primary_key=key, nullable=False, autoincrement=False)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        run_script(connection, revision)
        return
    op.create_table(
        "sealed",
        sa.Column("last", _ROWID, primary_key=True, autoincrement=False),
        _number("first"),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        _number("size"),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "sealed_ids",
        sa.Column("event_id", sa.LargeBinary(), primary_key=True, nullable=False),
        _number("position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sealed_streams",
        _number("stream_id", key=True),
        _number("first", key=True),
        _number("last"),
        sqlite_with_rowid=False,
    )
    op.execute("DROP TRIGGER events_no_delete")
    refused = [("DELETE", "events")]
    refused += [(verb, table) for verb in ("UPDATE", "DELETE") for table in ("sealed", "sealed_ids", "sealed_streams")]
    for verb, table in refused:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} {_WHEN.get((verb, table), '')}"
            f"BEGIN SELECT RAISE(ABORT, 'the record is append-only: no {verb} on {table}'); END"
        )
