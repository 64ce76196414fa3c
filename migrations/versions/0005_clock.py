"""The clock of each event: which process start read it, and the time since the machine's boot."""

import sqlalchemy as sa
from alembic import op

revision: str = "0005_clock"
down_revision: str | None = "0004"


def upgrade() -> None:
    op.add_column("events", sa.Column("clock", sa.LargeBinary()))
