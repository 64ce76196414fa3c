"""The HTTP service for tests: in a thread of the test's own process, or as the genuine command."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec
import pytest
from stenolab.dashboard import Busy
from stenotest import shared_pages, steno_process
from stenotest.command_line import VARIABLES
from stenotest.frozen_time import Hands, time_in_hand
from stenotest.service import Served, isolated
from stenotest.waiting import LIMIT_S, wait

from steno.cli.wiring.http_service import serving
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.api.submission import _warm
from steno.projections.read_models.projector import caught_up

TRACES = Path(__file__).parent.parent / "traces"
TOWN = ("success", "failure", "warm_reuse", "several", "retry_success", "no_capacity", "unreachable")
"""Recordings of a genuine server that together have runs of every end, machines, costs, gaps and anomalies."""
_READY = re.compile(r"serving (http://\S+) ")

see, _free = shared_pages.see, shared_pages._free

QUICK = frozenset({"test_openapi.py", "test_reads.py"})
"""Files of the quick tests; each test of the others starts a service of its own and is left out of `make check`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is left out of the quick tests."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)


def polls_of(name: str) -> tuple[Poll, ...]:
    """The polls of a recording, as `dstack-0.22.5/success`."""
    return tuple(poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll is not None)


def appended(path: Path | str, polls: Sequence[Poll]) -> Path:
    """The record at `path`, made if it is not there, with these polls appended."""
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        for start in range(0, len(polls), 200):
            record.append_polls(polls[start : start + 200])
    return Path(path)


def kept(path: Path | str) -> Path:
    """The record at `path`, once its read models and its snapshot are there: what begins there folds nothing again."""
    with Record.open(path, write=True, shapes=READINGS.shape, clock=SystemClock()) as record, caught_up(record):
        LiveWorld(READINGS, record, keep=True).catch_up()
    return Path(path)


class Serve(Protocol):
    """`served(record_path, **settings)`; settings by name, `api.cors` written `api__cors`."""

    def __call__(self, record: Path | str, **settings: str | None) -> Served: ...


@contextmanager
def _serving() -> Iterator[Serve]:
    """Services whose readers wait for the read models as long as a crowded machine needs, not two seconds."""
    with ExitStack() as every:
        patch = every.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("steno.projections.read_models.reader_pool.PATIENCE", int(LIMIT_S) * SECOND)
        patch.setattr("steno.projections.read_models.projector._TIMEOUT", LIMIT_S)  # of who stops it

        def serve(record: Path | str, **settings: str | None) -> Served:
            stack = every.enter_context(ExitStack())
            server = stack.enter_context(serving(isolated(record, **settings), record))
            client = stack.enter_context(httpx.Client(base_url=server.url_here, timeout=LIMIT_S, trust_env=False))
            return Served(url=server.url_here, client=client, record=record, server=server, _end=stack.close)

        yield serve


@pytest.fixture(scope="module")
def hands() -> Iterator[Hands]:
    """The clock of this process, for a whole file of tests: servers and all."""
    import_module("pydantic.v1")  # a late import of a service defines types of dates: of real dates
    import_module("steno.projections.app")
    _warm("dstack")
    with time_in_hand(runs=True) as moved:
        yield moved


@pytest.fixture
def served() -> Iterator[Serve]:
    """The real server of a record on a port of its own, as often as asked for; all have ended when the test has."""
    with _serving() as serve:
        yield serve


@pytest.fixture(scope="module")
def served_on() -> Iterator[Serve]:
    """As `served`, for a whole file of tests."""
    with _serving() as serve:
        yield serve


class Recorded(Protocol):
    """`recorded(path, "success", …)`: a record of recordings, made or continued, with its read models and snapshot."""

    def __call__(self, path: Path | str, *names: str) -> Path: ...


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    """Makes records of a genuine server's recordings."""

    def make(path: Path | str, *names: str) -> Path:
        for name in names:
            appended(path, polls_of(f"dstack-0.22.5/{name}"))
        return kept(path)

    return make


@pytest.fixture(scope="session")
def _town(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("town") / "record.db", *TOWN).parent


@pytest.fixture
def town(_town: Path, tmp_path: Path) -> Path:
    """A record of the test's own: runs of every end, machines, costs, gaps, anomalies; its read models are there."""
    folder = tmp_path / "town"
    shutil.copytree(_town, folder)
    return folder / "record.db"


@pytest.fixture(scope="module")
def towns(_town: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `town`, for a whole file of tests."""
    folder = tmp_path_factory.mktemp("towns") / "town"
    shutil.copytree(_town, folder)
    return folder / "record.db"


@pytest.fixture(scope="session")
def _begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("busy")


@pytest.fixture
def busy(_begun: Path, tmp_path: Path) -> Busy:
    """The record of a busy project, of the test's own; its read models are there."""
    return Busy(tmp_path / "busy", _begun)


@pytest.fixture
def empty_record(tmp_path: Path) -> Path:
    """A record in which nothing has happened."""
    return appended(tmp_path / "empty.db", ())


class Process:
    """`steno …` as a process of its own; what it says is kept line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines))
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.err))
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))
            if _READY.search(line):
                self._ready.set()
        self._ready.set()

    @property
    def url(self) -> str:
        """The address that it prints, once it serves."""
        assert self._ready.wait(LIMIT_S)
        address = next((match[1] for line in self.out if (match := _READY.search(line))), None)
        assert address is not None, (self.out, self.err)
        return address

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Its answer; asked again, as it says, while its read models are being built."""
        return self._asked("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        """As `get`: what is told to be asked again has done nothing."""
        return self._asked("POST", path, **options)

    def _asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        url = self.url.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:

            def answered() -> httpx.Response | None:
                answer = client.request(method, path, **options)
                return None if answer.status_code == 503 and "retry-after" in answer.headers else answer

            return wait(answered, "its read models")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def says(self, text: str) -> None:
        """Wait until it has said that."""
        wait(lambda: any(text in line for line in self.out), f"{text!r} among its lines")

    def ended(self, timeout: float = LIMIT_S) -> int:
        """Its exit code, once it has ended and all it said is there."""
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return code

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


STENO = ("-m", "steno.cli.main")


@contextmanager
def running(
    folder: Path, *words: object, stdout: int = subprocess.PIPE, program: Sequence[object] = STENO, **variables: str
) -> Iterator[Process]:
    """`steno …`, or `program`, in an empty home, with a port of its own and nothing of who runs the tests; it has ended
    afterwards.
    """
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **VARIABLES}
    process = Process(
        steno_process.python(
            [*map(str, program), *map(str, words)],
            cwd=home,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    try:
        yield process
    finally:
        process.close()


class Starts(Protocol):
    """`started("up", "--record", path, **variables)`: the process of that command, at once."""

    def __call__(
        self, *words: object, stdout: int = subprocess.PIPE, program: Sequence[object] = STENO, **variables: str
    ) -> Process: ...


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starts]:
    """Any command of Steno as a process; all have ended when the test has."""
    with ExitStack() as stack:

        def start(
            *words: object, stdout: int = subprocess.PIPE, program: Sequence[object] = STENO, **variables: str
        ) -> Process:
            return stack.enter_context(running(tmp_path, *words, stdout=stdout, program=program, **variables))

        yield start


class StartSteno(Protocol):
    """`steno_served(record_path, *more words, **variables)`: the process of `steno serve`, ready."""

    def __call__(self, record: Path, *words: object, **variables: str) -> Process: ...


@pytest.fixture
def steno_served(started: Starts) -> StartSteno:
    """`steno serve` as the genuine command, as often as asked for."""

    def start(record: Path, *words: object, **variables: str) -> Process:
        process = started("serve", "--record", record, *words, **variables)
        assert process.url
        return process

    return start


@pytest.fixture
def a_port() -> Iterator[str]:
    """A port of loopback on which services can begin again and again: until the test ends nobody else is given it.

    The socket does not listen, so a service, which says SO_REUSEADDR too, may; the system gives others another port.
    """
    with closing(socket.socket()) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield str(kept.getsockname()[1])


@pytest.fixture(scope="session")
def polls() -> Callable[[str], tuple[Poll, ...]]:
    """`polls("success")`: the polls of a genuine server, in order."""
    return lambda name: polls_of(f"dstack-0.22.5/{name}")


@pytest.fixture(scope="session")
def recorded_again() -> Callable[[Path, Sequence[Poll]], Path]:
    """Appends polls to a record."""
    return appended


@pytest.fixture(scope="session")
def _odd_town(_town: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "town"
    shutil.copytree(_town, folder)
    town = folder / "record.db"
    appended(town, polls_of("dstack-0.22.5/server_restart"))
    success = polls_of("dstack-0.22.5/success")
    running = next(
        poll
        for poll in success
        if poll.body is not None and b'"status":"running"' in poll.body and b"job_submissions" in poll.body
    )
    later = success[-1].observed_at + 60 * SECOND
    appended(town, [msgspec.structs.replace(running, started_at=later, observed_at=later + 1000)])
    return kept(town).parent


@pytest.fixture
def odd_town(_odd_town: Path, tmp_path: Path) -> Path:
    """The town with a server that was away for a while, and a server that takes back an end it had told."""
    folder = tmp_path / "odd"
    shutil.copytree(_odd_town, folder)
    return folder / "record.db"


@pytest.fixture(scope="module")
def towned(served_on: Serve, towns: Path) -> Served:
    """A service of the town, for a whole file of tests that change nothing of it."""
    return served_on(towns)


@pytest.fixture(scope="module")
def reader(towned: Served) -> httpx.Client:
    """A client of `towned`."""
    return towned.client


@pytest.fixture(scope="module")
def here(served_on: Serve, towns: Path) -> Served:
    """A service of the town, for a whole file of tests; nothing limits submissions."""
    return served_on(towns, api__submit_rate="off")


@pytest.fixture
def client(served: Serve, town: Path) -> httpx.Client:
    """A client of a service of the test's own town; nothing limits submissions."""
    return served(town, api__submit_rate="off").client


@pytest.fixture(scope="module")
def odd_towned(served_on: Serve, _odd_town: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """As `towned`, of the odd town."""
    return served_on(shutil.copytree(_odd_town, tmp_path_factory.mktemp("odd") / "town") / "record.db")
