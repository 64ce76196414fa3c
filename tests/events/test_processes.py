"""Several processes on one record: nothing lost, no gap, no order broken, whatever is killed."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
import stenotest
from stenotest.records import StandingClock, temporary_record

from steno.events import types
from steno.events.store.record import Batch, Record

SUPPORT = str(Path(stenotest.__file__).parents[1])
EVENT = types.SubmitIntended(run_id="a", provider="local", name="a")

WRITER = """
import sys
sys.path.insert(0, sys.argv[5])
from steno.events import types
from steno.events.store.sqlite import connection
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record
from stenotest.records import poll_of, START
connection.BUSY_TIMEOUT = 600.0
where, name, count, durable = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "durable"
with Record.open(where, clock=SystemClock(), write=True, create=True) as record:
    for number in range(count):
        event = types.SubmitIntended(run_id=name, provider="local", name=str(number))
        batches = [Batch(f"run/{name}", [event] * 3), Batch("run/shared", [event])]
        positions = record.append_many(batches, durable=durable)
        poll = poll_of(b'{"by":"%s","n":%d}' % (name.encode(), number % 5), at=START + number)
        print(positions[-1], record.append_polls([poll])[0].position, flush=True)
"""


class Writer(Protocol):
    """Starts a process that appends to a record, `count` times; it is killed when the test ends, also by a failure."""

    def __call__(self, where: Path, name: str, count: int, durable: str = "quick") -> subprocess.Popen[str]: ...


@pytest.fixture
def writer() -> Iterator[Writer]:
    with ExitStack() as started:

        def start(where: Path, name: str, count: int, durable: str = "quick") -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(where), name, str(count), durable, SUPPORT],
                stdout=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits for its turn on a busy machine waits longer than a user would."""
    monkeypatch.setattr("steno.events.store.sqlite.connection.BUSY_TIMEOUT", 600.0)


def wrote(process: subprocess.Popen[str]) -> None:
    """It ended well."""
    process.communicate()
    assert process.returncode == 0


@pytest.mark.slow
def test_writers_at_once_leave_no_gap(tmp_path: Path, writer: Writer) -> None:
    """Three processes make the record together and append to it: positions and versions count on, the chain holds."""
    where = tmp_path / "record.db"
    writers = [writer(where, name, 40) for name in "abc"]
    acknowledged = [int(word) for writer in writers for word in writer.communicate()[0].split()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    with Record.open(where, clock=StandingClock()) as record:
        everything = list(record.read())
        assert [event.position for event in everything] == list(range(1, 3 * 40 * 5 + 1))
        assert len(set(acknowledged)) == len(acknowledged)
        for stream, version in record.streams():
            assert [event.version for event in everything if event.stream == stream] == list(range(1, version + 1))
        assert record.version("run/shared") == 120
        assert record.verify().ok


@pytest.mark.slow
def test_a_subscriber_misses_nothing(tmp_path: Path, writer: Writer) -> None:
    """A reader that has seen position n has seen everything up to n, also while others write."""
    where = tmp_path / "record.db"
    temporary_record(tmp_path).close()
    writers = [writer(where, name, 30) for name in "ab"]
    seen: list[int] = []
    with Record.open(where, clock=StandingClock()) as record:
        while any(writer.poll() is None for writer in writers):
            seen += [event.position for event in record.read(after=len(seen))]
        seen += [event.position for event in record.read(after=len(seen))]
    for process in writers:
        wrote(process)
    assert seen == list(range(1, 2 * 30 * 5 + 1))


@pytest.mark.slow
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path, writer: Writer) -> None:
    """kill -9 at any moment: what was told is there, the record is whole and goes on."""
    where = tmp_path / "record.db"
    for round_ in range(5):
        process = writer(where, f"w{round_}", 100_000, "durable" if round_ % 2 else "quick")
        assert process.stdout is not None
        lines = process.stdout.readline()
        time.sleep(0.05 * round_)  # whatever it is at then
        process.kill()
        lines += process.stdout.read()
        process.wait()
        positions = [
            int(word) for line in lines.splitlines(keepends=True) if line.endswith("\n") for word in line.split()
        ]
        with Record.open(where, clock=StandingClock(), write=True) as record:
            assert record.head().position >= max(positions)
            assert record.verify().ok
            assert {event.stream for event in record.read(after=positions[0] - 1, until=positions[0])} == {"run/shared"}


def test_waiting_ends_when_another_process_appends(tmp_path: Path, writer: Writer) -> None:
    """`wait` sees what others write, and its time is the clock's."""
    where = tmp_path / "record.db"
    temporary_record(tmp_path).close()
    with Record.open(where, clock=StandingClock()) as record:
        assert not record.wait(0, 1_000_000)
        wrote(writer(where, "a", 1))
        assert record.wait(0, 1_000_000)
        assert not record.wait(5, 1_000_000)


def test_a_second_look_from_one_process_leaves_the_locks_of_the_first(tmp_path: Path, writer: Writer) -> None:
    """Else another process that closes the record takes the log away under those who still have it open, and what they
    append from then on is lost.
    """
    where = tmp_path / "record.db"
    with temporary_record(tmp_path) as first:
        first.append_many([Batch("run/a", [EVENT])])
        for _ in range(2):
            with Record.open(where, clock=StandingClock()):
                pass
        wrote(writer(where, "b", 1))
        assert where.with_name("record.db-wal").exists()
        first.append_many([Batch("run/a", [EVENT])])
        with Record.open(where, clock=StandingClock()) as second:
            assert second.version("run/a") == 2
            assert second.verify().ok
    assert not where.with_name("record.db-wal").exists()
    with Record.open(where, clock=StandingClock()) as after:
        assert after.version("run/a") == 2


@pytest.mark.ci
def test_many_threads_open_and_close_a_record_that_another_process_writes(tmp_path: Path, writer: Writer) -> None:
    """Nobody's look costs anybody else the log."""
    where = tmp_path / "record.db"
    with temporary_record(tmp_path) as record:
        record.append_many([Batch("run/a", [EVENT])])
        over = threading.Event()

        def look() -> int:
            looks = 0
            while not over.is_set():
                with Record.open(where, clock=StandingClock()) as own:
                    looks += own.version("run/a")
            return looks

        with ThreadPoolExecutor(4) as threads:
            looks = [threads.submit(look) for _ in range(4)]
            try:
                for name in "bc":
                    wrote(writer(where, name, 3))
                    record.append_many([Batch("run/a", [EVENT])])
            finally:
                over.set()
        assert all(look.result() > 0 for look in looks)
        assert record.version("run/a") == 3
        assert record.verify().ok
