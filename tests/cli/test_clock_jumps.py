"""Wall clocks that are set while processes run, and what this machine's clock decides."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from stenotest.command_line import Steno
from stenotest.frozen_time import time_in_hand
from stenotest.gated_run import holding
from stenotest.in_process import InProcess
from stenotest.shifted_clock import ShiftedClock
from stenotest.waiting import LIMIT_S, wait

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.engine.state.policy import Policy
from steno.engine.wire import wire
from steno.events.clock import SECOND, SystemClock, format_time, parse_time
from steno.events.store.record import Record
from steno.events.store.store import store_at
from steno.projections.answers.overview import overview
from steno.projections.api.tokens import Tokens
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.reader_pool import Pool

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


@pytest.mark.parametrize("wrong", [2 * HOUR, pytest.param(-2 * HOUR, marks=pytest.mark.long)])
def test_a_clock_that_is_wrong_for_a_while_changes_no_time_and_no_bill(
    clock: ShiftedClock, wrong: int, steno: Steno, gate: Path, tmp_path: Path
) -> None:
    """Requests made meanwhile, by a process that knew no other clock, or afterwards; and the log says what happened."""
    log, began, boot = tmp_path / "log", SystemClock().now(), time.monotonic()
    clock.start("record", "--interval", "1", log=log)
    wait(lambda: re.search("recording local/", log.read_text()) and polled(steno))
    clock.set(wrong)
    assert clock.start("submit", "--name", "meanwhile", "--", holding(gate), log=tmp_path / "submit").wait() == 0
    wait(lambda: re.search("clock_jump at position .* 2 h (ahead|behind)", log.read_text()))
    clock.set(0)
    wait(lambda: "is right again" in log.read_text())
    assert steno("submit", "--name", "afterwards", "--", holding(gate)).returncode == 0
    wait(lambda: len(re.findall(r"(?:meanwhile|afterwards): \w+ → running", log.read_text())) == 2)
    gate.touch()
    wait(lambda: len(re.findall(r"(?:meanwhile|afterwards): \w+ → succeeded", log.read_text())) == 2)
    answer = json.loads(steno("replay", "--json").stdout)
    passed, ended = time.monotonic() - boot, SystemClock().now()
    for run in answer["runs"]:
        for name in ("submitted_at", "started_at", "finished_at"):
            assert began <= parse_time(run[name]) <= ended, (run["name"], name)
    assert 0 < sum(float(vm["cost_usd"]) for vm in answer["vms"]) <= 2 * PRICE * passed / HOUR
    assert [anomaly["kind"] for anomaly in answer["anomalies"]].count("clock_jump") == 2
    assert steno("verify").returncode == 0


def test_a_recorder_that_starts_with_the_wrong_clock_tells_the_right_time(
    clock: ShiftedClock, steno: Steno, gate: Path, tmp_path: Path
) -> None:
    """Killed and started again, twice: before the clock is right again, and after. The service says what happened."""
    log, began = tmp_path / "log", SystemClock().now()
    for number, wrong in enumerate((0, HOUR, 0)):
        clock.set(wrong)
        service = clock.start("up", log=log)
        wait(partial(has_polled, steno, polled(steno) + 3))
        if number == 0:
            assert steno("submit", "--name", "one", "--", holding(gate)).returncode == 0
            wait(lambda: re.search(r"one: \w+ → running", log.read_text()))
        if number < 2:
            service.kill()
            service.wait()
    gate.touch()
    wait(lambda: re.search(r"one: \w+ → succeeded", log.read_text()))
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[-1:]
    ready = httpx.get(f"{url}/readyz", timeout=LIMIT_S).json()
    assert ready["status"] == "ready"
    assert "is right again" in ready["clock"]
    assert "which changed no bill: see `steno incidents`" in steno("costs").stdout
    (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    for name in ("submitted_at", "started_at", "finished_at"):
        assert began <= parse_time(run[name]) <= SystemClock().now() + SECOND, name


TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "warm_reuse.jsonl.zst"
LAST = parse_time("2026-11-20T13:48:29.717956Z")
"""The newest poll: a run has been on its machine for a minute."""


@pytest.fixture
def call(tmp_path: Path) -> InProcess:
    """Commands about the first minute of a genuine recording, as if it were live."""
    path = tmp_path / "record.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll for _, poll in open_trace(TRACE) if poll is not None and poll.observed_at <= LAST])
        with caught_up(record):
            pass
    return InProcess(tmp_path, COLUMNS="120", AMD_GRANT_CREDITS_TOTAL="100")


def after(seconds: float) -> str:
    """So many seconds after the newest poll."""
    return format_time(LAST + round(seconds * SECOND))


@pytest.mark.parametrize(
    ("seconds", "age", "watched"),
    [(10, "1 m ago", None), (40, "1 m ago", "stale: last answer 40 s ago"), (90_000, "25 h ago", "blind: last answer")],
)
def test_ps_says_how_long_ago_and_whether_anybody_looks(
    call: InProcess, seconds: int, age: str, watched: str | None
) -> None:
    """Stale after 30 s without an answer, blind after 60."""
    with time_in_hand(after(seconds)):
        page = call.page("ps")
    assert age in page
    assert ("last answer" in page) == (watched is not None)
    assert (watched or "") in page


def test_the_last_day_of_the_budget_ends_now(call: InProcess) -> None:
    """Spent money stays spent, the last 24 hours move on, and a forecast needs a day."""
    with time_in_hand(after(10)) as hands:
        soon = call.json("budget")
        hands.later(25 * 3600)
        later = call.json("budget")
    assert soon["spent_usd"] == later["spent_usd"] == soon["spent_24h_usd"]
    assert later["spent_24h_usd"] == "0.000000"
    assert (soon["forecast"], soon["exhausted_at"]) == ("too_early", None)
    assert (later["forecast"], later["exhausted_at"]) == ("never", None)


def test_today_begins_at_midnight_in_utc(call: InProcess, tmp_path: Path) -> None:
    """A minute before midnight the day has cost what the machine cost; a minute after nothing."""
    spent = call.json("costs")["total"]["total_usd"]
    with (
        closing(Pool(tmp_path / "record.db", clock=SystemClock())) as pool,
        time_in_hand("2026-11-20T23:59:00Z") as hands,
    ):
        with pool.now() as look:
            before: Any = wire(overview(look, Policy()))["today"]
        hands.later(120)
        with pool.now() as look:
            behind: Any = wire(overview(look, Policy()))["today"]
    assert (before["from"], before["spent_usd"]) == ("2026-11-20T00:00:00.000000Z", spent)
    assert (behind["from"], behind["spent_usd"]) == ("2026-11-21T00:00:00.000000Z", "0.000000")


def test_a_time_ago_counts_from_now(call: InProcess) -> None:
    """`--at 1h` an hour and half a minute after the newest poll shows what was known half a minute before it."""
    with time_in_hand(after(3600 - 30)):
        past = call.json("vms", "--at", "1h")
        now = call.json("vms")
    assert past["position"] < now["position"]


def test_a_token_ends_by_this_machines_clock(call: InProcess, tmp_path: Path) -> None:
    """For who lists tokens and for who checks them."""
    with time_in_hand(after(10)) as hands:
        text = call("token", "create", "--role", "read", "--name", "site", "--expires", "1h").stdout.strip()
        tokens = Tokens(store_at(tmp_path / "record.db"), SystemClock())
        hands.later(3599)
        assert tokens.bearer(text) is not None
        assert [token["state"] for token in call.json("token", "list", "--all")["tokens"]] == ["valid"]
        hands.later(1)
        assert tokens.bearer(text) is None
        assert [token["state"] for token in call.json("token", "list", "--all")["tokens"]] == ["expired"]
