"""Genuine processes on a machine whose wall clock is set while they run."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest
from stenotest.gate import holding
from stenotest.shifted_clock import ShiftedClock

from events.clock import SECOND, SystemClock, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stenotest.command_line import Steno

    Until = Callable[[Callable[[], object]], None]

HOUR = 3600
PRICE = 1.99


def polled(steno: Steno) -> int:
    """The answers recorded so far; none where there is no record yet."""
    return steno("events", "--type", "PollRecorded").stdout.count("PollRecorded")


def has_polled(steno: Steno, number: int) -> bool:
    return polled(steno) >= number


@pytest.fixture
def clock(tmp_path: Path, home: Path, environment: dict[str, str], record_file: Path) -> Iterator[ShiftedClock]:
    environment |= {"STENO_LOCAL_PRICE": str(PRICE), "STENO_RECORD": str(record_file)}
    with ShiftedClock(tmp_path / "shift", home, environment) as made:
        yield made


@pytest.mark.parametrize("wrong", [2 * HOUR, -2 * HOUR])
def test_a_clock_that_is_wrong_for_a_while_changes_no_time_and_no_bill(
    clock: ShiftedClock, wrong: int, steno: Steno, until: Until, gate: Path, tmp_path: Path
) -> None:
    """Of what was asked for meanwhile, by a process that knew no other clock, or is made afterwards; and the log says
    what happened.
    """
    log, began, boot = tmp_path / "log", SystemClock().now(), time.monotonic()
    clock.start("record", "--interval", "1", log=log)
    until(lambda: re.search("recording local/", log.read_text()) and polled(steno))
    clock.set(wrong)
    assert clock.start("submit", "--name", "meanwhile", "--", holding(gate), log=tmp_path / "submit").wait() == 0
    until(lambda: re.search("clock_jump at position .* 2h (ahead|behind)", log.read_text()))
    clock.set(0)
    until(lambda: "is right again" in log.read_text())
    assert steno("submit", "--name", "afterwards", "--", holding(gate)).returncode == 0
    until(lambda: len(re.findall(r"(?:meanwhile|afterwards): \w+ → running", log.read_text())) == 2)
    gate.touch()
    until(lambda: len(re.findall(r"(?:meanwhile|afterwards): \w+ → succeeded", log.read_text())) == 2)
    told = json.loads(steno("replay", "--json").stdout)
    passed, ended = time.monotonic() - boot, SystemClock().now()
    for run in told["runs"]:
        for name in ("submitted_at", "started_at", "finished_at"):
            assert began <= parse_time(run[name]) <= ended, (run["name"], name)
    assert 0 < sum(float(vm["cost_usd"]) for vm in told["vms"]) <= 2 * PRICE * passed / HOUR
    assert [one["kind"] for one in told["anomalies"]].count("clock_jump") == 2
    assert steno("verify").returncode == 0


def test_a_recorder_that_starts_with_the_wrong_clock_tells_the_right_time(
    clock: ShiftedClock, steno: Steno, until: Until, gate: Path, tmp_path: Path
) -> None:
    """Killed and started again, twice: before the clock is right again, and after. The service says what happened."""
    log, began = tmp_path / "log", SystemClock().now()
    for number, wrong in enumerate((0, HOUR, 0)):
        clock.set(wrong)
        service = clock.start("up", log=log)
        until(partial(has_polled, steno, polled(steno) + 3))
        if number == 0:
            assert steno("submit", "--name", "one", "--", holding(gate)).returncode == 0
            until(lambda: re.search(r"one: \w+ → running", log.read_text()))
        if number < 2:
            service.kill()
            service.wait()
    gate.touch()
    until(lambda: re.search(r"one: \w+ → succeeded", log.read_text()))
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[-1:]
    ready = httpx.get(f"{url}/readyz").json()
    assert ready["status"] == "ready"
    assert "is right again" in ready["clock"]
    assert "which changed no bill: see `steno incidents`" in steno("costs").stdout
    (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    for name in ("submitted_at", "started_at", "finished_at"):
        assert began <= parse_time(run[name]) <= SystemClock().now() + SECOND, name
