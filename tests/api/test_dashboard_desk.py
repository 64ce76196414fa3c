"""The operator's desk in a real browser: levers, checked runs, saved views, the palette, the tape, sums."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import PHONE, text_of

if TYPE_CHECKING:
    from conftest import Served
    from playwright.sync_api import Page, Route
    from stenolab.browser import See

pytestmark = pytest.mark.slow

TOUCHED = {"runs": ["matmul", "trainer"], "machines": ["gpu-0"], "spent_usd": "1.25", "cost_usd_per_hour": "3.98"}
IN_FORCE = {
    "lever_id": "7f",
    "action": "pause",
    "user": "ada",
    "gpu": None,
    "source": None,
    "state": None,
    "vm_id": None,
    "until": None,
    "why": "maintenance",
    "by": "root",
    "at": "2026-01-01T00:00:00Z",
    "runs": ["matmul"],
    "machines": [],
    "cost_usd_per_hour": "0",
}


class Levers:
    """A service's levers: what is in force, and what was sent; `refusal` is the answer to the next pull."""

    def __init__(self, page: Page) -> None:
        self.in_force: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.refusal: tuple[int, str] | None = None
        page.route(re.compile(r"/api/levers(\?|$)"), self._answer)
        page.route("**/api/levers/*", self._released)

    def _answer(self, route: Route) -> None:
        if route.request.method == "GET":
            return route.fulfill(json={"levers": self.in_force})
        body = route.request.post_data_json
        if self.refusal is not None and (not body.get("preview") or self.refusal[0] == 404):
            status, detail = self.refusal
            return route.fulfill(
                status=status, content_type="application/problem+json", body=json.dumps({"detail": detail})
            )
        if body.get("preview"):
            return route.fulfill(json=TOUCHED)
        self.sent.append(body)
        self.in_force = [IN_FORCE]
        return route.fulfill(status=201, json=IN_FORCE)

    def _released(self, route: Route) -> None:
        self.sent.append({"released": route.request.url.rpartition("/")[2]})
        self.in_force = []
        route.fulfill(json={})


def axe(page: Page) -> None:
    """Every rule of axe holds."""
    from axe_playwright_python.sync_playwright import Axe

    report = Axe().run(page, options={"reporter": "no-passes"})
    assert report.violations_count == 0, report.generate_report()


def test_a_lever_shows_what_it_touches_and_is_pulled_and_released(towned: Served, see: See) -> None:
    """Runs, machines and money before; a reason is needed; a refusal is one line, and nothing is half done; the lever
    then stands on the overview, with its release.
    """
    seen = see(towned.url)
    levers = Levers(seen.page)
    page = seen.go("/")
    page.get_by_role("button", name="Pause…").click()
    sheet = page.get_by_role("dialog", name="Pause")
    sheet.get_by_text("matmul, trainer").wait_for()
    assert "$3.98 an hour" in sheet.inner_text()
    assert "$1.25" in sheet.inner_text()
    axe(page)
    sheet.get_by_label("Of the user").fill("ada")
    sheet.get_by_role("button", name="Pause", exact=True).click()
    sheet.get_by_text("Write why").wait_for()
    sheet.get_by_label("Why").fill("maintenance")
    levers.refusal = (409, "ada is paused already by the lever 7f: release it first")
    sheet.get_by_role("button", name="Pause", exact=True).click()
    sheet.get_by_text("ada is paused already by the lever 7f").wait_for()
    assert levers.sent == []
    levers.refusal = None
    sheet.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_text("Pause: user ada: in force.").wait_for()
    assert levers.sent == [{"action": "pause", "user": "ada", "why": "maintenance"}]
    page.reload()
    panel = page.get_by_role("region", name="Levers in force")
    assert "maintenance, by root" in panel.inner_text()
    axe(page)
    panel.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Release it").click()
    seen.until("document.querySelector('.toast')?.innerText.includes('released')")
    assert levers.sent[-1] == {"released": "7f"}
    levers.refusal = (404, "no such path")
    page.get_by_role("button", name="Stop…").click()
    page.get_by_text("This service has no levers: update it").wait_for()
    assert page.get_by_role("button", name="Stop them").is_disabled()


def test_who_may_only_read_is_offered_no_order(towned: Served, see: See) -> None:
    """Neither levers nor orders to checked runs; comparing them needs no role."""
    seen = see(towned.url)
    seen.page.route("**/api/session", lambda route: route.fulfill(json={"name": "eve", "role": "read", "via": "token"}))
    page = seen.go("/")
    page.get_by_text("eve", exact=True).wait_for()
    assert page.get_by_role("button", name="Pause…").count() == 0
    page = seen.go("/runs")
    for box in page.locator("tbody input").all()[:2]:
        box.check()
    bar = page.get_by_role("region", name="Checked runs")
    assert bar.get_by_role("button").all_inner_texts() == ["Uncheck"]
    bar.get_by_role("link", name="Compare").click()
    seen.until("location.pathname === '/compare'")
    seen.settled()
    assert seen.complaints == []


def test_runs_are_sorted_by_their_heads_and_checked(towned: Served, see: See) -> None:
    """A click sorts, a second turns it, as the API does; of checked runs those that cannot be run again are named, and
    none is submitted; runs that ended cannot be stopped.
    """
    seen = see(towned.url)
    page = seen.go("/runs")
    for key, order in (("name", "newest"), ("name", "oldest")):
        page.get_by_role("button", name="Run", exact=False).and_(page.locator(".sorter").first).click()
        seen.until(f"location.search.includes('order=name{'' if order == 'newest' else '-back'}')")
        seen.settled()
        runs = towned.client.get("/api/runs", params={"sort": key, "order": order}).json()["runs"]
        assert page.locator("tbody a.row").all_inner_texts() == [run["name"] for run in runs]
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    row = page.locator("tbody tr").first.inner_text()
    assert "admin" in row
    for box in page.locator("tbody input").all()[:3]:
        box.check()
    bar = page.get_by_role("region", name="Checked runs")
    assert bar.get_by_role("button", name="Stop").is_disabled()
    assert bar.get_by_role("button", name="Compare").is_disabled()
    axe(page)
    before = towned.client.get("/api/record").json()["position"]
    bar.get_by_role("button", name="Run again").click()
    seen.until("document.querySelector('.toast')?.innerText.startsWith('Nothing was submitted: ')")
    assert towned.client.get("/api/record").json()["position"] == before
    page.get_by_role("button", name="Dense").click()
    page.set_viewport_size(PHONE["viewport"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.reload()
    seen.settled()
    assert page.locator("table.dense").count() == 1
    assert seen.complaints == []


@pytest.mark.ci
def test_a_view_is_saved_opened_and_deleted(towned: Served, see: See) -> None:
    """It keeps filters and order in this browser. Views of a later version are left as they are, in one line."""
    seen = see(towned.url)
    page = seen.go("/runs?state=failed&order=cost")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name of the view").fill("dear failures")
    page.get_by_role("button", name="Save view").click()
    page.goto("about:blank")
    page = seen.go("/runs")
    page.get_by_text("Views (1)").click()
    axe(page)
    page.get_by_role("link", name="dear failures").click()
    seen.until("location.search === '?state=failed&order=cost'")
    page.get_by_role("button", name="Delete the view dear failures").click()
    page.get_by_text("Views", exact=True).wait_for()
    for stored, words in (
        ({"form": 2, "views": {"any": 1}}, "The saved views are of a later version of Steno"),
        (
            {"form": 1, "views": [{"name": "mine", "query": "team=a"}]},
            "mine: saved by a later version, filters by team",
        ),
    ):
        page.evaluate("(text) => localStorage.setItem('steno.views', text)", json.dumps(stored))
        page.goto("about:blank")  # they are read when the document is
        page = seen.go("/runs")
        page.locator(".views summary").click()
        page.get_by_text(words).wait_for()
        assert json.loads(page.evaluate("localStorage.getItem('steno.views')")) == stored
    assert seen.complaints == []


# Whether each window is open when it is put on the page: a key typed after that is its own.
OPEN_AT_ONCE = """() => {
  window.opened = [];
  new MutationObserver((changes) => changes.forEach(({addedNodes}) => addedNodes.forEach((node) => {
    const window_ = node.nodeType === 1 && (node.matches("dialog") ? node : node.querySelector("dialog"));
    if (window_) window.opened.push(window_.open);
  }))).observe(document.body, {childList: true, subtree: true});
}"""


def test_the_palette_finds_runs_machines_pages_and_levers(towned: Served, see: See) -> None:
    """Opened by Ctrl-K, also from a field; arrows choose, Enter goes; a lever opens its window."""
    seen = see(towned.url)
    Levers(seen.page)
    page = seen.go("/runs")
    page.get_by_label("Search").focus()
    page.evaluate(OPEN_AT_ONCE)
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Run, machine, page or lever")
    assert page.locator("li[aria-selected=true]").inner_text().split()[1] == "Overview"
    axe(page)
    page.keyboard.type("retry-run")
    seen.until("document.querySelector('[aria-selected=true]')?.innerText.includes('retry-run')")
    page.keyboard.press("Enter")
    seen.until("document.title.includes('retry-run')")
    vm = towned.client.get("/api/vms").json()["vms"][0]
    page.keyboard.press("Control+k")
    field.fill(vm["vm_id"])
    seen.until("document.querySelector('[aria-selected=true] .kind')?.innerText === 'machine'")
    page.keyboard.press("Enter")
    seen.until(f"location.pathname === '/machines/{vm['vm_id']}'")
    page.keyboard.press("Control+k")
    field.fill("drain")
    seen.until("document.querySelectorAll('[role=option]').length === 1")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Drain").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    field.fill("nothing like it")
    page.get_by_text("Nothing has “nothing like it” in its name.").wait_for()
    page.keyboard.press("Control+k")
    seen.until("document.querySelector('.palette') === null")
    opened = page.evaluate("window.opened")
    assert len(opened) == 5
    assert all(opened), "a window is on the page before it takes keys"
    assert seen.complaints == []


@pytest.mark.ci
def test_the_tape_is_made_low_and_is_not_on_pages_without_a_moment(towned: Served, see: See) -> None:
    """24 px high, and so after a reload; its slider still goes to a moment."""
    seen = see(towned.url)
    page = seen.go("/")
    assert page.locator(".tape").bounding_box()["height"] > 60  # type: ignore[index]
    page.get_by_role("button", name="Whole tape").click()
    page.reload()
    seen.settled()
    assert page.locator(".tape").bounding_box()["height"] == 24  # type: ignore[index]
    axe(page)
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    seen.until("location.search.includes('at=1')")
    for path in ("/submit", "/docs", "/login"):
        assert seen.go(path).locator(".tape").count() == 0
    assert seen.go("/admin").locator(".tape").count() == 1


def test_machines_are_found_by_region_and_user_and_summed(towned: Served, see: See) -> None:
    """Every word of the filter has to fit; the sum is of those that are up and fit."""
    seen = see(towned.url)
    vms = towned.client.get("/api/vms?limit=200").json()["vms"]
    vm = next(vm for vm in vms if vm["region"] and vm["user"])
    page = seen.go("/machines")
    page.get_by_label("Find").fill(f"{vm['region']} {vm['user']}")
    fits = [each for each in vms if (each["region"], each["user"]) == (vm["region"], vm["user"])]
    seen.until(f"document.querySelectorAll('tbody tr').length === {len(fits)}")
    live = towned.client.get("/api/vms?live=true&limit=200").json()["vms"]
    up = [each for each in live if (each["region"], each["user"]) == (vm["region"], vm["user"])]
    cost = sum(float(each["price_usd_per_hour"]) for each in up)
    assert text_of(page, ".sum").startswith(f"{len(up)} up, ${cost:.2f}")
    assert seen.complaints == []
