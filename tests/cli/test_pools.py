"""Replay by processes of this machine and by a real Dask cluster: the same answer, whoever is killed, and one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.dstack_history import DstackHistory, run_item
from stenotest.records import StandingClock
from stenotest.waiting import LIMIT_S, wait

from steno import engine
from steno.engine.providers.registry import READINGS
from steno.events.store.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

PROJECTS = "abcd"

PIPE = subprocess.PIPE


def fill(where: str | Path) -> None:
    """A record of four projects, polled in turns."""
    stories = []
    for name in PROJECTS:
        story = DstackHistory(project=name)
        for status in ("submitted", "provisioning", "running", "running", "done"):
            story.listed(run_item(f"of-{name}", status, project=name)).wait(5)
        stories.append([poll for _, poll in story.polls() if poll is not None])
    with Record.open(where, clock=StandingClock(), write=True, create=True, shapes=READINGS.shape) as record:
        record.append_polls(list(chain(*zip(*stories, strict=True))))


def descendants(pid: int) -> set[int]:
    """The processes below one."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue
    seen, left = set[int](), [pid]
    while left:
        below = parents.get(left.pop(), [])
        seen.update(below)
        left += below
    return seen


def alive(pids: set[int]) -> set[int]:
    """The processes that still run; a zombie has ended."""
    seen = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        seen |= {pid} if state != "Z" else set()
    return seen


@contextmanager
def parts_locked(url: str) -> Iterator[Callable[[], int]]:
    """Readers of questions and answers of the record wait until the block ends; gives their number."""
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as looker:
        holder.execute("LOCK TABLE steno.parts IN ACCESS EXCLUSIVE MODE")

        def waiting() -> int:
            query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            return len(looker.execute(query).fetchall())

        yield waiting


@pytest.fixture
def cluster(environment: dict[str, str], tmp_path: Path) -> Iterator[Cluster]:
    """A Dask scheduler without workers."""
    made = Cluster(tmp_path, environment)
    yield made
    made.stop()


class Cluster:
    """A scheduler, and workers of one thread each, as processes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._started: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.scheduler = self._dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file)
        wait(lambda: file.exists() and file.read_text().rstrip().endswith("}"), "no scheduler")
        self.address: str = json.loads(file.read_text())["address"]

    def worker(self, **variables: str) -> subprocess.Popen[bytes]:
        """Another worker, known to the scheduler."""
        number = len(self._started)
        log = self._folder / f"dask-{number}.log"
        made = self._dask("worker", self.address, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", **variables)
        wait(lambda: b"Registered to" in log.read_bytes(), "the worker is not registered")
        return made

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def _dask(self, what: str, *words: object, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, *map(str, words), "--no-dashboard"]
        with (self._folder / f"dask-{len(self._started)}.log").open("wb") as log:
            made = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                env=self._environment | variables,
            )  # fmt: skip
        self._started.append(made)
        return made


def test_processes_give_the_answer_of_one(steno: Steno, place: str) -> None:
    """Also compared, and up to a position; nothing is said on the way."""
    fill(place)
    for words in (("--until", "9"), ("--diff", "2025-12-sdk")):
        alone, several = (steno("replay", *words, "--jobs", jobs, "--json") for jobs in (1, 3))
        assert alone.stdout
        assert (several.returncode, several.stdout, several.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_a_cluster_gives_the_answer_of_one_process_though_a_worker_is_killed(
    steno: Steno, background: Background, postgres_url: str, cluster: Cluster
) -> None:
    """In the middle of its piece, which the other one folds again."""
    fill(postgres_url)
    expected = steno("replay", "--jobs", "1", "--json", "--record", postgres_url)
    workers = [cluster.worker(), cluster.worker()]
    with parts_locked(postgres_url) as waiting:
        replay = background("replay", "--dask", cluster.address, "--json", "--record", postgres_url, out=PIPE, err=PIPE)
        wait(lambda: waiting() == 2, "two workers are to be in the middle")
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait()
    out, err = replay.communicate(timeout=LIMIT_S)
    assert (replay.returncode, out, err) == (expected.returncode, expected.stdout, "")
    alone, several = (
        steno("verify", *words, "--json", "--record", postgres_url)
        for words in (("--jobs", "1"), ("--dask", cluster.address))
    )
    assert (several.returncode, several.stdout, several.stderr) == (0, alone.stdout, "")


def test_processes_find_what_one_finds(steno: Steno, record_file: Path) -> None:
    """Nothing in a whole record, the same in a damaged one."""
    fill(record_file)
    for code in (0, 7):
        alone, several = (steno("verify", "--jobs", jobs, "--json") for jobs in (1, 2))
        assert (several.returncode, several.stdout, several.stderr) == (code, alone.stdout, alone.stderr)
        with closing(sqlite3.connect(record_file, isolation_level=None)) as edited:
            edited.execute("DROP TRIGGER IF EXISTS events_no_update")
            edited.execute("UPDATE events SET took = took + 1 WHERE position = 7")
    assert "--after" in refused(steno("verify", "--after", f"1:{'0' * 64}", "--jobs", "2"), 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_processes_end_with_the_command(number: signal.Signals, environment: dict[str, str], postgres_url: str) -> None:
    """At once, though they wait for the database."""
    fill(postgres_url)
    with parts_locked(postgres_url) as waiting:
        words = [sys.executable, "-m", "steno.cli.main", "replay", "--jobs", "2", "--record", postgres_url]
        replay = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        wait(lambda: waiting() == 2, "two processes are to be in the middle")
        below = descendants(replay.pid)
        assert len(below) > 2
        if number is signal.SIGINT:
            os.killpg(replay.pid, number)  # as a terminal does
        else:
            replay.send_signal(number)
        _, err = replay.communicate(timeout=LIMIT_S)
        wait(lambda: not alive(below), "a process went on")
    expected = (130, "steno: interrupted") if number is signal.SIGINT else (143, "")
    assert (replay.returncode, err.strip()) == expected


def test_a_killed_process_is_one_line(background: Background, postgres_url: str) -> None:
    """The system kills a process when memory runs out; no other process stays."""
    fill(postgres_url)
    with parts_locked(postgres_url) as waiting:
        replay = background("replay", "--jobs", "2", "--record", postgres_url, out=PIPE, err=PIPE)
        wait(lambda: waiting() == 2, "two processes are to be in the middle")
        below = descendants(replay.pid)
        os.kill(max(below), signal.SIGKILL)
        out, err = replay.communicate(timeout=LIMIT_S)
        wait(lambda: not alive(below), "a process went on")
    assert (replay.returncode, out) == (3, "")
    assert err == (
        "steno: A process that worked on a piece of the record was killed. If memory ran out, use fewer: --jobs 1.\n"
    )


@pytest.mark.ci
def test_what_is_wrong_with_a_cluster_is_one_line(
    steno: Steno, home: Path, place: str, postgres_url: str, cluster: Cluster
) -> None:
    """No scheduler, no worker, a worker that does not reach the record or has another Steno."""
    fill(place)
    assert "has no workers" in refused(steno("replay", "--dask", cluster.address), 3)
    fill(postgres_url)
    with psycopg.connect(postgres_url) as database:
        host, port, name = database.info.host, database.info.port, database.info.dbname
    here = {"PGHOST": host, "PGPORT": str(port)}
    worker = cluster.worker(PGHOST="127.0.0.1", PGPORT="9")
    line = refused(steno("replay", "--dask", cluster.address, "--record", f"postgresql://postgres@/{name}", **here), 3)
    assert "On the Dask worker" in line
    worker.kill()
    worker.wait()
    changed = home / "other" / "steno"
    shutil.copytree(Path(engine.__file__).parents[1], changed, ignore=shutil.ignore_patterns("__pycache__"))
    with (changed / "engine" / "errors.py").open("a") as source:
        source.write("# changed\n")
    cluster.worker(PYTHONPATH=str(changed.parent), **here)
    words = ("replay", "--dask", cluster.address, "--record", postgres_url)
    assert "has another Steno: install the same version there" in refused(steno(*words), 3)


@pytest.mark.ci
def test_a_scheduler_that_is_lost_is_one_line(background: Background, postgres_url: str, cluster: Cluster) -> None:
    """While its worker is in the middle of a piece."""
    fill(postgres_url)
    cluster.worker()
    with parts_locked(postgres_url) as waiting:
        replay = background("replay", "--dask", cluster.address, "--record", postgres_url, out=PIPE, err=PIPE)
        wait(lambda: waiting() == 1, "a worker is to be in the middle")
        cluster.scheduler.kill()
        out, err = replay.communicate(timeout=LIMIT_S)
    expected = f"steno: The Dask scheduler {cluster.address} ended or was lost.\n"
    assert (replay.returncode, out, err) == (3, "", expected)


def test_what_cannot_be_done_is_refused(steno: Steno, home: Path, place: str) -> None:
    """Options that would do nothing, an address that is none, or of nobody, and a package that is missing."""
    fill(place)
    assert "cannot be reached" in refused(steno("replay", "--dask", "tcp://127.0.0.1:9"), 3)
    trace = DstackHistory().listed(run_item()).write(home / "one.jsonl")
    assert "a trace is folded in one piece" in refused(steno("replay", trace, "--jobs", "2"), 2)
    assert "--jobs and --dask" in refused(steno("replay", "--jobs", "2", "--dask", "tcp://127.0.0.1:9"), 2)
    assert "tcp://HOST:PORT" in refused(steno("replay", "--dask", "127.0.0.1:9"), 2)
    without = "import sys; sys.modules['distributed'] = None; from steno.cli.main import main; main()"
    words = [sys.executable, "-c", without, "replay", "--record", place, "--dask", "tcp://127.0.0.1:9"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "setup EXTRAS=dask`" in refused(done, 2)
