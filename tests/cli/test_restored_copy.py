"""The drill: a record is lost, `steno db restore` puts a copy in its place, and all goes on from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.errors import RecordNotWritable, RecordReplaced
from steno.events.store.record import Batch, Record
from steno.events.store.sqlite.connection import own_head

if TYPE_CHECKING:
    from stenotest.command_line import Steno


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a record can be: a file, or an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "place" / "record.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


def append(place: str | Path, *numbers: int) -> None:
    with Record.open(place, clock=SystemClock(), write=True, create=True) as record:
        for number in numbers:
            fact = types.RecorderStarted(source="dstack", software=f"{number} " * 40)
            record.append_many([Batch("source/dstack", [fact])])


@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
def test_a_copy_takes_the_place_of_a_record(steno: Steno, place: str, tmp_path: Path) -> None:
    """Lost events are counted and noted; vault and tokens stay; runs, costs and verdicts are those of the copy; a head
    from before the copy is still there, a later one is not.
    """
    record = {"STENO_RECORD": place}

    def done(*words: str, code: int = 0) -> str:
        call = steno(*words, **record)
        assert call.returncode == code, call.stderr
        return call.stdout + call.stderr

    def head() -> str:
        answer = json.loads(done("verify", "--json"))["head"]
        return f"{answer['position']}:{answer['hash']}"

    def runs() -> list[dict[str, object]]:
        answer: list[dict[str, object]] = json.loads(done("ps", "--all", "--json"))["runs"]
        return answer

    done("submit", "--provider", "local", "--wait", "-q", "--name", "one", "--", "true")
    done("token", "create", "--role", "read", "--name", "before")
    copied, before = head(), runs()
    done("db", "copy", place, str(tmp_path / "backup.db"))
    done("submit", "--provider", "local", "--wait", "-q", "--name", "two", "--", "true")
    done("token", "create", "--role", "read", "--name", "after")
    lost = head()

    restored = json.loads(done("db", "restore", str(tmp_path / "backup.db"), "--json"))
    common, ended = int(copied.partition(":")[0]), int(lost.partition(":")[0])
    assert (restored["common"], restored["lost"]) == (common, ended)
    (note,) = [json.loads(line) for line in done("events", "--json", "--from", str(common + 1)).splitlines()]
    assert (note["type"], note["position"]) == ("RecordRestored", common + 1)
    assert runs() == before
    done("verify", "--expect", copied)
    assert f"the record ends at position {common + 1}" in done("verify", "--expect", lost, code=7)
    assert "after" in done("token", "list")
    done("submit", "--provider", "local", "--wait", "-q", "--name", "three", "--", "true")
    assert {run["name"] for run in runs()} == {"one", "two", "three"}  # the provider still lists the second
    if "://" not in place:
        assert steno("verify", STENO_RECORD=restored["kept"]).returncode == 0


def test_nothing_is_restored_while_a_process_has_the_record(steno: Steno, place: str, tmp_path: Path) -> None:
    """A reader, or the holder of a lease: neither would notice in time."""
    append(place, 1, 2)
    assert steno("db", "copy", place, str(tmp_path / "backup.db")).returncode == 0
    append(place, 3)
    with Record.open(place, clock=SystemClock()) as reader:
        refused = steno("db", "restore", str(tmp_path / "backup.db"), STENO_RECORD=place)
        assert (refused.returncode, "open: stop it first" in refused.stderr) == (5, True), refused.stderr
        assert reader.head().position == 3


@pytest.mark.parametrize("wrong", ["another", "damaged", "missing"])
def test_a_copy_that_is_none_changes_nothing(steno: Steno, place: str, tmp_path: Path, wrong: str) -> None:
    append(place, 1, 2)
    copy = tmp_path / "copy.db"
    if wrong == "another":
        append(copy, 1)
    elif wrong == "damaged":
        assert steno("db", "copy", place, str(copy)).returncode == 0
        with closing(sqlite3.connect(copy)) as made, made:
            made.execute("DROP TRIGGER events_no_update")
            made.execute("UPDATE events SET took = 7 WHERE position = 1")
    refused = steno("db", "restore", str(copy), STENO_RECORD=place)
    assert refused.returncode == {"another": 5, "damaged": 7, "missing": 4}[wrong], refused.stderr
    with Record.open(place, clock=SystemClock()) as record:
        assert (record.head().position, record.verify().ok) == (2, True)


def test_a_record_that_cannot_be_read_is_replaced_too(steno: Steno, tmp_path: Path) -> None:
    """It is kept as it is, with its log."""
    place, copy = tmp_path / "place" / "record.db", tmp_path / "backup.db"
    append(place, 1, 2)
    assert steno("db", "copy", str(place), str(copy)).returncode == 0
    place.write_bytes(b"garbage" * 100)
    done = steno("db", "restore", str(copy), "--json", STENO_RECORD=str(place))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["lost"], Path(answer["kept"]).read_bytes()) == (None, b"garbage" * 100)
    with Record.open(place, clock=SystemClock()) as record:
        assert (record.head().position, record.verify().ok) == (3, True)


# -- a file that was put in the place of another by hand


def killed(place: Path) -> None:
    """A process that appended a little and was killed: its log is there, and nobody has it open."""
    code = (
        "import os, sys; sys.path.insert(0, {tests!r}); from test_restored_copy import append, Record, SystemClock; "
        "record = Record.open({place!r}, clock=SystemClock()); append({place!r}, 7, 8, 9); os.kill(os.getpid(), 9)"
    )
    words = code.format(tests=str(Path(__file__).parent), place=str(place))
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == -signal.SIGKILL
    assert Path(f"{place}-wal").stat().st_size


def test_a_log_that_a_killed_process_left_is_of_its_record(tmp_path: Path) -> None:
    place = tmp_path / "record.db"
    append(place, *range(40))
    killed(place)
    with Record.open(place, clock=SystemClock()) as record:
        assert (record.head().position, record.verify().ok) == (43, True)


@pytest.mark.parametrize("write", [False, True])
def test_a_copy_beside_an_older_log_is_not_mixed_with_it(steno: Steno, tmp_path: Path, write: bool) -> None:
    """Neither is changed; without the log the copy is what it was, and `steno db restore` does it in order."""
    place, copy = tmp_path / "record.db", tmp_path / "copy.db"
    append(place, *range(40))
    shutil.copy(place, copy)
    append(place, *range(40, 400))
    killed(place)
    shutil.copy(copy, place)
    for _ in range(2):
        with pytest.raises(RecordNotWritable, match=r"record\.db-wal is not the log of .*move the log away"):
            Record.open(place, clock=SystemClock(), write=write)
        assert place.read_bytes() == copy.read_bytes()
    assert steno("db", "restore", str(copy), STENO_RECORD=str(place)).returncode == 0
    with Record.open(place, clock=SystemClock()) as record:
        assert (record.head().position, record.verify().ok) == (41, True)


def test_a_copy_written_over_an_open_record_is_noticed_at_the_next_read(tmp_path: Path) -> None:
    """And nothing is appended to it, nor moved into it when the record is closed."""
    place, copy = tmp_path / "record.db", tmp_path / "copy.db"
    append(place, *range(40))
    shutil.copy(place, copy)
    append(place, *range(40, 80))
    fact = types.RecorderStarted(source="dstack", software="late")
    with Record.open(place, clock=SystemClock(), write=True) as record, Record.open(place, clock=SystemClock()) as seen:
        record.append_many([Batch("source/dstack", [fact])])
        shutil.copy(copy, place)
        with pytest.raises(RecordReplaced):
            seen.head()
        with pytest.raises(RecordReplaced):
            record.append_many([Batch("source/dstack", [fact])])
    assert place.read_bytes() == copy.read_bytes()


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_that_is_half_moved_into_its_record_is_not_a_copy(tmp_path: Path, killed: bool) -> None:
    """The first page is written first and says how many there are: until the others follow, or for as long as the
    process that was killed meanwhile left it so, the file alone is malformed. Seen once, under a hundred clients.
    """
    place, left, moved = (tmp_path / f"{name}.db" for name in ("record", "left", "moved"))
    append(place, 0)
    facts = [types.RecorderStarted(source="dstack", software="x" * 900) for _ in range(40)]
    with Record.open(place, clock=SystemClock(), write=True) as record:
        head = record.append_many([Batch("source/dstack", facts)])[-1]
        for end in ("", "-wal"):
            for copy in (left, moved):
                shutil.copy(f"{place}{end}", f"{copy}{end}")
        with closing(sqlite3.connect(moved)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = other.execute("PRAGMA page_size").fetchone()
        half = os.open(left if killed else place, os.O_WRONLY)  # closed last: that drops the locks of this process
        os.pwrite(half, moved.read_bytes()[:page], 0)
        assert own_head(str(left if killed else place)) is None
        if not killed:
            record.append_many([Batch("source/dstack", facts)])
            assert record.verify().ok
    os.close(half)
    with Record.open(left if killed else place, clock=SystemClock(), write=True) as record:
        assert record.head().position == head + (0 if killed else len(facts))
        assert record.verify().ok
