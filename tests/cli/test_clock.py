"""What this machine's clock decides: ages, observability, the budget's day and dates, "today", the end of a token.

freezegun moves the clock that `SystemClock` reads; nothing is handed in.
"""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from stenotest.frozen_time import time_in_hand

from cli.program import steno
from cli.wiring.app import App
from engine.policy import Policy
from engine.providers.readings import READINGS
from engine.replay.trace import open_trace
from engine.wire import wire
from events.clock import SECOND, SystemClock, format_time, parse_time
from events.store.record import Record
from events.store.store import store_at
from projections.api.tokens import Tokens
from projections.models.overview import overview
from projections.models.projector import caught_up
from projections.models.reader_pool import Pool

Call = Callable[..., Result]
TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "warm_reuse.jsonl.zst"
LAST = parse_time("2026-11-20T13:48:29.717956Z")
"""The newest poll: a run has been on its machine for a minute."""


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """`call("ps")`: a command in this process, about the first minute of a genuine recording, as if it were live."""
    path = tmp_path / "record.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll for _, poll in open_trace(TRACE) if poll is not None and poll.observed_at <= LAST])
        with caught_up(record):
            pass
    surroundings = {"COLUMNS": "120", "NO_COLOR": "1", "HOME": str(tmp_path), "STENO_RECORD": str(path)}
    for name in ("STENO_PROVIDER", "STENO_PROJECT", "DSTACK_PROJECT", "FORCE_COLOR"):
        surroundings[name] = ""
    surroundings["AMD_GRANT_CREDITS_TOTAL"] = "100"

    def run(*words: str) -> Result:
        done = CliRunner(env=surroundings).invoke(steno, words, obj=App())
        assert done.exit_code == 0, done.output
        return done

    return run


def after(seconds: float) -> str:
    """So many seconds after the newest poll."""
    return format_time(LAST + round(seconds * SECOND))


def told(call: Call, *words: str) -> Any:
    return json.loads(call(*words, "--json").stdout)


@pytest.mark.parametrize(
    ("seconds", "age", "watched"),
    [(10, "1 m ago", None), (40, "1 m ago", "stale: last answer 40 s ago"), (90_000, "25 h ago", "blind: last answer")],
)
def test_ps_says_how_long_ago_and_whether_anybody_looks(
    call: Call, seconds: int, age: str, watched: str | None
) -> None:
    """Stale after 30 s without an answer, blind after 60."""
    with time_in_hand(after(seconds)):
        shown = call("ps").output
    assert age in shown
    assert ("last answer" in shown) == (watched is not None)
    assert (watched or "") in shown


def test_the_last_day_of_the_budget_ends_now(call: Call) -> None:
    """What was spent stays spent, the last 24 hours move on, and a forecast needs a day."""
    with time_in_hand(after(10)) as hands:
        soon = told(call, "budget")
        hands.later(25 * 3600)
        later = told(call, "budget")
    assert soon["spent_usd"] == later["spent_usd"] == soon["spent_24h_usd"]
    assert later["spent_24h_usd"] == "0.000000"
    assert (soon["forecast"], soon["exhausted_at"]) == ("too_early", None)
    assert (later["forecast"], later["exhausted_at"]) == ("never", None)


def test_today_begins_at_midnight_in_utc(call: Call, tmp_path: Path) -> None:
    """A minute before midnight the day has cost what the machine cost; a minute after nothing."""
    spent = told(call, "costs")["total"]["total_usd"]
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


def test_a_time_ago_counts_from_now(call: Call) -> None:
    """`--at 1h` an hour and half a minute after the newest poll shows what was known half a minute before it."""
    with time_in_hand(after(3600 - 30)):
        past = told(call, "vms", "--at", "1h")
        now = told(call, "vms")
    assert past["position"] < now["position"]


def test_a_token_ends_by_this_machines_clock(call: Call, tmp_path: Path) -> None:
    """For who lists tokens and for who checks them."""
    with time_in_hand(after(10)) as hands:
        text = call("token", "create", "--role", "read", "--name", "site", "--expires", "1h").stdout.strip()
        tokens = Tokens(store_at(tmp_path / "record.db"), SystemClock())
        hands.later(3599)
        assert tokens.bearer(text) is not None
        assert [token["state"] for token in told(call, "token", "list", "--all")["tokens"]] == ["valid"]
        hands.later(1)
        assert tokens.bearer(text) is None
        assert [token["state"] for token in told(call, "token", "list", "--all")["tokens"]] == ["expired"]
