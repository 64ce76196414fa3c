"""A primary that dies while recorders write, and its standby, which is promoted."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest.command_line import refused
from stenotest.postgres import FAST, lacking, new_server

from events.clock import RandomIds, SystemClock
from events.errors import RecordLocked, RecordPaused, RecordUnreachable
from events.store.record import Batch, Record
from events.types import SubmitIntended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stenotest.command_line import Steno
    from stenotest.postgres import Server

    Background = Callable[..., object]

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
        with psycopg.connect(primary.url(), autocommit=True) as found:
            found.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            found.execute("SELECT pg_reload_conf()")
            while found.execute("SELECT sync_state FROM pg_stat_replication").fetchall() != [("sync",)]:
                time.sleep(0.02)
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
    pair: tuple[Server, Server], steno: Steno, background: Background, until: Callable[..., None], home: Path
) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and each run is started once."""
    primary, standby = pair

    def url(database: str, hosts: tuple[Server, ...] = (primary, standby)) -> str:
        folders = ",".join(str(one.folder) for one in hosts)
        ports = ",".join(str(one.port) for one in hosts)
        return f"postgresql://postgres@/{database}?host={folders}&port={ports}&target_session_attrs=read-write"

    def submit(name: str) -> bool:
        task = f"echo {name} >>{home}/ran"
        words = ("submit", "--provider", "local", "--name", name, "--", "sh", "-c", task)
        return steno(*words, STENO_RECORD=url("postgres")).returncode == 0

    assert submit("before")
    alone = {"STENO_RECORD": url("postgres", (standby,)).replace("read-write", "any")}
    until(lambda: "before" in steno("ps", "--all", **alone).stdout)
    assert steno("verify", **alone).returncode == 0
    line = refused(steno("submit", "--provider", "local", "--", "true", **alone), 8)
    assert "is read-only" in line
    assert "target_session_attrs=read-write" in line

    log = home / "recorder.log"
    with log.open("w") as out:
        recorder = background("record", "--provider", "local", out=out, err=out, STENO_RECORD=url("postgres"))
    writer = Writer(url("writes"))
    writer.start()
    until(lambda: "recording" in log.read_text() and len(writer.acknowledged) > 50)
    primary.stop(signal.SIGQUIT)
    seen = len(writer.acknowledged)
    until(lambda: "cannot be reached" in log.read_text())
    standby.promote()
    until(lambda: len(writer.acknowledged) > seen + 50 or writer.trouble)
    writer.over.set()
    writer.join()
    assert not writer.trouble
    assert submit("after")
    until(lambda: (home / "ran").read_text().split() == ["before", "after"])
    recorder.terminate()  # type: ignore[attr-defined]
    assert recorder.wait() == 0, log.read_text()  # type: ignore[attr-defined]
    assert "Traceback" not in log.read_text()
    assert steno("verify", STENO_RECORD=url("postgres")).returncode == 0
    with Record.open(url("writes"), clock=SystemClock()) as record:
        assert record.verify().ok
        assert [stored.data.run_id for stored in record.read()] == [str(n) for n in range(len(writer.acknowledged))]  # type: ignore[union-attr]
        assert writer.acknowledged == list(range(1, len(writer.acknowledged) + 1))
