"""The schema of a record on PostgreSQL."""

import psycopg
import pytest
from stenotest.records import StandingClock

from steno.events.errors import RecordTooOld
from steno.events.store import schema
from steno.events.store.postgres.connection import connect, describe, known
from steno.events.store.postgres.store import PostgresStore
from steno.events.store.record import Record
from steno.events.store.store import REVISIONS, new_identity, store_at


@pytest.mark.parametrize("revision", REVISIONS)
def test_verify_expects_the_schema_that_the_migrations_make(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    """`known` is what `describe` prints of a record that was just brought to that revision."""
    monkeypatch.setattr(
        "steno.events.store.postgres.store.migrate", lambda database: schema.migrate(database, revision)
    )
    store_at(postgres_url).create(new_identity(StandingClock()))
    with connect(postgres_url, write=False) as connection:
        assert known(revision) == describe(connection)


def test_a_sealed_record_is_refused_and_kept(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By readers, writers and the migration: what finds its files stays."""
    with monkeypatch.context() as patched:
        patched.setattr("steno.events.store.postgres.store.migrate", lambda database: schema.migrate(database, "0003"))
        store_at(postgres_url).create(new_identity(StandingClock()))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = steno")
        Record.open(postgres_url, clock=StandingClock()).close()
        connection.execute("INSERT INTO sealed VALUES (100, 1, '', '/archive', 'a.parquet', 1280, '')")
        for attempt in (
            lambda: Record.open(postgres_url, clock=StandingClock()),
            lambda: Record.open(postgres_url, clock=StandingClock(), write=True),
            store_at(postgres_url).upgrade,
        ):
            with pytest.raises(RecordTooOld, match=r"steno db copy .* NEW` with the version that sealed them"):
                attempt()
        monkeypatch.setattr(PostgresStore, "_is_sealed", lambda *_: False)  # sealed after it was opened
        with pytest.raises(RecordTooOld, match="sealed files"):
            store_at(postgres_url).upgrade()
        assert connection.execute("SELECT last FROM sealed").fetchall() == [(100,)]
