"""16 writers and a reader that follows, while each of them and the database is killed and started again at random."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import stenotest
from stenotest.postgres import FAST, lacking, new_server
from stenotest.records import StandingClock
from stenotest.waiting import wait

from steno.events.store.record import Record

WRITERS = 16


class Cast:
    """The processes that take part; each is known by its name."""

    def __init__(self, url: str, folder: Path, pause: float) -> None:
        environment = os.environ | {"PYTHONPATH": str(Path(stenotest.__file__).parents[1])}
        self._nursery = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("chaos.py")), url, str(folder), str(pause)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.pids: dict[str, int] = {}

    def start(self, name: str) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("read\n" if name == "reader" else f"write {name}\n")
        self._nursery.stdin.flush()
        self.pids[name] = int(self._nursery.stdout.readline())

    def send(self, name: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids[name], number)

    def wait(self, names: list[str]) -> None:
        """Until these have ended."""
        wait(lambda: not any(Path(f"/proc/{self.pids[name]}").exists() for name in names), "their end")

    def close(self) -> None:
        for name in self.pids:
            self.send(name, signal.SIGKILL)
        self._nursery.kill()
        self._nursery.communicate()


@pytest.mark.parametrize(
    ("seconds", "pause"),
    [
        pytest.param(6, 0.1, marks=pytest.mark.slow),
        pytest.param(int(os.environ.get("STENO_TEST_CHAOS_S", "600")), 0.05, marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_doubled_or_missed(seconds: int, pause: float, tmp_path: Path) -> None:
    """Each acknowledged event is there once, at its position; the reader has seen all of it in order."""
    if (why := lacking()) is not None:
        pytest.skip(why)
    seed = random.randrange(1 << 32)
    draw, done = random.Random(seed), Counter[str]()
    names = [f"w{number}" for number in range(WRITERS)]
    with ExitStack() as stack:
        server = new_server(*FAST)
        stack.callback(server.remove)
        server.start()
        url = server.url()
        Record.open(url, clock=StandingClock(), write=True, create=True).close()
        cast = Cast(url, tmp_path, pause)
        stack.callback(cast.close)
        for name in ("reader", *names):
            cast.start(name)
        over = time.monotonic() + seconds
        restarts = iter(over - seconds * share / 3 for share in (2, 1))  # at least two of the database
        due: float | None = next(restarts)
        while (now := time.monotonic()) < over:
            what = draw.choices(("writer", "reader", "sleep", "database"), (60, 15, 10, 3))[0]
            if due is not None and now >= due:
                what, due = "database", next(restarts, None)
            done[what] += 1
            match what:
                case "database":
                    server.stop(draw.choice((signal.SIGQUIT, signal.SIGINT)))
                    time.sleep(draw.random() / 2)
                    server.start()
                case "sleep":
                    name = draw.choice(names)
                    cast.send(name, signal.SIGSTOP)
                    time.sleep(draw.random() / 4)
                    cast.send(name, signal.SIGCONT)
                case _:
                    name = "reader" if what == "reader" else draw.choice(names)
                    cast.send(name, signal.SIGKILL)
                    cast.start(name)
            time.sleep(draw.random() / 4)
        (tmp_path / "stop").touch()
        cast.wait(names)
        with Record.open(url, clock=StandingClock()) as record:
            (tmp_path / "over").write_text(str(record.head().position))
            cast.wait(["reader"])
            trouble = tmp_path / "trouble"
            assert not trouble.exists(), trouble.read_text()
            stored = list(record.read())
            assert record.verify().ok, seed
        seen = (tmp_path / "seen").read_text().splitlines()
        assert seen == [f"{event.position} {event.hash[:16]}" for event in stored], seed
        assert [event.position for event in stored] == list(range(1, len(stored) + 1))
        for name in names:
            acknowledged = (tmp_path / name).read_text().splitlines()
            mine = [event for event in stored if event.stream == f"run/{name}"]
            numbers = [int(event.data.run_id) for event in mine]  # type: ignore[union-attr]
            assert numbers == list(range(len(numbers))), (seed, name)
            assert len(acknowledged) <= len(numbers) <= len(acknowledged) + 1
            positions = [event.position for event in mine]
            assert [int(line.split()[0]) for line in acknowledged] == positions[: len(acknowledged)]
        both = [event.data for event in stored if event.stream == "run/shared"]
        shared = Counter((event.name, event.run_id) for event in both)  # type: ignore[union-attr]
        assert set(shared.values()) == {1}, seed
        print(f"seed {seed}: {len(stored)} events, {dict(done)}")
