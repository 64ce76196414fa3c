"""The schema of a record on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from stenotest.records import StandingClock

from events.store.postgres.connection import connect
from events.store.postgres.inspection import describe
from events.store.record import Record

KNOWN = Path(__file__).parents[2] / "migrations" / "postgres" / "schema.txt"


def test_verify_expects_the_schema_that_the_migrations_make(postgres_url: str) -> None:
    """`schema.txt` is what `describe` prints of a new record."""
    Record.open(postgres_url, clock=StandingClock(), write=True, create=True).close()
    with connect(postgres_url, write=False) as connection:
        assert [tuple(line.split("\t")) for line in KNOWN.read_text().splitlines()] == describe(connection)
