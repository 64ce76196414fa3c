"""Runs a record's migrations; `events.store.migrate` calls this with a connection already in a transaction."""

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from events.store.schema import metadata


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


def _run() -> None:
    given = context.config.attributes.get("connection")
    if isinstance(given, Connection):
        _migrate(given)
        return
    url = context.config.get_alembic_option("sqlalchemy.url")
    if url is None:
        raise SystemExit("Name the record: alembic -x is not read, use `steno db upgrade --record URL`.")
    with create_engine(url, poolclass=NullPool).begin() as connection:
        _migrate(connection)


_run()
