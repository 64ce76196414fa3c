"""The bytes of runs' output, beside the chain: they may be dropped."""

from alembic import op

from steno.events.store.schema import run_script

revision: str = "0007_outputs"
down_revision: str | None = "0006_roles"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        run_script(op.get_bind(), revision)
        return
    op.execute("CREATE TABLE outputs (position INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (position))")
    op.execute(
        "CREATE TRIGGER outputs_no_update BEFORE UPDATE ON outputs "
        "BEGIN SELECT RAISE(ABORT, 'the record is append-only: no UPDATE on outputs'); END"
    )
