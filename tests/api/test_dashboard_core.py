"""The dashboard's core in a real browser: what it shows, live and past, by keyboard and on a phone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.dashboard import Busy, told
from stenotest.waiting import wait

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.append import Batch
from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Serve, Served, StartSteno
    from playwright.sync_api import Route
    from stenolab.browser import See

pytestmark = pytest.mark.slow

PAGES = ("/", "/machines", "/costs")


@pytest.fixture(scope="module")
def busied(served_on: Serve, _begun: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A service of a busy project that no test changes anything of."""
    return served_on(Busy(tmp_path_factory.mktemp("busied") / "busy", _begun).path, budget__total="1400")


def test_every_page_is_drawn_without_complaint_or_shift_and_asks_nobody_else(
    served: Serve, busy: Busy, see: See
) -> None:
    """No error, no violation of the policy, no request off the host, no layout shift, also while things happen."""
    here = served(busy.path, budget__total="1400")
    seen = see(here.url)
    for path in PAGES:
        seen.page.goto("about:blank")
        seen.go(path)
        seen.until("document.querySelector('.strip').innerText.includes('Live')")
        head = busy.goes_on(20)
        seen.until(f"Number(document.querySelector('.strip .place').innerText.replace(/\\D/g, '')) >= {head}")
        seen.settled()
        assert seen.complaints == []
        assert seen.elsewhere() == []
        assert seen.shifted() < 0.01, path


def test_the_overview_says_what_runs_what_it_costs_and_when_the_budget_ends(busied: Served, see: See) -> None:
    """Its figures are those of the API."""
    overview = told(busied.client, "/api/overview")
    page = see(busied.url).go("/")
    running = [run["name"] for run in overview["running"]]
    assert running
    for name in running:
        page.get_by_role("region", name="Runs that have not ended").get_by_text(name).wait_for()
    assert page.get_by_role("img", name=re.compile(r"left, ")).count() == 1
    lanes = page.locator(".lane .label a").all_inner_texts()
    assert set(lanes) == {lane["vm"]["name"] for lane in overview["lanes"]}
    assert len(lanes) == len(set(lanes)), "machines that had a name one after the other share its lane"
    blocks = page.locator(".block.run").count()
    assert blocks == sum(len(lane["runs"]) for lane in overview["lanes"])


def test_what_happens_is_shown_without_a_reload(served: Serve, busy: Busy, see: See) -> None:
    """A run that ends leaves the running runs and stands among those that ended last."""
    here = served(busy.path)
    seen = see(here.url)
    page = seen.go("/")
    before = page.locator(".strip .place").inner_text()
    busy.goes_on()
    seen.until(f"document.querySelector('.strip .place').innerText !== {before!r}")
    ended = told(here.client, "/api/overview")["recent"][0]["name"]
    seen.until(f"document.querySelector('[aria-label=\"Recently ended\"]').innerText.includes({ended!r})")
    assert seen.complaints == []


def test_the_slider_puts_every_page_back_and_forth(busied: Served, see: See) -> None:
    """Dragged to the middle it shows what was then, the address says so, and links keep it; back to live it is now."""
    seen = see(busied.url)
    page = seen.go("/")
    now = page.locator(".vital").nth(2).inner_text()
    slider = page.get_by_role("slider")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 16)
    page.mouse.down()
    for share in (0.7, 0.45):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + 16)
    page.mouse.up()
    seen.until("/at=\\d+$/.test(location.search)")
    seen.settled()
    then = seen.position()
    assert then is not None
    assert page.locator(".strip").inner_text().startswith("As of 20")
    overview = told(busied.client, "/api/overview", at=then)
    assert overview["position"] == then
    assert page.locator(".block.run").count() == sum(len(lane["runs"]) for lane in overview["lanes"])
    page.get_by_role("link", name="Machines", exact=True).click()
    seen.until("document.title.includes('Machines')")
    seen.settled()
    assert seen.position() == then
    assert page.locator("tbody tr").count() == len(told(busied.client, "/api/vms", at=then)["vms"])
    page.reload()
    seen.settled()
    assert seen.position() == then
    page.get_by_role("button", name="Back to live").click()
    seen.until("!location.search.includes('at=')")
    page.get_by_role("link", name="Overview", exact=True).click()
    seen.until("document.title.includes('Overview')")
    seen.settled()
    assert page.locator(".vital").nth(2).inner_text() == now
    assert seen.complaints == []


def test_the_keyboard_goes_everywhere(busied: Served, see: See) -> None:
    """Letters change the page, brackets step by marks, a typed time or position is gone to, nonsense is not."""
    marks = [mark["position"] for mark in told(busied.client, "/api/record")["marks"]]
    seen = see(busied.url)
    page = seen.go("/")
    keys = page.keyboard
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    keys.press("[")
    seen.until("location.search.includes('at=')")
    assert seen.position() == marks[-1]
    keys.press("[")
    seen.until(f"location.search.endsWith('at={max(mark for mark in marks if mark < marks[-1])}')")
    keys.press("g")
    keys.press("m")
    seen.until("document.title.includes('Machines')")
    seen.until("document.activeElement.tagName === 'H1'")
    keys.press("/")
    seen.until("document.activeElement.hasAttribute('data-filter')")
    keys.press("Escape")
    page.get_by_role("heading", name="Machines").focus()
    keys.press("l")
    seen.until("!location.search.includes('at=')")
    keys.press("t")
    keys.type("nonsense")
    keys.press("Enter")
    page.locator(".readout[aria-invalid=true]").wait_for()
    keys.press("Escape")
    keys.press("t")
    keys.type("1,000")
    keys.press("Enter")
    seen.until("location.search.endsWith('at=1000')")
    page.get_by_role("slider").focus()
    keys.press("Home")
    seen.until("location.search.endsWith('at=1')")
    keys.press("End")
    seen.until("!location.search.includes('at=')")
    keys.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    keys.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert seen.complaints == []


def test_a_block_of_a_lane_is_reached_and_told_by_the_keyboard(busied: Served, see: See) -> None:
    """A lane is one stop; the arrows go through its blocks, and each has its own label."""
    page = see(busied.url).go("/")
    first = page.locator(".lane .block").first
    first.focus()
    page.locator(".tip").wait_for()
    labels = [first.get_attribute("aria-label")]
    page.keyboard.press("ArrowRight")
    labels.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert labels[0] != labels[1]
    assert page.locator(".lane .track").first.locator("[tabindex='0']").count() == 1


MOMENTS = {
    "99999999": "Position 99,999,999 does not exist: the record ends at position",
    "nonsense": "“nonsense” is not a time or a position",
    "2001-01-01": "The record begins at",
    "2099-01-01 00:00": "2099-01-01 00:00:00Z is in the future",
    "2026-11-20 15:00 CEST": "The zone “CEST” is not known: write Z for UTC",
}


@pytest.mark.ci
def test_a_moment_that_is_none_is_said_plainly(busied: Served, see: See) -> None:
    """The page says in words what is wrong instead of its content; the ways back to now and to the beginning work."""
    seen = see(busied.url)
    page = seen.page
    for at, words in MOMENTS.items():
        page.goto(f"{seen.base}/?at={at}")
        page.get_by_role("alert").get_by_text(words).wait_for()
        assert page.locator(".lane").count() == 0, "nothing else is shown"
    page.get_by_role("button", name="First moment of the record").click()
    seen.until("location.search === '?at=1'")
    seen.settled()
    page.goto(f"{seen.base}/?at={at}")
    page.get_by_role("alert").wait_for()
    page.get_by_role("button", name="Back to live").click()
    seen.until("document.querySelector('.problem') === null")


def test_times_are_local_with_utc_beside_and_distances_count_from_the_moment(busied: Served, see: See) -> None:
    """A time without a zone in the address is UTC, wherever one looks; banner and titles have the local time and UTC;
    of a past moment distances are counted from there, and say so.
    """
    last = told(busied.client, "/api/record")["last_at"][:16]
    seen = see(busied.url, timezone_id="Asia/Kolkata")
    page = seen.go(f"/runs?at={last}")
    seen.until("/at=\\d+$/.test(location.search)")
    seen.settled()
    india = datetime.fromisoformat(last) + timedelta(hours=5, minutes=30)
    banner = f"As of {india:%Y-%m-%d %H:%M:%S} GMT+5:30 ("
    assert page.locator(".strip").inner_text().startswith(banner)
    assert f"{last[11:]}:00Z)" in page.locator(".strip").inner_text()
    moment = page.locator("tbody time").first
    assert moment.inner_text().endswith(" before")
    assert "GMT+5:30" in (moment.get_attribute("title") or "")
    page.get_by_role("button", name="Back to live").click()
    seen.until("document.querySelector('tbody time').innerText.endsWith(' ago')")


@pytest.mark.ci
def test_nothing_is_lost_when_the_server_restarts(busy: Busy, steno_served: StartSteno, see: See, a_port: str) -> None:
    """The page says that it is not connected, comes back by itself, and shows what happened meanwhile."""
    first = steno_served(busy.path, STENO_API_PORT=a_port)
    seen = see(first.url)
    seen.go("/")
    seen.until("document.querySelector('.strip').innerText.includes('Live')")
    first.close()
    seen.until("document.querySelector('.strip').innerText.includes('Reconnecting')")
    busy.goes_on()
    again = steno_served(busy.path, STENO_API_PORT=a_port)
    seen.until("document.querySelector('.strip').innerText.includes('Live')")
    ended = again.get("/api/overview").json()["recent"][0]["name"]
    seen.until(f"document.querySelector('[aria-label=\"Recently ended\"]').innerText.includes({ended!r})")


@pytest.mark.ci
def test_the_theme_follows_the_system_until_a_person_chooses(busied: Served, see: See) -> None:
    """Dark where the system is; the other one after the button, and after a reload."""
    seen = see(busied.url, color_scheme="dark")
    page = seen.go("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert seen.settled().evaluate(ground) == light


@pytest.mark.ci
def test_no_two_ticks_of_an_axis_have_one_label(towned: Served, see: See) -> None:
    """A step is at least what a label shows: $0.000001 of a spend, a cent of a budget."""
    page = see(towned.url).go("/costs")
    module = page.locator("script[type=module]").get_attribute("src").replace("core/app.js", "ui/scale.js")
    ticks = f"async ([top, least]) => (await import('{module}')).amountsOf(top, 4, least)"
    for top, least in ((1e-6, 1e-6), (3e-6, 1e-6), (0.01, 0.01), (0.037, 0.01), (12, 0.01)):
        labels = [round(amount / least) for amount in page.evaluate(ticks, [top, least])]
        assert len(set(labels)) == len(labels) >= 2, (top, labels)


def test_a_blind_source_cannot_be_overlooked(towned: Served, see: See) -> None:
    """Every page of a record that nobody adds to says since when nobody polled the source."""
    seen = see(towned.url)
    page = seen.go("/runs")
    for path in PAGES:
        seen.go(path)
        page.wait_for_selector(".strip.blind")
        assert "blind: not polled since 2026" in page.locator(".strip").inner_text()


def test_a_machine_is_stopped_only_after_a_question(served: Serve, busy: Busy, see: See) -> None:
    """The button asks first; the answer is recorded, and in the past there is nothing to press."""
    with Record.open(busy.path, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        made = types.FleetEnsured(provider="dstack", project="main", name="lab-fleet")
        record.append_many([Batch("fleet/main/lab-fleet", [made])])
    here = served(busy.path)
    machine = next(vm for vm in told(here.client, "/api/vms")["vms"] if vm["state"] != "terminated")["vm_id"]
    seen = see(here.url)
    page = seen.go(f"/machines/{machine}")
    page.get_by_role("button", name="Stop when idle").click()
    page.get_by_role("button", name="Keep it").click()
    position = told(here.client, "/api/record")["position"]
    page.get_by_role("button", name="Stop when idle").click()
    page.get_by_role("button", name="Stop it when idle").click()
    page.wait_for_selector(".toast")
    assert told(here.client, "/api/record")["position"] > position
    seen.go(f"/machines/{machine}?at={position}")
    assert page.get_by_role("button", name="Stop when idle").is_disabled()
    assert seen.complaints == []


@pytest.mark.parametrize("path", ["/", "/machines/x", "/record/17", "/login"])
def test_every_page_is_a_document_that_may_be_asked_for_again(path: str, towned: Served) -> None:
    """Documents are checked each time and cost nothing unchanged; files are kept for ever; both are compressed."""
    first = towned.client.get(path)
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/html")
    assert towned.client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    overview = 'href="/api/overview"'
    assert overview in first.text
    assert overview not in towned.client.get(path, params={"at": "17"}).text, "a moment past does not show it"
    asset = re.search(r'href="(/assets/[^"]+\.css)"', first.text)
    assert asset is not None
    sheet = towned.client.get(asset[1])
    assert "immutable" in sheet.headers["cache-control"]
    assert sheet.headers["content-encoding"] == "gzip"
    assert towned.client.get("/assets/0/all.css").status_code == 404
    assert towned.client.get("/assets/0/..%2F..%2Fbundle.py").status_code in (400, 404)


def test_a_page_shows_at_least_what_the_stream_told(served: Serve, busy: Busy, see: See) -> None:
    """After a link the first read says the stream's position; a read that read models cannot answer in time shows what
    there is, and is made again.
    """
    here = served(busy.path)
    seen = see(here.url)
    page = seen.go("/")
    before = told(here.client, "/api/record")["position"]
    seen.until("document.querySelector('.strip').innerText.includes('Live')")
    busy.goes_on()
    seen.until(f"Number(document.querySelector('.strip .place').innerText.replace(/\\D/g, '')) > {before}")
    urls: list[str] = []
    behind = 1

    def answer(route: Route) -> None:
        nonlocal behind
        urls.append(route.request.url)
        if "min_position" in route.request.url and behind:
            behind -= 1
            route.fulfill(status=503, json={"title": "Behind", "status": 503, "detail": "the read models are behind"})
        else:
            route.continue_()

    page.route(re.compile(r"/api/vms\?limit=100"), answer)  # the list, not those that are summed
    page.get_by_role("link", name="Machines", exact=True).click()
    page.locator("tbody tr").first.wait_for()
    least = [re.search(r"min_position=(\d+)", url) for url in urls]
    assert least[0] is not None
    assert int(least[0][1]) >= before
    assert least[1] is None, "what there is"
    assert page.locator(".problem").count() == 0
    again = "the page asks again"
    wait(lambda: page.evaluate("1") and len(urls) > 2 and "min_position" in urls[-1], what=again)
