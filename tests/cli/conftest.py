"""The genuine command as a subprocess, in a home of its own."""

import json
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from stenotest import in_process, steno_process
from stenotest.command_line import VARIABLES, Steno
from stenotest.dstack_api import DstackApi
from stenotest.in_process import InProcess
from stenotest.recorded_trace import recorded_trace
from stenotest.waiting import LIMIT_S, wait

Background = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command that runs in this process says where its log goes; no later test is to see it there."""
    root = logging.getLogger()
    named = {name: log for name, log in root.manager.loggerDict.items() if isinstance(log, logging.Logger)}
    handlers, level, levels = root.handlers[:], root.level, {name: log.level for name, log in named.items()}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, log in root.manager.loggerDict.items():
        if isinstance(log, logging.Logger):
            log.setLevel(levels.get(name, logging.NOTSET))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home; also the current folder of every call. No run and no machine in it outlives the test."""
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    _end_runs(folder)


def _end_runs(home: Path) -> None:
    """Ends what still runs in a home, and waits for it: it may write to folders that the test removes."""
    for started in (*home.glob("*.local/*/started.json"), *home.glob("*.local/.machines/*/started.json")):
        with suppress(OSError, ValueError, KeyError):
            answer = json.loads(started.read_text())
            pid = answer["supervisor" if "supervisor" in answer else "pid"]
            command = Path(f"/proc/{pid}/cmdline")
            own = os.fsencode(started.parent)
            if own in command.read_bytes():
                os.kill(pid, signal.SIGTERM)
            wait(lambda own=own, command=command: own not in command.read_bytes(), "the end of a run")


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the module's `TRACE` and its read models, for all of its tests."""
    return recorded_trace(tmp_path_factory.mktemp("record"), request.module.TRACE)


@pytest.fixture
def imported(steno: Steno, made: Path, record_file: Path) -> Steno:
    """The command over a copy of it."""
    shutil.copytree(made, record_file.parent, dirs_exist_ok=True)
    return steno


@pytest.fixture
def end_runs(home: Path) -> Callable[[], None]:
    """`end_runs()`: nothing of the home runs any more."""
    return partial(_end_runs, home)


@pytest.fixture
def place(home: Path, request: pytest.FixtureRequest) -> str:
    """Where the record of `steno` is: a file, or with STENO_TEST_STORE=postgres a database."""
    if os.environ.get("STENO_TEST_STORE") == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return str(home / "record.db")


@pytest.fixture
def record_file(home: Path) -> Path:
    """The file of the record of `steno`."""
    if os.environ.get("STENO_TEST_STORE") == "postgres":
        pytest.skip("it is about a record in a file; STENO_TEST_STORE=postgres has none")
    return home / "record.db"


@pytest.fixture
def environment(home: Path, place: str) -> dict[str, str]:
    """The environment of a call: nothing of the developer's own settings."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "STENO_RECORD": place, **VARIABLES}


@pytest.fixture
def steno(home: Path, environment: dict[str, str]) -> Steno:
    """`steno(*words)` runs the command to its end; its output is text, its record at `place`. What uses that
    alone runs in this process.
    """

    def call(*words: object, stdin: str | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        done: subprocess.CompletedProcess[str] = in_process.run(
            [*map(str, words)], cwd=home, env=environment | variables, typed=stdin, timeout=LIMIT_S
        )
        return done

    return call


@pytest.fixture
def call(tmp_path: Path) -> InProcess:
    """Commands in a folder without settings, in this process."""
    return InProcess(tmp_path, COLUMNS="120")


@pytest.fixture
def elsewhere(tmp_path: Path) -> InProcess:
    """A machine without a record."""
    return InProcess(tmp_path / "elsewhere", COLUMNS="120")


@contextmanager
def _killed_late(process: "subprocess.Popen[str]") -> Iterator[None]:
    """So that a test that reads what never comes fails in the end."""
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.fixture
def background(home: Path, environment: dict[str, str]) -> Iterator[Background]:
    """`background("record", out=…, err=…, **variables)`: a command that runs beside the test.

    What goes on when the test ends, also by a failure, is killed, and its pipes are closed.
    """
    with ExitStack() as started:

        def start(
            *words: object, out: int | None = subprocess.DEVNULL, err: int | None = subprocess.DEVNULL, **variables: str
        ) -> "subprocess.Popen[str]":
            process = steno_process.Popen(
                [*map(str, words)], cwd=home, env=environment | variables, stdout=out, stderr=err, text=True
            )
            started.enter_context(process)
            started.callback(process.kill)
            started.enter_context(_killed_late(process))
            return process

        yield start


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """The file that runs wait for until the test makes it: `holding(gate)` is their task; there when the test ends."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture
def server() -> Iterator[DstackApi]:
    """A dstack server in this process."""
    made = DstackApi()
    yield made
    made.close()


@pytest.fixture
def settings(server: DstackApi) -> dict[str, str]:
    """The settings of a command that uses it, without a budget."""
    return {
        "STENO_DSTACK_URL": server.url,
        "DSTACK_TOKEN": "secret-token",
        "STENO_PROJECT": "main",
        "STENO_BUDGET": "off",
    }
