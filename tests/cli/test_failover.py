"""A primary that fails over, and a database restored to an older point: the record says what is lost."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.postgres import FAST, Server, lacking, new_server
from stenotest.waiting import wait

from steno.events.clock import RandomIds, SystemClock
from steno.events.errors import RecordLocked, RecordPaused, RecordUnreachable
from steno.events.store.record import Batch, Record
from steno.events.types import SubmitIntended

pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacking() is not None, reason=str(lacking()))]

AWAY = (RecordUnreachable, RecordLocked, RecordPaused)


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary whose commits wait for its standby, and that standby."""
    with ExitStack() as stack:
        primary = new_server(*FAST)
        stack.callback(primary.remove)
        primary.start()
        primary.client("createdb", "writes")
        standby = primary.standby()
        stack.callback(standby.remove)
        standby.start()
        with psycopg.connect(primary.url(), autocommit=True) as database:
            database.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            database.execute("SELECT pg_reload_conf()")
            wait(lambda: database.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [("sync",)])
        yield primary, standby


class Writer(threading.Thread):
    """Appends numbers until `over`; each one until it is acknowledged, under the same id."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.over = url, threading.Event()
        self.acknowledged: list[int] = []
        self.trouble: list[Exception] = []

    def run(self) -> None:
        try:
            with Record.open(self.url, clock=SystemClock(), write=True, create=True) as record:
                while not self.over.is_set():
                    number, ids = len(self.acknowledged), (RandomIds().new(),)
                    event = SubmitIntended(run_id=str(number), provider="local", name="a")
                    while True:
                        try:
                            self.acknowledged += record.append_many([Batch("run/1", (event,), ids=ids)])
                            break
                        except AWAY:
                            time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.trouble.append(error)


def test_a_recorder_goes_on_at_the_promoted_standby(
    pair: tuple[Server, Server], steno: Steno, background: Background, home: Path
) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and each run is started once."""
    primary, standby = pair

    def url(database: str, hosts: tuple[Server, ...] = (primary, standby)) -> str:
        folders = ",".join(str(host.folder) for host in hosts)
        ports = ",".join(str(host.port) for host in hosts)
        return f"postgresql://postgres@/{database}?host={folders}&port={ports}&target_session_attrs=read-write"

    def submit(name: str) -> bool:
        task = f"echo {name} >>{home}/ran"
        words = ("submit", "--provider", "local", "--name", name, "--", "sh", "-c", task)
        return steno(*words, STENO_RECORD=url("postgres")).returncode == 0

    assert submit("before")
    alone = {"STENO_RECORD": url("postgres", (standby,)).replace("read-write", "any")}
    wait(lambda: "before" in steno("ps", "--all", **alone).stdout)
    assert steno("verify", **alone).returncode == 0
    line = refused(steno("submit", "--provider", "local", "--", "true", **alone), 8)
    assert "is read-only" in line
    assert "target_session_attrs=read-write" in line

    log = home / "recorder.log"
    with log.open("w") as out:
        controller = background("record", "--provider", "local", out=out, err=out, STENO_RECORD=url("postgres"))
    writer = Writer(url("writes"))
    writer.start()
    wait(lambda: "recording" in log.read_text() and len(writer.acknowledged) > 50)
    primary.stop(signal.SIGQUIT)
    seen = len(writer.acknowledged)
    wait(lambda: "cannot be reached" in log.read_text())
    standby.promote()
    wait(lambda: len(writer.acknowledged) > seen + 50 or writer.trouble)
    writer.over.set()
    writer.join()
    assert not writer.trouble
    assert submit("after")
    wait(lambda: (home / "ran").read_text().split() == ["before", "after"])
    controller.terminate()
    assert controller.wait() == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert steno("verify", STENO_RECORD=url("postgres")).returncode == 0
    with Record.open(url("writes"), clock=SystemClock()) as record:
        assert record.verify().ok
        assert [stored.data.run_id for stored in record.read()] == [str(n) for n in range(len(writer.acknowledged))]  # type: ignore[union-attr]
        assert writer.acknowledged == list(range(1, len(writer.acknowledged) + 1))


@pytest.mark.ci
def test_a_restored_database_says_what_is_lost_and_continues(steno: Steno) -> None:
    """By `pg_basebackup`, archived WAL and a restore point, as docs/backup.md says. Read models follow too."""
    server = new_server("fsync=off", "archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")
    try:
        server.start()
        server.client("createdb", "steno")
        url = server.url("steno")
        record = {"STENO_RECORD": url}

        def submit(name: str) -> None:
            done = steno("submit", "--provider", "local", "--wait", "-q", "--name", name, "--", "true", **record)
            assert done.returncode == 0, done.stderr

        def head(*words: str) -> str:
            done = steno("verify", *words, **record)
            assert done.returncode == 0, done.stderr
            return re.search(r"\d+:[0-9a-f]{64}", done.stdout)[0]  # type: ignore[index]

        def names() -> set[str]:
            return set(steno("ps", "--all", "-q", **record).stdout.split())

        submit("one")
        older, before = head(), names()
        server.client("pg_basebackup", "-D", "backup", "-X", "stream", "-c", "fast")
        server.client("psql", "-q", "-c", "SELECT pg_create_restore_point('before')", "-o", "/dev/null")
        submit("two")
        saved, both = head("--expect", older), names()
        assert len(both) == len(before) + 1
        server.client("psql", "-q", "-c", "SELECT pg_switch_wal()", "-o", "/dev/null")

        server.restore(
            "backup", "fsync=off", "restore_command=cp ../archive/%f %p", "recovery_target_name=before",
            "recovery_target_action=promote",
        )  # fmt: skip
        with psycopg.connect(server.url("steno"), autocommit=True) as database:
            while database.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
                pass
        assert names() == before
        lost = steno("verify", "--expect", saved, **record)
        position = saved.partition(":")[0]
        ends = older.partition(":")[0]
        assert (
            lost.returncode,
            f"the record ends at position {ends}: what followed up to {position} is lost" in lost.stderr,
        ) == (7, True)
        assert head("--expect", older) == older

        submit("three")
        submit("four")
        assert names() > before
        assert head("--expect", older) != older
        other = steno("verify", "--expect", saved, **record)
        assert (other.returncode, "has another hash" in other.stderr) == (7, True), other.stderr
    finally:
        server.remove()
