"""PostgreSQL behind a cut network, a pooler, and a burst of submissions through several processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest import postgres
from stenotest.postgres import FAST, lacking, new_server
from stenotest.records import StandingClock
from stenotest.waiting import wait

from steno.events.clock import SystemClock
from steno.events.errors import RecordNotFound, StenoError
from steno.events.store.postgres.connection import connect
from steno.events.store.record import Batch, Record
from steno.events.store.store import store_at
from steno.events.types import SubmitIntended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stenotest.command_line import Background, Steno
    from stenotest.postgres import Server

    There = Callable[..., subprocess.Popen[bytes]]

TAKE_OVER_S = 10
HOLDS_A_LOCK = """
import os, signal
from steno.events.store.store import store_at
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
    cable: Cable, server: Server, there: There, steno: Steno, home: Path
) -> None:
    """The server frees it: TCP by itself would keep the lock of who does not answer for two hours."""
    log = home / "cut-off.log"
    Record.open(server.url(), clock=SystemClock(), write=True, create=True).close()
    there(log, "-c", HOLDS_A_LOCK)
    wait(lambda: "locked" in log.read_text())
    cable.pull()
    assert steno("token", "create", "--role", "read").returncode == 0


@pytest.mark.ci
@pytest.mark.slow
def test_a_holder_that_is_cut_off_is_followed_and_stands_by_when_it_is_back(
    cable: Cable, background: Background, server: Server, there: There, home: Path
) -> None:
    """It says that the database is away; the other one takes over within 10 s and keeps the source with its token."""
    log, store = home / "cut-off.log", store_at(server.url())
    first = there(log, "-m", "steno.cli.main", "record", "--interval", "1")

    def holder() -> tuple[int, int]:
        try:
            return next(((lease.process, lease.token) for lease in store.leases() if lease.held), (0, 0))
        except RecordNotFound:
            return 0, 0

    wait(lambda: holder()[0] == first.pid)
    second = background("record", "--interval", "1")
    cable.pull()
    assert max(lease.seconds_left or 0 for lease in store.leases()) < TAKE_OVER_S - 1  # by the database's clock
    wait(lambda: holder()[0] == second.pid)
    _, token = holder()
    assert token > 1
    wait(lambda: "cannot be reached" in log.read_text())
    cable.plug()
    wait(lambda: f"process {second.pid} records" in log.read_text())
    assert holder() == (second.pid, token)
    assert first.poll() is None
    first.terminate()
    assert first.wait() == 0
    with Record.open(server.url(), clock=SystemClock()) as record:
        assert record.verify().ok


PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooler(url: str, mode: str, size: int = 5) -> Iterator[str]:
    """The URL of a record behind a real PgBouncer of that mode."""
    if PROGRAM is None and os.environ.get("STENO_REQUIRE_LAB") == "1":
        pytest.fail("PgBouncer is not installed")
    if PROGRAM is None:
        pytest.skip("no PgBouncer to test against; as root: apt-get install pgbouncer")
    with psycopg.connect(url) as admin, socket.socket() as free:
        server = f"host={admin.info.host} port={admin.info.port} user={admin.info.user}"
        database = admin.info.dbname
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="steno-pgbouncer-") as name:
        folder = Path(name)
        settings = folder / "settings"
        settings.write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n"
        )
        folder.chmod(0o755)  # another user reads it
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([PROGRAM, settings], stdout=out, stderr=out, **postgres.as_user())
        try:
            wait(lambda: process.poll() is not None or "process up" in log.read_text(), "PgBouncer")
            assert process.poll() is None, log.read_text()
            yield f"postgresql://anybody@127.0.0.1:{port}/{database}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def append(url: str) -> None:
    with Record.open(url, clock=StandingClock(), write=True, create=True) as record:
        record.append_many([Batch(stream="run/1", events=(SubmitIntended(run_id="1", provider="local", name="a"),))])


@pytest.mark.parametrize("size", [1, 5])
def test_a_pooler_of_transactions_is_refused_before_anything_is_set(postgres_url: str, size: int) -> None:
    """By reader and writer, whatever else runs there; other clients of the pooler are not affected."""
    append(postgres_url)
    with pooler(postgres_url, "transaction", size) as url, closing(psycopg.connect(url, autocommit=True)) as other:
        other.execute("SELECT 1")
        for write in (False, True):
            with pytest.raises(StenoError, match="session pooling"):
                connect(url, write=write)
        assert other.execute("SHOW default_transaction_read_only").fetchone() == ("off",)
        assert other.execute("SHOW search_path").fetchone() == ('"$user", public',)
    append(postgres_url)


def test_a_pooler_of_sessions_serves(postgres_url: str) -> None:
    """Readers and writers beside each other; the next client of a session finds it clean."""
    append(postgres_url)
    with pooler(postgres_url, "session") as url:
        with Record.open(url, clock=StandingClock()) as reader:
            append(url)
            assert reader.head().position == 2
        append(url)


def test_a_command_says_so_in_one_line(steno: Steno, postgres_url: str) -> None:
    """Not that the database is read-only, which it is not."""
    append(postgres_url)
    with pooler(postgres_url, "transaction") as url:
        for words in (("ps",), ("record", "--provider", "local"), ("submit", "--provider", "local", "--", "true")):
            done = steno(*words, STENO_RECORD=url)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
            assert "pool_mode = transaction" in done.stderr


DOLLAR_EACH = {"STENO_LOCAL_PRICE": "36", "STENO_IDLE_TIMEOUT": "0", "STENO_API_SUBMIT_RATE": "off"}
TASK = {"type": "task", "commands": ["sleep 3600"], "max_duration": "100s"}
"""It costs a dollar at worst, and does not end before the test does."""


def post(url: str) -> int:
    """The status of one submission over HTTP."""
    body = json.dumps({"configuration": TASK}).encode()
    request = urllib.request.Request(f"{url}/api/runs", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def events(steno: Steno, kind: str) -> list[dict[str, object]]:
    done = steno("events", "--json", "--type", kind)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cap", "budget", "most", "processes", "requests"),
    [
        ("50", "3.5", 3, 2, 20),
        pytest.param("50", "3.5", 3, 4, 100, marks=pytest.mark.long),
        pytest.param("2", "1000", 2, 4, 100, marks=pytest.mark.long),
    ],
)
def test_neither_cap_nor_budget_is_exceeded(
    steno: Steno,
    background: Background,
    environment: dict[str, str],
    home: Path,
    postgres_url: str,
    cap: str,
    budget: str,
    most: int,
    processes: int,
    requests: int,
) -> None:
    """Several processes take requests, one of them records: as many runs get their place as budget and cap allow, and
    each other request waits or was refused.
    """
    environment |= {"STENO_RECORD": postgres_url, "STENO_MAX_VMS": cap, "STENO_BUDGET": budget, **DOLLAR_EACH}
    urls = []
    for number in range(processes):
        log = home / f"up-{number}.log"
        with log.open("w") as out:
            background("up", out=out.fileno(), err=out.fileno())
        wait(lambda log=log: re.search(r"serving http://\S+", log.read_text()))
        urls.append(re.search(r"serving (http://\S+)", log.read_text())[1])  # type: ignore[index]
    wait(lambda: events(steno, "PolicyAdopted"))
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(post, (urls[number % processes] for number in range(requests))))
    requested = {event["data"]["run_id"] for event in events(steno, "RunRequested")}  # type: ignore[index]
    assert answers.count(202) == len(requested)
    assert len(requested) >= most
    assert set(answers) <= {202, 403}

    def settled() -> bool:
        runs = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
        going = [run for run in runs if run["state"] in ("running", "queued")]
        over = [run for run in runs if run["state"] == "failed"]
        return len(going) + len(over) == len(requested) and sum(run["state"] == "running" for run in runs) == most

    wait(settled)
    placed = [event["data"]["run_id"] for event in events(steno, "RunPlaced")]  # type: ignore[index]
    assert len(placed) == len(set(placed)) == most
    refused = [event["data"] for event in events(steno, "IntentAbandoned")]
    assert all(refusal["policy"] for refusal in refused)  # type: ignore[index]
    if budget != "1000":
        assert len(refused) == len(requested) - most
