"""Recorders on machines whose clocks differ."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from stenotest import steno_process
from stenotest.gated_run import holding
from stenotest.waiting import wait

from steno.events.clock import SECOND, SystemClock, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stenotest.command_line import Steno

    Skewed = Callable[[int, Path], Any]

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from steno.events.clock import SystemClock
skew, real = int(sys.argv.pop(1)) * 1_000_000, SystemClock.now
SystemClock.now = lambda self: real(self) + skew
from steno.cli.main import main
main()
"""
HOUR = 3600


@pytest.fixture
def controller(environment: dict[str, str], home: Path) -> Iterator[Skewed]:
    """`recorder(3600, log)`: a recorder whose machine's clock is an hour ahead, and where it logs."""
    with ExitStack() as started:

        def start(skew: int, log: Path) -> Any:
            out = started.enter_context(log.open("w"))
            words, files = (str(skew), "record", "--interval", "1"), {"stdout": out, "stderr": out}
            process = steno_process.Popen(words, program=PROGRAM, cwd=home, env=environment, **files)
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        yield start


def test_recorders_on_one_database_tell_its_time(
    steno: Steno,
    controller: Skewed,
    gate: Path,
    tmp_path: Path,
    environment: dict[str, str],
    postgres_url: str,
) -> None:
    """A recorder an hour ahead dies, one an hour behind continues: nothing stands still, and all times are right."""
    environment["STENO_RECORD"] = postgres_url
    logs = [tmp_path / "ahead.log", tmp_path / "behind.log"]
    began = SystemClock().now()
    first = controller(HOUR, logs[0])
    wait(lambda: '"held":true' in "".join(steno("workers", "--json").stdout.split()))  # else `submit` looks itself
    done = steno("submit", "--name", "one", "--", holding(gate))
    assert done.returncode == 0, done.stderr
    wait(lambda: re.search(r"one: \w+ → running", logs[0].read_text()))
    first.kill()
    controller(-HOUR, logs[1])
    gate.touch()
    wait(lambda: re.search(r"one: \w+ → succeeded", logs[1].read_text()))  # `ps` would look for itself
    ended = SystemClock().now()
    (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    for name in ("submitted_at", "started_at", "finished_at"):
        assert began - 5 * SECOND <= parse_time(run[name]) <= ended + 5 * SECOND, name
    for log, which in zip(logs, ("ahead of", "behind"), strict=True):
        assert re.search(rf"is 3[56]\d\d s {which} the database's, whose time is recorded", log.read_text())
    assert steno("verify").returncode == 0


def test_a_recorder_goes_on_at_once_after_one_whose_clock_was_ahead(
    steno: Steno,
    controller: Skewed,
    record_file: Path,
    gate: Path,
    tmp_path: Path,
) -> None:
    """On one machine: nothing stands still until the clock is there again, and the log says what is wrong."""
    logs = [tmp_path / "before.log", tmp_path / "after.log"]
    first = controller(HOUR, logs[0])
    wait(lambda: record_file.exists() and "PollRecorded" in steno("events", "--json").stdout)
    first.kill()
    controller(0, logs[1])
    wait(lambda: "it jumped back by 1 h and is 1 h behind" in logs[1].read_text())
    assert steno("submit", "--name", "one", "--", holding(gate)).returncode == 0
    wait(lambda: re.search(r"one: \w+ → running", logs[1].read_text()))
    gate.touch()
    wait(lambda: re.search(r"one: \w+ → succeeded", logs[1].read_text()))
