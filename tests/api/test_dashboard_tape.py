"""The tape in a real browser: a shorter stretch shows the marks that a longer one has no room for."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from stenolab.browser import text_of
from stenolab.dashboard import told

from steno.projections.answers import incidents as marks

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve
    from stenolab.browser import See
    from stenolab.dashboard import Busy

pytestmark = [pytest.mark.ci, pytest.mark.slow]

DRAWN = (
    "[...document.querySelectorAll('.reel-track svg path')]"
    ".reduce((sum, path) => sum + (path.getAttribute('d').match(/V/g) ?? []).length, 0)"
)
"""How many marks the tape shows."""


def test_zooming_in_shows_more_marks_and_steps_go_through_them(
    busy: Busy, served: Serve, see: See, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of two hours has more marks than are sent at once; zoomed out again, it is as before."""
    monkeypatch.setattr(marks, "MARKS", 70)
    here = served(busy.path)
    whole = told(here.client, "/api/record")
    assert whole["thinned"]
    since = datetime.fromisoformat(whole["last_at"]) - timedelta(hours=1)
    close = told(here.client, "/api/record", since=since.isoformat().replace("+00:00", "Z"))
    assert not close["thinned"]
    coarse = sum(datetime.fromisoformat(mark["at"]) >= since for mark in whole["marks"])
    assert coarse < len(close["marks"])
    seen = see(here.url)
    page = seen.go("/")
    seen.until(f"{DRAWN} === {len(whole['marks'])}")
    moved = [0.0, seen.shifted()]  # after each step: another moment may show other things elsewhere
    assert not any("since=" in url for url in seen.asked)
    scale = page.get_by_label("How much of the record the tape shows")
    scale.select_option("1h")
    seen.until(f"{DRAWN} === {len(close['marks'])}")
    moved.append(seen.shifted())
    for mark in close["marks"][:-5:-1]:
        page.locator("h1").first.focus()
        page.keyboard.press("[")
        seen.until(f"location.search.endsWith('at={mark['position']}')")
        moved.append(seen.shifted())
    page.keyboard.press("l")
    scale.select_option("all")
    seen.until(f"{DRAWN} === {len(whole['marks'])}")
    moved.append(seen.shifted())
    assert max(after - before for before, after in pairwise(moved)) < 0.01
    assert seen.complaints == []


def test_a_record_whose_marks_are_all_told_is_not_asked_again(busy: Busy, served: Serve, see: See) -> None:
    """There is nothing more to show."""
    here = served(busy.path)
    assert not told(here.client, "/api/record")["thinned"]
    seen = see(here.url)
    page = seen.go("/")
    whole = page.evaluate(DRAWN)
    page.get_by_label("How much of the record the tape shows").select_option("1h")
    seen.until(f"{DRAWN} < {whole}")
    page.keyboard.press("Escape")
    page.locator("h1").first.focus()
    page.keyboard.press("[")
    seen.until("location.search.includes('at=')")
    seen.settled()
    assert not any("since=" in url for url in seen.asked)


def test_what_happens_appears_on_a_tape_that_is_zoomed_in(
    busy: Busy, served: Serve, see: See, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest marks come to the end of it while somebody looks."""
    monkeypatch.setattr(marks, "MARKS", 70)
    here = served(busy.path)
    told(here.client, "/api/record")
    seen = see(here.url)
    page = seen.go("/")
    page.get_by_label("How much of the record the tape shows").select_option("1h")
    seen.until("document.querySelector('.strip').innerText.includes('Live')")
    head = busy.goes_on(60)
    seen.until("performance.getEntriesByType('resource').some((one) => one.name.includes('since='))")
    whole = told(here.client, "/api/record", min_position=head)
    since = datetime.fromisoformat(whole["last_at"]) - timedelta(hours=1)
    close = told(here.client, "/api/record", since=since.isoformat().replace("+00:00", "Z"))
    seen.until(f"{DRAWN} === {len(close['marks'])}")
    page.locator("h1").first.focus()
    page.keyboard.press("[")
    seen.until(f"location.search.endsWith('at={close['marks'][-1]['position']}')")
    assert seen.complaints == []


def test_times_are_local_with_utc_beside_them(town: Path, served: Serve, see: See) -> None:
    """Where the browser's zone is not UTC: on pages and in the banner. A typed time without a zone is local, the newest
    one; `Z` is UTC; an invalid time is said in words.
    """
    here = served(town)
    run = next(run for run in told(here.client, "/api/runs")["runs"] if run["name"] == "ok-run")
    moment = datetime.fromisoformat(run["submitted_at"])
    india = moment + timedelta(hours=5, minutes=30)
    seen = see(here.url, timezone_id="Asia/Kolkata")
    page = seen.go(f"/runs/{run['run_id']}")
    assert page.locator(".run-facts time").first.inner_text() == f"{india:%Y-%m-%d %H:%M:%S} {moment:%H:%M:%S}Z"
    later = moment + timedelta(seconds=20)
    field = page.get_by_label("Go to a time or a position")
    for typed in (f"{later + timedelta(hours=5, minutes=30):%Y-%m-%d %H:%M:%S}", f"{later:%Y-%m-%d %H:%M:%S}Z"):
        field.fill(typed)
        field.press("Enter")
        seen.until(f"document.querySelector('.asof')?.innerText.includes('({later:%H:%M:%S}Z)')")
        seen.settled()
        assert f"As of {later + timedelta(hours=5, minutes=30):%Y-%m-%d %H:%M:%S} GMT+5:30" in text_of(page, ".asof")
    field.fill("25:00")
    field.press("Enter")
    page.get_by_text("“25:00” is not a time or a position.").wait_for()
    page.keyboard.press("Escape")
    field.fill("yesterday 9:00")
    field.press("Enter")
    seen.until("document.querySelector('.asof')?.innerText.includes('09:00:00 GMT+5:30 (03:30:00Z)')")
    assert seen.complaints == []
