"""The schema of a record on PostgreSQL."""

from __future__ import annotations

import pytest
from stenotest.records import StandingClock

from events.store import schema
from events.store.identity import new_identity
from events.store.postgres.connection import connect
from events.store.postgres.inspection import describe, known
from events.store.store import store_at


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_verify_expects_the_schema_that_the_migrations_make(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    """`known` is what `describe` prints of a record that was just brought to that revision."""
    monkeypatch.setattr("events.store.postgres.store.migrate", lambda database: schema.migrate(database, revision))
    store_at(postgres_url).create(new_identity(StandingClock()))
    with connect(postgres_url, write=False) as connection:
        assert known(revision) == describe(connection)
