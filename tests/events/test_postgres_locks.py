"""A process that holds a lock of the database and stands still delays the others only for seconds."""

from contextlib import closing, suppress

import psycopg
import pytest
from stenotest.records import StandingClock
from stenotest.waiting import wait

from steno.events.errors import RecordUnreachable
from steno.events.store.postgres import lease
from steno.events.store.postgres.connection import connect
from steno.events.store.record import Batch, Record
from steno.events.store.store import store_at
from steno.events.types import SubmitIntended


def writer(url: str) -> Record:
    return Record.open(url, clock=StandingClock(), write=True, create=True)


def test_who_stands_still_in_an_append_holds_up_nobody(postgres_url: str) -> None:
    """The server ends its transaction before others give up waiting for the head."""
    with writer(postgres_url) as record, closing(connect(postgres_url, write=True)) as still:
        still.execute("BEGIN")
        still.execute("SELECT look_at_head(true)")
        record.append_many([Batch(stream="run/1", events=(SubmitIntended(run_id="1", provider="local", name="a"),))])
        with pytest.raises(psycopg.Error, match="idle-in-transaction"):
            still.execute("COMMIT")


def test_who_stands_still_between_two_messages_of_an_append_holds_up_nobody(postgres_url: str) -> None:
    """To the server a pipeline without its end is at work, so that no timeout of its ends it."""
    seen = (
        "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%look_at_head%%' AND wait_event = 'ClientRead'"
    )
    with writer(postgres_url) as record, closing(connect(postgres_url, write=True)) as still:
        with (
            suppress(psycopg.OperationalError),
            still.pipeline(),
            psycopg.connect(postgres_url, autocommit=True) as other,
        ):
            still.execute("BEGIN", prepare=False)
            still.execute("SELECT look_at_head(true)", prepare=False)
            pid = (still.info.backend_pid,)
            wait(lambda: other.execute(seen, pid).fetchone(), what="its lock")
            event = SubmitIntended(run_id="1", provider="local", name="a")
            record.append_many([Batch(stream="run/1", events=(event,))])
        assert record.head().position > 0
        assert still.closed


def test_who_stands_still_with_a_lock_changes_nothing_late(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has changed the vault or the tokens meanwhile: theirs stays."""
    monkeypatch.setattr(lease, "PATIENT", "SET LOCAL idle_in_transaction_session_timeout = '1s'")
    writer(postgres_url).close()
    blob = store_at(postgres_url).blob("vault")

    def late() -> None:
        with blob.locked() as held:
            with blob.locked() as other:  # waits until the server has freed the lock
                other.replace(b"theirs")
            held.replace(b"late")

    with pytest.raises(RecordUnreachable, match="stood still"):
        late()
    assert blob.read() == b"theirs"
