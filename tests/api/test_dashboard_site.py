"""The dashboard over several records in a real browser: whose each row is, one of them, and one that is away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.waiting import wait

if TYPE_CHECKING:
    from conftest import Recorded
    from playwright.sync_api import Route
    from stenolab.browser import See
    from stenotest.served import ServeSite

PAGES = ("/", "/runs", "/machines", "/costs", "/incidents", "/record", "/kernels", "/submit", "/admin")

# Every link to a position that is drawn without the record it is of, as soon as it is in the document.
_UNNAMED = """
window.unnamed = [];
new MutationObserver(() => {
  for (const one of document.querySelectorAll("a[href*='/record/']"))
    if (!one.search.includes("record=")) window.unnamed.push(one.href);
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["href"] });
"""


@pytest.fixture
def records(recorded: Recorded, tmp_path: Path) -> dict[str, Path]:
    """Two records with runs of their own."""
    return {"lab": recorded(tmp_path / "lab.db", "success"), "farm": recorded(tmp_path / "farm.db", "failure")}


def test_every_page_works_over_all_records_and_over_one(
    served_site: ServeSite, records: dict[str, Path], see: See
) -> None:
    """Without a complaint of the browser; rows say whose they are, and a run's page leads to its record."""
    here = served_site(records, budget__total="1400")
    seen = see(here.url)
    for path in PAGES:
        seen.go(path)
        seen.settled()
        assert seen.complaints == [], path
        assert seen.page.locator("[role=alert]").count() == 0, path
    page = seen.go("/runs")
    marks = page.locator("tbody .record-mark")
    marks.nth(1).wait_for()
    assert sorted(marks.all_inner_texts()) == ["farm", "lab"]
    page.get_by_role("link", name="bad-run").click()
    page.get_by_role("heading", name="bad-run").wait_for()
    seen.settled()
    page.locator("a[href*='/record/']").first.click()
    seen.until("/record=farm/.test(location.search)")
    seen.settled()
    assert page.get_by_label("Record shown").input_value() == "farm"
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="bad-run").wait_for()
    assert page.get_by_role("link", name="ok-run").count() == 0
    page.get_by_label("Record shown").select_option("")
    page.get_by_role("link", name="ok-run").wait_for()
    assert seen.complaints == []


def test_a_runs_page_leads_to_its_record_from_the_first_drawing(
    served_site: ServeSite, records: dict[str, Path], see: See
) -> None:
    """The run is the last of the answers, so that all is drawn at once; no link is without its record for a moment."""
    seen = see(served_site(records).url)
    page = seen.go("/runs")
    page.evaluate(_UNNAMED)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/api/runs/[^/]+$"), hold)
    with (
        page.expect_response(re.compile("/timeline")),
        page.expect_response(re.compile("/explain")),
        page.expect_response(re.compile("/like")),
    ):
        page.get_by_role("link", name="bad-run").click()
    wait(lambda: held, seconds=60, what="the question for the run")
    for route in held:
        route.continue_()
    page.get_by_role("heading", name="bad-run").wait_for()
    seen.settled()
    assert page.locator("a[href*='/record/']").count() > 5
    assert page.evaluate("window.unnamed") == []


def test_the_slider_puts_all_records_back_to_one_time(
    served_site: ServeSite, records: dict[str, Path], see: See
) -> None:
    """The address holds a position of each."""
    seen = see(served_site(records).url)
    page = seen.go("/machines")
    page.locator("tbody tr").nth(1).wait_for()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    seen.until(r"/at=lab%3A\d+%2Cfarm%3A\d+/.test(location.search)")
    seen.settled()
    assert re.match(r"As of 20", page.locator(".strip").inner_text())
    assert page.locator("tbody tr").count() == 0
    page.get_by_role("button", name="Back to live").click()
    page.locator("tbody tr").nth(1).wait_for()
    assert seen.complaints == []


def test_a_record_that_is_away_is_a_banner_and_the_others_are_shown(
    served_site: ServeSite, records: dict[str, Path], see: See, tmp_path: Path
) -> None:
    """On every page of all records; what is there goes on."""
    seen = see(served_site(records).url)
    page = seen.go("/runs")
    page.get_by_role("link", name="bad-run").wait_for()
    records["farm"].rename(tmp_path / "gone.db")
    page.get_by_text("The record farm cannot be read").wait_for()
    page.reload()
    page.get_by_role("link", name="ok-run").wait_for()
    page.get_by_text("The record farm cannot be read").wait_for()
    assert page.get_by_role("link", name="bad-run").count() == 0
    page.locator(".strip").get_by_text("Live", exact=True).wait_for()
