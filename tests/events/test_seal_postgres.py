"""Sealing on PostgreSQL: whose right it is, and readers that stand in its way."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest.postgres import small_partitions
from stenotest.records import START, StandingClock, poll_of

from events.clock import SECOND
from events.errors import RecordNotWritable
from events.store import sealing
from events.store.postgres import session
from events.store.record import Record
from events.store.store import Store, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOCK = StandingClock()


@pytest.fixture
def store(postgres_url: str) -> Store:
    """A record of 200 polls in partitions of 40 positions."""
    Record.open(postgres_url, clock=CLOCK, write=True, create=True).close()
    small_partitions(postgres_url)
    with Record.open(postgres_url, clock=CLOCK, write=True) as record:
        record.append_polls([poll_of(b"[]", at=START + number * SECOND) for number in range(200)])
    return store_at(postgres_url)


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    name = f"recorder_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        server.execute(f"DROP OWNED BY {name}")
        server.execute(f"DROP ROLE {name}")


def seal(store: Store, folder: Path) -> sealing.Sealing:
    return sealing.seal(
        store, before=START + 900 * SECOND, size=100, place=str(folder), clock=CLOCK,
        progress=lambda done, total: None,
    )  # fmt: skip


def test_only_the_owner_seals(store: Store, role: str, tmp_path: Path) -> None:
    """Whoever may append reads what is sealed, and cannot seal; who was let in by an older schema too."""
    with psycopg.connect(store.url, autocommit=True) as owner:
        owner.execute("SET search_path = steno")
        store.admit(role, appends=True)
        owner.execute("DROP TABLE sealed, sealed_ids, sealed_streams; DROP FUNCTION detach_sealed")
        owner.execute("UPDATE alembic_version SET version_num = '0002'")
        store.upgrade()
    theirs = store_at(store.url.replace("postgres@", f"{role}@"))
    with pytest.raises(RecordNotWritable, match="may not use"):
        seal(theirs, tmp_path)
    assert seal(store, tmp_path).sealed == 100
    with Record.open(theirs, clock=CLOCK, write=True) as record:
        assert [one.position for one in record.read(until=120)] == list(range(1, 121))
        assert record.append_polls([poll_of(b"[]", at=START)])[0].position == 201
        assert record.verify().ok


def test_a_reader_is_not_cut_off(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that somebody reads leave at the next call, whole; they stay beside the record."""
    monkeypatch.setattr(session, "_PAUSES", (0,))
    with Record.open(store, clock=CLOCK) as reader:
        with reader._session.snapshot():
            done = seal(store, tmp_path)
            assert (done.sealed, done.first) == (100, 1)
            assert len(list(reader.read())) == 200
        assert len(list(reader.read())) == 200
        assert reader.verify().ok
    assert seal(store, tmp_path).first == 81
    with Record.open(store, clock=CLOCK) as record:
        assert record.verify().ok
    with psycopg.connect(store.url) as owner:
        kept = owner.execute("SELECT count(*), min(position), max(position) FROM steno_sealed.events_41").fetchone()
    assert kept == (40, 41, 80)
