"""Runs a record's migrations; `steno.events.store.schema.migrate` calls this with a connection in a transaction."""

from alembic import context

from steno.events.store.schema import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Name the record: alembic -x is not read, use `steno db upgrade --record URL`.")
context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
