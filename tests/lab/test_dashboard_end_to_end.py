"""A person at the dashboard: a kernel submitted, watched, judged, and gone back to, on a genuine dstack server.

Nothing stands in for anything: a browser, `steno up` as a process, a dstack server, a task whose commands run. With
STENO_PICTURES set to a folder, two of the pictures of `docs/dashboard.md` are taken on the way.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import See, Seen
from stenolab.lab import Lab
from stenolab.machine_ssh import KERNELS, MachineSsh
from stenolab.plugin import StenoAt
from stenolab.steno import Background
from stenotest.waiting import LIMIT_S

from steno.engine.providers.dstack.ssh import public_key
from steno.events.clock import SECOND, parse_time

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.ci, pytest.mark.slow]

WATCH = """
window.phases = [];
new MutationObserver(() => {
  const now = document.querySelector(".phase[aria-current=step]")?.innerText;
  if (now && window.phases.at(-1) !== now) window.phases.push(now);
}).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
"""
"""Keeps each phase the page shows, however seldom anybody looks from outside."""
SUCCESS = "Benchmark completed successfully"


class Site:
    """The service of `steno up`, asked beside the browser."""

    def __init__(self, url: str, up: Background) -> None:
        self.url = url
        self._up = up

    def log(self) -> str:
        """The problems that it printed."""
        return self._up.err

    def get(self, path: str) -> Any:
        """The JSON answer of a read."""
        with urllib.request.urlopen(self.url + path, timeout=LIMIT_S) as answer:
            return json.load(answer)


def picture(page: Page, name: str) -> None:
    """A picture for the documentation, where one is wanted."""
    folder = os.environ.get("STENO_PICTURES")
    if folder:
        page.wait_for_timeout(600)
        page.screenshot(path=Path(folder) / f"{name}.png", scale="css", animations="disabled")


@pytest.fixture
def site(dstack_22: Lab, steno_at: StenoAt, machine_ssh: MachineSsh, machine_image: Path) -> Site:
    """`steno up` on a project of its own, with a budget of $1,400."""
    project = dstack_22.project()
    dstack_22.fleet(project)
    steno = steno_at(dstack_22, project, STENO_BUDGET="1400", **KERNELS)
    machine_ssh.let_in(public_key(steno.home / ".dstack" / "ssh" / "id_rsa"))
    up = steno.up()
    address = re.search(r"serving (http://\S+) ", up.out)
    assert address is not None, up.out
    return Site(address[1], up)


def drag_to(seen: Seen, low: int, high: int) -> int:
    """Drag the slider as a hand does, looking where it is, until it stands between two times; the position there.

    Args:
        low, high: microseconds, UTC.
    """
    page = seen.page
    slider = page.get_by_role("slider")
    track = slider.bounding_box()
    assert track is not None
    height, left, right = track["y"] + 16, track["x"], track["x"] + track["width"] - 8
    page.mouse.move(right, height)
    page.mouse.down()
    for _ in range(30):
        here = (left + right) / 2
        page.mouse.move(here, height, steps=4)
        moment = re.match(r"(\S+) (\S+Z)", slider.get_attribute("aria-valuetext") or "")
        assert moment is not None
        slid_to = parse_time(f"{moment[1]}T{moment[2]}")  # of whole seconds
        if low < slid_to and slid_to + SECOND < high:
            break
        left, right = (left, here) if slid_to >= low else (here, right)
    page.mouse.up()
    seen.until("/[?&]at=\\d+(&|$)/.test(location.search)")
    seen.settled()
    position = seen.position()
    assert position is not None
    return position


def submitted(seen: Seen) -> tuple[str, list[str]]:
    """Submit the example of the first problem; its run's id, and the phases that were shown as present in turn."""
    seen.page.add_init_script(WATCH)
    page = seen.go("/submit")
    gpu = page.get_by_label("GPU").locator("option").first
    assert gpu.inner_text() == "AMD MI300X (192GB, $1.99/hr)"
    page.get_by_role("button", name="Start from the example").click()
    page.get_by_role("button", name="Submit").click()
    page.wait_for_selector("#progress")
    until(page, lambda: page.locator("#progress").inner_text() not in ("Submitted", "Running"))
    assert page.locator("#progress").inner_text() == SUCCESS
    link = re.search(r"[?&]run=([0-9a-f-]+)", page.url)
    assert link is not None
    return link[1], [" ".join(text.split()) for text in page.evaluate("window.phases")]


def until(page: Page, condition: Callable[[], bool], seconds: float = 240) -> None:
    """Look a few times a second until it is so."""
    for _ in range(int(seconds * 5)):
        if condition():
            return
        page.wait_for_timeout(200)
    raise AssertionError(page.locator("#page").inner_text())


def test_a_kernel_from_the_form_to_its_verdict_and_back_to_the_middle(site: Site, see: See) -> None:
    """Submit, live phases, results, verdict with its evidence; the slider shows every page as it was then."""
    from playwright.sync_api import expect

    seen = see(site.url)
    page = seen.page
    run_id, phases = submitted(seen)
    names = [re.sub(r"[●,] |, now.*|●", "", phase).strip() for phase in phases]
    assert len(set(names)) >= 2, names  # it was watched going through them, not shown the end alone
    expect(page.get_by_role("region", name="Tests").locator("tbody tr")).to_have_count(3)
    expect(page.get_by_role("region", name="Benchmarks").locator("tbody tr")).to_have_count(1)
    expect(page.locator(".figure .value").nth(2)).to_have_text("COLD_START")
    picture(page, "dashboard-kernel")

    page.get_by_role("link", name="Verdict, evidence and output").click()
    seen.until("document.querySelector('.run-verdict')?.innerText.includes('succeeded')")
    seen.settled()
    run = site.get(f"/api/runs/{run_id}")
    explained = site.get(f"/api/runs/{run_id}/explain")
    quotes = [f"{evidence['kind']} #{evidence['position']}" for evidence in explained["evidence"]]
    expect(page.locator(".quote figcaption a")).to_have_text(quotes)
    expect(page.locator(".run-verdict")).to_contain_text(f"exit {run['exit_status']}")

    spans = site.get(f"/api/runs/{run_id}/timeline")["spans"]
    longest = max(spans, key=lambda span: float(span["seconds"]))  # `running`, where enough polls saw it
    then = drag_to(seen, parse_time(longest["from"]), parse_time(longest["to"]))
    expect(page.locator(".run-verdict")).to_have_text(re.compile(rf"^\s*{longest['state']}"))
    was = site.get(f"/api/runs/{run_id}?at={then}")
    assert (was["state"], was["finished_at"]) == (longest["state"], None)
    drawn = page.locator("table.life th .badge").last
    expect(drawn).to_have_text(re.compile(rf"^\s*{longest['state']}"))
    expect(page.locator(".strip")).to_contain_text("As of 20")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.get_by_role("tab", name="Output").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("No output for past moments")
    page.get_by_role("tab", name="Why").click()
    picture(page, "dashboard-past")

    page.get_by_role("link", name="Overview", exact=True).click()
    seen.until("document.title.includes('Overview')")
    seen.settled()
    assert seen.position() == then
    expect(page.get_by_role("region", name="Runs that have not ended").get_by_text(run["name"])).to_be_visible()
    page.get_by_role("button", name="Back to live").click()
    seen.until("!location.search.includes('at=')")
    page.go_back()
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.goto(f"{site.url}/runs/{run_id}")
    seen.until("document.querySelector('.run-verdict')?.innerText.includes('succeeded')")
    assert seen.complaints == [], site.log()
    assert seen.elsewhere() == []


@pytest.mark.long
def test_the_output_of_a_run_is_read_live_and_it_is_stopped(site: Site, see: See) -> None:
    """A command from the plain form: queued, running, its output as it is written, and a stop that ends it for good."""
    seen = see(site.url)
    page = seen.go("/submit?what=command")
    page.get_by_label("Commands").fill("for i in $(seq 1 3000); do echo line $i; sleep 0.1; done")
    page.get_by_label("Name").fill("lines")
    page.get_by_label("Image").fill("rocm/dev-ubuntu-24.04")
    page.get_by_label("GPU").select_option(label="AMD MI300X (192GB, $1.99/hr)")
    page.get_by_role("button", name="Submit").click()
    seen.until("document.querySelector('.run-verdict')?.innerText.startsWith('running')")
    page.get_by_role("tab", name="Output").click()
    seen.until("/line 3\\n/.test(document.querySelector('.output pre')?.innerText)")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop it").click()
    seen.until("document.querySelector('.run-verdict').innerText.includes('stopped_by_user')")
    page.get_by_role("tab", name="Events").click()
    seen.settled()
    events = page.locator("tbody td:nth-child(3)").all_inner_texts()
    assert {"RunRequested", "SubmitIntended", "SubmitSucceeded", "StopRequested", "StopIntended"} <= set(events)
    assert seen.complaints == []
    assert seen.elsewhere() == []
