"""Brings the schema of a record to this version, with Alembic."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection


def migrations_folder() -> Path:
    """Where the migrations are: inside the installed package, or beside it in a source tree."""
    installed = Path(__file__).parents[1] / "_migrations"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "migrations"


def alembic_config() -> "Config":
    """Alembic's settings for a record, with no settings file needed."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def upgrade_connection(connection: "Connection") -> None:
    """Upgrade inside the caller's transaction, so that a record is made whole or not at all."""
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def upgrade(where: str | Path) -> None:
    """Upgrade the record at `where` (a SQLAlchemy URL or a path); one that is up to date is left alone.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: nothing was written.
    """
    from events.store.opening import connect_for_upgrade

    with connect_for_upgrade(where) as connection:
        upgrade_connection(connection)
        connection.commit()
