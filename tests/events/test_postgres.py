"""Cases of PostgreSQL alone: other writers, a server that ends, expiring leases, partitions."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stenotest.postgres import FAST, new_server
from stenotest.records import StandingClock, poll_of
from stenotest.waiting import wait

from steno.events.clock import RandomIds
from steno.events.errors import LeaseLost, RecordLocked, RecordTooNew, RecordUnreachable, StenoError
from steno.events.store import schema
from steno.events.store.copying import copy
from steno.events.store.record import Batch, Record
from steno.events.store.store import new_identity, store_at
from steno.events.types import SubmitIntended


def opened(url: object, *, write: bool = True, create: bool = True) -> Record:
    return Record.open(url, clock=StandingClock(), write=write, create=write and create)  # type: ignore[arg-type]


def numbered(first: int, count: int = 1, stream: str = "run/1") -> Batch:
    facts = tuple(
        SubmitIntended(run_id=str(number), provider="local", name="a") for number in range(first, first + count)
    )
    return Batch(stream=stream, events=facts)


@pytest.fixture
def owner(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the record's owner, past Steno; the record is there."""
    opened(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = steno")
        yield connection


def test_two_writers_and_a_reader_that_follows_miss_nothing(postgres_url: str) -> None:
    """Every position is there when a higher one is; both writers' events are whole and in order."""
    opened(postgres_url).close()
    rounds, trouble = 60, []

    def write(stream: str) -> None:
        try:
            with opened(postgres_url) as record:
                for number in range(rounds):
                    record.append_many([numbered(number, 1 + number % 20, stream)])
        except Exception as error:  # noqa: BLE001 - shown below
            trouble.append(error)

    writers = [threading.Thread(target=write, args=(f"run/{name}",)) for name in "ab"]
    total = 2 * sum(1 + number % 20 for number in range(rounds))
    for writer in writers:
        writer.start()
    seen: list[int] = []
    with opened(postgres_url, write=False) as record:

        def followed() -> bool:
            seen.extend(stored.position for stored in record.read(after=len(seen)))
            return len(seen) >= total or bool(trouble)

        wait(followed, "every event of both")
        for writer in writers:
            writer.join()
        assert not trouble
        assert seen == list(range(1, total + 1))
        assert record.verify().ok
        assert record.streams() == (("run/a", total // 2), ("run/b", total // 2)) or len(record.streams()) == 2


def test_a_writer_that_came_second_says_nothing_of_it(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would warn of the pipeline that failed; the append is simply done once more. Whoever sets up logs with
    `logging.config` in this process enables every logger.
    """
    with opened(postgres_url) as first, opened(postgres_url) as second:
        monkeypatch.setattr(logging.getLogger("psycopg"), "disabled", False)
        first.append_many([numbered(1)])
        second.append_many([numbered(2)])
        assert first.append_many([numbered(3)]) == (3,)
        logging.getLogger("psycopg").warning("what it says only where the answer comes before the pipeline ends")
    assert not caplog.records


def test_a_server_that_crashes_in_mid_append_loses_and_doubles_nothing() -> None:
    """Acknowledged events are there, once; a writer continues when the server is back."""
    with ExitStack() as stack:
        server = new_server(*FAST)
        stack.callback(server.remove)
        server.start()
        url, acknowledged, over, trouble = server.url(), [], threading.Event(), []

        def write() -> None:
            try:
                with opened(url) as record:
                    while not over.is_set():
                        number, event_id = len(acknowledged), RandomIds().new()
                        batch = Batch(stream="run/1", events=numbered(number).events, ids=(event_id,))
                        while True:  # an event that is not acknowledged is given again, under its id
                            try:
                                acknowledged.append(record.append_many([batch], durable=True)[0])
                                break
                            except (RecordUnreachable, RecordLocked):
                                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001 - shown below
                trouble.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        for crashes in range(4):
            before = len(acknowledged)
            wait(lambda before=before: trouble or len(acknowledged) >= before + 20, "twenty appends")
            if crashes < 3:
                server.stop(signal.SIGQUIT)
                server.start()
        over.set()
        writer.join()
        assert not trouble
        with opened(url, write=False) as record:
            assert record.verify().ok
            assert [stored.data.run_id for stored in record.read()] == [str(n) for n in range(len(acknowledged))]  # type: ignore[union-attr]
            assert acknowledged == list(range(1, len(acknowledged) + 1))


def test_a_holder_that_lost_its_lease_appends_nothing(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """It slept through its lease: the append itself checks the token, and the lease says so before a call."""
    with opened(postgres_url) as record, opened(postgres_url) as other:
        mine = record.store.lease("dstack/main")
        assert mine is not None
        record.bind(mine)
        record.append_many([numbered(1)])
        owner.execute("UPDATE leases SET expires = clock_timestamp()")
        theirs = other.store.lease("dstack/main")
        assert theirs is not None
        assert theirs.token == mine.token + 1
        with pytest.raises(LeaseLost):
            record.append_many([numbered(2)])
        assert record.head().position == 1
        wait(lambda: not mine.valid, "the end of the lease")
        mine.release()
        assert theirs.valid
        other.bind(theirs)
        other.append_many([numbered(2)])
        theirs.release()


def test_a_killed_holder_is_followed_within_ten_seconds(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """By the database's clock: the lease that it renewed last has ended by then, and another may act."""
    script = textwrap.dedent(
        f"""
        import time
        from steno.events.store.store import store_at
        lease = store_at({postgres_url!r}).lease("local/here")
        print("held", flush=True)
        time.sleep(3600)
        """
    )
    store = store_at(postgres_url)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert store.lease("local/here") is None
        assert [(holder.name, holder.process) for holder in store.leases()] == [("local/here", process.pid)]
        process.kill()
    killed, expires = owner.execute("SELECT clock_timestamp(), expires FROM leases").fetchone() or (None, None)
    assert (expires - killed).total_seconds() < 10
    wait(lambda: store.lease("local/here"), "the lease").release()


def test_an_append_goes_on_in_the_next_partition(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """The range that a record reaches is made then, with the triggers of the others."""
    owner.execute("DROP TABLE events_1; DELETE FROM ranges; SELECT make_room(1, 10)")
    with opened(postgres_url) as record:
        record.append_many([numbered(1, 25)])
        assert len(list(record.read())) == 25
        assert record.verify().ok
    assert owner.execute("SELECT first, past FROM ranges ORDER BY first").fetchall() == [(1, 11), (11, 10_000_011)]
    with pytest.raises(psycopg.DatabaseError, match="append-only"):
        owner.execute("DELETE FROM events_11")


def test_verify_names_a_changed_byte_and_a_missing_trigger(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """A superuser can do anything; not unseen."""
    with opened(postgres_url) as record:
        record.append_many([numbered(1, 5)])
    owner.execute("DROP TRIGGER no_update ON events_1; DROP TRIGGER no_update ON events")
    owner.execute("UPDATE events SET observed_at = observed_at + 1 WHERE position = 3")
    with opened(postgres_url, write=False) as record:
        verdict = record.verify()
    assert not verdict.ok
    assert [damage.position for damage in verdict.damage if damage.kind == "chain"] == [3]
    assert {damage.detail.split(":")[0] for damage in verdict.damage if damage.kind == "trigger"} == {
        "events",
        "events_1",
    }


def test_a_newer_schema_is_left_alone(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """A newer Steno wrote it."""
    owner.execute("UPDATE alembic_version SET version_num = '9999'")
    for write in (False, True):
        with pytest.raises(RecordTooNew):
            opened(postgres_url, write=write)


def test_an_older_schema_is_upgraded_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer asks for it; nobody does it under a holder of a lease, and two that upgrade at once do it once."""
    with monkeypatch.context() as older:
        older.setattr("steno.events.store.postgres.store.migrate", lambda database: schema.migrate(database, "0001"))
        store_at(postgres_url).create(new_identity(StandingClock()))
    with pytest.raises(StenoError, match="db upgrade"):
        opened(postgres_url)
    with (
        store_at(postgres_url).lease("local/here") or pytest.fail("it is free"),
        pytest.raises(RecordLocked, match=f"in use by process {os.getpid()} on .*stop that"),
    ):
        store_at(postgres_url).upgrade()
    upgrades = [threading.Thread(target=store_at(postgres_url).upgrade) for _ in range(2)]
    for upgrade in upgrades:
        upgrade.start()
    for upgrade in upgrades:
        upgrade.join()
    with opened(postgres_url) as record:
        assert record.verify().ok


def test_processes_that_make_a_record_at_once_make_one(postgres_url: str) -> None:
    """The others open what the first has made."""
    made: list[str] = []

    def make() -> None:
        with opened(postgres_url) as record:
            made.append(record.id)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(made)) == 1


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg is an extra."""
    # The package itself stays: a second one would stay behind in `steno.events.store`.
    for name in [name for name in sys.modules if name.startswith("steno.events.store.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StenoError, match=r"make .*setup EXTRAS=postgres"):
        store_at("postgresql://localhost/steno")


def test_a_copy_that_was_interrupted_goes_on(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back, with the vault: the same head, and every byte verifies."""
    monkeypatch.setattr("steno.events.store.copying._CHUNK", 7)
    origin, back = tmp_path / "origin.db", tmp_path / "back.db"
    with opened(origin) as record:
        for number in range(20):
            body = b'[{"id":"a","env":{"TOKEN":"secret"},"n":%d},{"id":"b"}]' % number
            record.append_polls([poll_of(body)])
            record.append_many([numbered(number, 2, f"run/{number % 3}")])
        head = record.head()

    def interrupted(done: int, _total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(store_at(origin), store_at(postgres_url), clock=StandingClock(), progress=interrupted)
    with opened(postgres_url, write=False) as record:
        assert record.verify().ok
        assert 0 < record.head().position < head.position
    for source, target in ((origin, postgres_url), (postgres_url, back)):
        assert copy(store_at(source), store_at(target), clock=StandingClock(), progress=lambda *_: None) == head
        with opened(target, write=False) as record:
            assert record.verify().ok
            assert record.store.blob("vault").read() == store_at(origin).blob("vault").read()
    with opened(postgres_url) as record:
        record.append_many([numbered(1)])
    with pytest.raises(StenoError, match="went on by itself"):
        copy(store_at(back), store_at(postgres_url), clock=StandingClock(), progress=lambda *_: None)


def test_verify_names_a_head_that_was_left_open(owner: psycopg.Connection[Any], postgres_url: str) -> None:
    """A superuser can; then whoever may insert could at any time."""
    owner.execute("ALTER TABLE head DISABLE TRIGGER finished; UPDATE head SET open = '{0,0}'")
    owner.execute("ALTER TABLE head ENABLE TRIGGER finished")
    with opened(postgres_url, write=False) as record:
        assert [damage.detail for damage in record.verify().damage] == ["head: open is set, though nobody appends"]
