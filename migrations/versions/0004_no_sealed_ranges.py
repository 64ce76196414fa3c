"""The tables of sealed ranges are dropped (ADR 65), and no event is ever deleted again."""

import sqlalchemy as sa
from alembic import op

from steno.events.errors import RecordTooOld
from steno.events.store.schema import run_script

revision: str = "0004"
down_revision: str | None = "0003"


def upgrade() -> None:
    connection = op.get_bind()
    postgres = connection.dialect.name == "postgresql"
    if postgres:
        op.execute("LOCK TABLE sealed")  # an older version may seal meanwhile
    if connection.execute(sa.text("SELECT 1 FROM sealed")).first() is not None:
        raise RecordTooOld("Events of the record are in sealed files, which only their rows in `sealed` find: stopped.")
    if not postgres:
        op.execute("DROP TRIGGER events_no_delete")
        op.execute(
            "CREATE TRIGGER events_no_delete BEFORE DELETE ON events "
            "BEGIN SELECT RAISE(ABORT, 'the record is append-only: no DELETE on events'); END"
        )
    for table in ("sealed", "sealed_ids", "sealed_streams"):
        op.drop_table(table)
    if postgres:
        run_script(connection, revision)
