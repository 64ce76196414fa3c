"""What each role of a PostgreSQL database may do; SQLite has no roles."""

from pathlib import Path

from alembic import op

revision: str = "0006_roles"
down_revision: str | None = "0005_clock"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    script = Path(__file__).parents[1] / "postgres" / f"{revision}.sql"
    driver = connection.connection.driver_connection
    assert driver is not None  # noqa: S101
    driver.execute(script.read_bytes())


def downgrade() -> None:
    raise NotImplementedError("The record is never taken back to an older schema.")
