"""The rights of each role of a PostgreSQL database; SQLite has no roles."""

from alembic import op

from steno.events.store.schema import run_script

revision: str = "0006_roles"
down_revision: str | None = "0005_clock"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        run_script(connection, revision)
