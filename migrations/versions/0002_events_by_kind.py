"""An index of events by kind, without answered polls: rare events are found by it (`steno events --type`)."""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    where = sa.text("kind > 1")
    op.create_index("events_kind", "events", ["kind", "position"], sqlite_where=where, postgresql_where=where)
