"""The tape in a real browser: a shorter stretch shows the marks that a longer one has no room for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from stenolab.dashboard import Busy, told

from projections.models import incidents as marks

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve
    from stenolab.browser import See

pytestmark = pytest.mark.slow

DRAWN = (
    "[...document.querySelectorAll('.reel-track svg path')]"
    ".reduce((sum, path) => sum + (path.getAttribute('d').match(/V/g) ?? []).length, 0)"
)
"""How many marks the tape shows."""


def test_zooming_in_shows_more_marks_and_steps_go_through_them(
    tmp_path: Path, served: Serve, see: See, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two hours with more marks than are told at once; zoomed out again, it is as before."""
    monkeypatch.setattr(marks, "MARKS", 70)
    here = served(Busy(tmp_path / "busy.db").path)
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
    assert not any("since=" in url for url in seen.asked)
    scale = page.get_by_label("How much of the record the tape shows")
    scale.select_option("1h")
    seen.until(f"{DRAWN} === {len(close['marks'])}")
    for mark in close["marks"][:-5:-1]:
        page.locator("h1").first.focus()
        page.keyboard.press("[")
        seen.until(f"location.search.endsWith('at={mark['position']}')")
    page.keyboard.press("l")
    scale.select_option("all")
    seen.until(f"{DRAWN} === {len(whole['marks'])}")
    assert seen.shifted() < 0.01
    assert seen.complaints == []


def test_a_record_whose_marks_are_all_told_is_not_asked_again(tmp_path: Path, served: Serve, see: See) -> None:
    """There is nothing more to show."""
    here = served(Busy(tmp_path / "busy.db").path)
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
    tmp_path: Path, served: Serve, see: See, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest marks come to the end of it while somebody looks."""
    monkeypatch.setattr(marks, "MARKS", 70)
    busy = Busy(tmp_path / "busy.db")
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
