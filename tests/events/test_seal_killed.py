"""A seal that is killed at any step: the record is whole at once, and the next seal finishes it."""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.waiting import wait
from stenotest.big import big_record
from stenotest.postgres import small_partitions
from stenotest.readings_of import everything
from stenotest.records import START, StandingClock

from engine.providers.readings import READINGS
from events.clock import SECOND
from events.errors import RecordLocked
from events.store import sealing
from events.store.copying import copy
from events.store.postgres.session import PostgresSession
from events.store.record import Record
from events.store.sealed import place
from events.store.sealed.place import SealedFolder
from events.store.sqlite import store as sqlite_store
from events.store.sqlite.store import SqliteSession
from events.store.store import Store, store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZE = 150
CLOCK = StandingClock(START + 90 * 24 * 3600 * SECOND)


def seal(store: Store, folder: Path) -> sealing.Sealing:
    return sealing.seal(
        store, before=CLOCK.now(), size=SIZE, place=str(folder), clock=CLOCK, progress=lambda done, total: None
    )


def seal_when_free(store: Store, folder: Path) -> sealing.Sealing:
    """Seal as soon as the lease of a holder that was killed has ended."""
    found: list[sealing.Sealing] = []

    def sealed() -> bool:
        with suppress(RecordLocked):
            found.append(seal(store, folder))
        return bool(found)

    wait(sealed, seconds=60, what="the lease of the process that was killed")
    return found[0]


def killed_in(work: Callable[[], Any]) -> None:
    """Do it in a process of its own, which must be killed by itself on the way."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it was not killed"
    assert os.WTERMSIG(status) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, *, before: bool = False, times: int = 1) -> Callable[[], None]:
    """Patch a function so that its `times`th call kills the process before it works, or after."""

    def patch() -> None:
        real, calls = getattr(owner, name), [0]

        def killing(*given: Any, **named: Any) -> Any:
            calls[0] += 1
            if before and calls[0] == times:
                die()
            done = real(*given, **named)
            if calls[0] == times:
                die()
            return done

        setattr(owner, name, killing)

    return patch


def at_statement(text: str, times: int = 1) -> Callable[[], None]:
    """Patch SQLite's statements so that one kills the process before it runs."""

    def patch() -> None:
        real, calls = sqlite_store._compiled, [0]

        def killing(statement: Any) -> str:
            found = real(statement)
            calls[0] += found.startswith(text)
            if found.startswith(text) and calls[0] == times:
                die()
            return found

        sqlite_store._compiled = killing

    return patch


def half_written() -> None:
    """Patch the writing of a file so that half of it is there, under its own name at that."""

    def write(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: len(content) // 2])
        die()

    place._write = write


EVERYWHERE = {
    "before a file is written": around(place, "_write", before=True),
    "in a file": half_written,
    "after a file is written": around(place, "_write"),
    "after it is read back": around(SealedFolder, "read"),
    "in the second range": around(place, "_write", times=4),
    "before rows leave": around(sealing, "_first", times=2),
}
SQLITE = {
    "before a range is noted": around(SqliteSession, "add_sealed", before=True),
    "while a range is noted": at_statement("INSERT INTO sealed_streams"),
    "after a range is noted": around(SqliteSession, "add_sealed"),
    "as the first rows leave": at_statement("DELETE FROM events"),
    "while rows leave": at_statement("DELETE FROM events", 3),
    "after rows left": around(SqliteSession, "release"),
}
POSTGRES = {
    "before a range is noted": around(PostgresSession, "add_sealed", before=True),
    "after a range is noted": around(PostgresSession, "add_sealed"),
    "before a partition is detached": around(PostgresSession, "release", before=True),
    "after partitions are detached": around(PostgresSession, "release"),
}


def check(store: Store, folder: Path, step: Callable[[], None]) -> None:
    with Record.open(store, clock=CLOCK, shapes=READINGS.shape) as record:
        before = everything(record, sample=11)
    del record

    def work() -> None:
        step()
        seal(store, folder)

    killed_in(work)
    with Record.open(store, clock=CLOCK, shapes=READINGS.shape) as record:
        assert everything(record, sample=11) == before
        verdict = record.verify(expect=before["head"])
        assert (verdict.ok, verdict.damage) == (True, ())
    done = seal_when_free(store, folder)
    end = (before["head"].position - 1) // SIZE * SIZE
    assert (done.sealed, done.first > 1) == (end, True)
    with Record.open(store, clock=CLOCK, write=True, shapes=READINGS.shape) as record:
        assert everything(record, sample=11) == before
        assert record.append_polls([record.poll(1)])[0].position == before["head"].position + 1
        assert record.verify().ok
    assert seal(store, folder).files == ()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "GROUP", 40)
    monkeypatch.setattr(sqlite_store, "_RELEASED", 60)


QUICK = ("in a file", "while a range is noted", "while rows leave", "before rows leave")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=name, marks=() if name in QUICK else pytest.mark.long)
        for name, step in (EVERYWHERE | SQLITE).items()
    ],
)
def test_a_seal_that_is_killed_loses_nothing(step: Callable[[], None], tmp_path: Path) -> None:
    """In SQLite: files before they are noted, rows after it."""
    path = tmp_path / "record.db"
    big_record(path, events=400)
    check(store_at(path), tmp_path / "files", step)
    assert not list((tmp_path / "files").rglob("*.part"))


@pytest.mark.parametrize("step", (EVERYWHERE | POSTGRES).values(), ids=EVERYWHERE | POSTGRES)
@pytest.mark.long
def test_a_seal_on_postgresql_that_is_killed_loses_nothing(
    step: Callable[[], None], tmp_path: Path, postgres_url: str
) -> None:
    """The same where partitions leave."""
    path = tmp_path / "record.db"
    big_record(path, events=400)
    target = store_at(postgres_url)
    with closing(store_at(path).open(write=False, create=False, check=True, clock=CLOCK)) as session:
        target.create(session.identity)
    small_partitions(postgres_url)
    copy(store_at(path), target, clock=CLOCK, progress=lambda done, total: None)
    check(target, tmp_path / "files", step)
