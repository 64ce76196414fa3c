"""Machines of two sources in a real browser: what nobody saw of one is not hatched on the other."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import PHONE
from stenolab.dashboard import told
from stenotest.big import polls
from stenotest.shared_pages import violations

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve
    from stenolab.browser import See

    from steno.events.poll import Poll

pytestmark = [pytest.mark.ci, pytest.mark.slow]

ROUNDS = 500
"""Looks at each source, five seconds apart."""
SILENT = range(200, 320)
"""Rounds in which the second was not heard of."""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A record of two projects whose machines have the same names; the second was silent for ten minutes."""
    start = SystemClock().now() - ROUNDS * 5 * SECOND
    both: list[Poll] = list(islice(polls(start), ROUNDS * 2))
    second = islice(polls(start, first=1000, source="dstack/other"), ROUNDS * 2)
    both += (poll for number, poll in enumerate(second) if number // 2 not in SILENT)
    path = tmp_path / "pair.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls(sorted(both, key=lambda poll: poll.observed_at))
    return path


@pytest.mark.parametrize("options", [PHONE, pytest.param({}, marks=pytest.mark.long)], ids=["phone", "desk"])
def test_only_the_lanes_of_a_silent_source_are_hatched(
    pair: Path, served: Serve, see: See, options: dict[str, Any]
) -> None:
    """The handle says which source it was, every lane says whose machine it has, and machines of two sources never
    share one, whatever they are called; on a desk and on a phone.
    """
    here = served(pair)
    head = told(here.client, "/api/record")["position"]
    overview = told(here.client, "/api/overview", at=head)
    seen = see(here.url, reduced_motion="reduce", **options)
    page = seen.go(f"/?at={head}")  # a moment stands: live, both would be blind by and by
    seen.until("document.querySelector('.lane svg.unseen') && document.querySelector('.gap-handle')")
    lanes = page.locator(".lane:has(.label)")
    drawn_lanes = [
        (lane.locator(".rate").get_attribute("title"), lane.locator("svg.unseen").count()) for lane in lanes.all()
    ]
    assert set(drawn_lanes) == {("dstack/main", 0), ("dstack/other", 1)}
    wanted = {(lane["vm"]["source"], lane["vm"]["name"]) for lane in overview["lanes"]}
    assert len(drawn_lanes) == len(wanted) > len({name for _, name in wanted})
    for lane in lanes.all():
        assert lane.locator(".rate").inner_text().endswith(str(lane.locator(".rate").get_attribute("title")))
    (handle,) = page.locator(".gap-handle").all()
    label = str(handle.get_attribute("aria-label"))
    assert "dstack/other" in label
    assert "dstack/main" not in label
    assert label.startswith("not polled: dstack/other")
    assert page.locator(".lane svg.unseen.g-no_answer").count() == 0
    drawn = page.locator(".lane svg.unseen.g-not_polled path.fill").first.bounding_box()
    track = page.locator(".lane:has(svg.unseen) .track").first.bounding_box()
    assert drawn is not None
    assert track is not None
    assert track["x"] < drawn["x"] < drawn["x"] + drawn["width"] < track["x"] + track["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")
    assert seen.shifted() < 0.01
    assert seen.complaints == []
    assert violations(seen) == []
    machine = next(lane["vm"]["vm_id"] for lane in overview["lanes"] if lane["vm"]["source"] == "dstack/other")
    page = seen.go(f"/machines/{machine}?at={head}")
    page.wait_for_selector("dl.facts")
    assert "dstack/other" in page.locator("dl.facts").first.inner_text()


def test_many_sources_fit_the_banner_and_the_phone(tmp_path: Path, served: Serve, see: See) -> None:
    """The banner names three of twelve sources and counts the rest; on a phone it counts all, names the page that is
    shown also after scrolling, and the tabs of a run stay in sight. Nothing is wider than the screen.
    """
    start = SystemClock().now() - 20 * 5 * SECOND
    every: list[Poll] = []
    for number in range(12):
        every += islice(polls(start, first=1000 * number, source=f"dstack/project-{number}"), 40)
    path = tmp_path / "twelve.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        head = record.append_polls(sorted(every, key=lambda poll: poll.observed_at))[-1].position
    here = served(path)
    seen = see(here.url)
    page = seen.go("/")
    seen.until("document.querySelector('.strip').innerText.match(/12 sources blind|\\+9: 9 fresh/)")
    assert page.evaluate("document.querySelector('.strip').offsetHeight") < 40
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    seen.go(f"/?at={head}")
    assert page.locator(".lane:has(.label)").count() >= 12
    assert page.evaluate("document.querySelector('.lanes .frame').offsetHeight") < 300, "many lanes scroll in place"

    phone = see(here.url, viewport={"width": 390, "height": 740}, is_mobile=True, has_touch=True)
    run = told(here.client, "/api/runs")["runs"][0]["run_id"]
    page = phone.go(f"/runs/{run}?at={head}")
    page.get_by_role("tab", name="Events").click()
    page.locator("tbody a.row").first.wait_for()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    for fixed in (page.locator(".page-name"), page.get_by_role("button", name="Back to live")):
        box = fixed.bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 100
    tab = page.get_by_role("tab", name="Events").bounding_box()
    assert tab is not None
    assert 0 < tab["y"] < 740 - 108, "above the tape, also where the page is too short to scroll it up to the strip"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
