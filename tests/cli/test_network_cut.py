"""The holder of a source is cut off from the database: it runs in a network namespace whose cable is pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from stenotest.postgres import FAST, lacking, new_server

from events.clock import SystemClock
from events.errors import RecordNotFound
from events.store.record import Record
from events.store.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stenotest.command_line import Steno
    from stenotest.postgres import Server

    Background = Callable[..., subprocess.Popen[str]]
    There = Callable[..., subprocess.Popen[bytes]]
    Until = Callable[[Callable[[], object]], None]

TAKE_OVER_S = 10
HOLDS_A_LOCK = """
import os, signal
from events.store.store import store_at
with store_at(os.environ["STENO_RECORD"]).blob("tokens").locked():
    print("locked", flush=True)
    signal.pause()  # until the test kills it
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Cable:
    """A network namespace, and the cable that leads there; `here` is our end's address."""

    def __init__(self, stack: ExitStack) -> None:
        number = os.getpid()
        self.space, self._ours, theirs = f"steno-{number}", f"st{number}a", f"st{number}b"
        net = f"10.213.{number % 250}"
        self.here = f"{net}.1"
        ip("netns", "add", self.space)
        stack.callback(ip, "netns", "del", self.space)
        ip("link", "add", self._ours, "type", "veth", "peer", "name", theirs, "netns", self.space)
        stack.callback(
            ip, "link", "del", self._ours
        )  # deleting the namespace removes the cable too late for the next test
        ip("addr", "add", f"{self.here}/30", "dev", self._ours)
        ip("-n", self.space, "addr", "add", f"{net}.2/30", "dev", theirs)
        ip("-n", self.space, "link", "set", theirs, "up")
        ip("-n", self.space, "link", "set", "lo", "up")
        self.plug()

    def plug(self) -> None:
        ip("link", "set", self._ours, "up")

    def pull(self) -> None:
        ip("link", "set", self._ours, "down")


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Needs root, and `ip`."""
    if os.geteuid() != 0 or shutil.which("ip") is None or lacking():
        why = "needs root, `ip` (apt-get install iproute2) and PostgreSQL"
        pytest.fail(why) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(why)
    with ExitStack() as stack:
        yield Cable(stack)


@pytest.fixture
def server(cable: Cable, environment: dict[str, str]) -> Iterator[Server]:
    """A database that both ends of the cable reach; ours has it in its environment."""
    made = new_server(*FAST, "listen_addresses=*")
    try:
        with (made.folder / "data" / "pg_hba.conf").open("a") as hba:
            hba.write("host all all 10.213.0.0/16 trust\n")
        made.start()
        environment["STENO_RECORD"] = made.url()
        yield made
    finally:
        made.remove()


@pytest.fixture
def there(cable: Cable, server: Server, environment: dict[str, str], home: Path) -> Iterator[There]:
    """`there(log, *words)`: Python at the other end, which writes to `log`."""
    with ExitStack() as stack:

        def start(log: Path, *words: str) -> subprocess.Popen[bytes]:
            away = environment | {"STENO_RECORD": f"postgresql://postgres@{cable.here}:{server.port}/postgres"}
            command = ["ip", "netns", "exec", cable.space, sys.executable, *words]
            with log.open("w") as out:
                made = stack.enter_context(subprocess.Popen(command, cwd=home, env=away, stdout=out, stderr=out))
            stack.callback(made.kill)
            return made

        yield start


@pytest.mark.slow
def test_who_is_cut_off_with_a_lock_holds_up_nobody(
    cable: Cable, until: Until, server: Server, there: There, steno: Steno, home: Path
) -> None:
    """The server frees it: TCP by itself would keep the lock of who does not answer for two hours."""
    log = home / "cut-off.log"
    Record.open(server.url(), clock=SystemClock(), write=True, create=True).close()
    there(log, "-c", HOLDS_A_LOCK)
    until(lambda: "locked" in log.read_text())
    cable.pull()
    assert steno("token", "create", "--role", "read").returncode == 0


@pytest.mark.slow
def test_a_holder_that_is_cut_off_is_followed_and_stands_by_when_it_is_back(
    cable: Cable, background: Background, until: Until, server: Server, there: There, home: Path
) -> None:
    """It says that the database is away; the other one takes over within 10 s and keeps the source with its token."""
    log, store = home / "cut-off.log", store_at(server.url())
    first = there(log, "-m", "cli.main", "record", "--interval", "1")

    def holder() -> tuple[int, int]:
        try:
            return next(((one.process, one.token) for one in store.leases() if one.held), (0, 0))
        except RecordNotFound:
            return 0, 0

    until(lambda: holder()[0] == first.pid)
    second = background("record", "--interval", "1")
    cable.pull()
    assert max(one.seconds_left or 0 for one in store.leases()) < TAKE_OVER_S - 1  # by the database's clock
    until(lambda: holder()[0] == second.pid)
    _, token = holder()
    assert token > 1
    until(lambda: "cannot be reached" in log.read_text())
    cable.plug()
    until(lambda: f"process {second.pid} records" in log.read_text())
    assert holder() == (second.pid, token)
    assert first.poll() is None
    first.terminate()
    assert first.wait() == 0
    with Record.open(server.url(), clock=SystemClock()) as record:
        assert record.verify().ok
