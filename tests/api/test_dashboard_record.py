"""The dashboard's pages of the record: its lists, one event, and any answer as a tree; in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenotest.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Serve, Served
    from stenolab.browser import See

    from steno.events.poll import Poll

pytestmark = pytest.mark.slow

Polls = Callable[[str], "tuple[Poll, ...]"]
Record = Callable[[Path, "Sequence[Poll]"], None]


def named(here: Served, name: str) -> dict[str, Any]:
    """The run of that name, as the API has it."""
    run: dict[str, Any] = here.client.get(f"/api/runs/{name}").json()
    return run


def test_the_record_is_paged_both_ways_without_loss(towned: Served, see: See) -> None:
    """From the newest to older pages and back, every position once; a type and a stream narrow it."""
    seen = see(towned.url)
    page = seen.go("/record")
    head = towned.client.get("/api/record").json()["position"]

    def shown() -> list[int]:
        seen.settled()
        return [int(text.replace(",", "")) for text in page.locator("tbody a.row").all_inner_texts()]

    first = shown()
    assert first == list(range(head, head - 50, -1))
    page.get_by_role("button", name="Older").click()
    seen.until("location.search.includes('before=')")
    assert shown() == list(range(head - 50, head - 100, -1))
    page.get_by_role("button", name="Newer").click()
    seen.until("location.search.includes('after=')")
    assert shown() == first
    page.get_by_role("button", name="Oldest").click()
    seen.until("location.search.includes('after=0')")
    assert shown() == list(range(50, 0, -1))
    page.get_by_role("button", name="Newest").click()
    seen.until("!location.search.includes('after=')")
    page.get_by_label("Type").select_option("RunObserved")
    seen.until("location.search.includes('type=RunObserved')")
    seen.settled()
    assert set(page.locator("tbody td:nth-child(3)").all_inner_texts()) == {"RunObserved"}
    stream = f"run/{named(towned, 'ok-run')['run_id']}"
    page.get_by_role("searchbox", name="Stream").fill(stream)
    seen.until("location.search.includes('stream=')")
    page_of = towned.client.get(
        "/api/events", params={"type": "RunObserved", "stream": stream, "limit": 50, "backwards": "true"}
    ).json()
    assert shown() == [event["position"] for event in page_of["events"]]
    assert seen.complaints == []


@pytest.mark.ci
def test_new_events_wait_until_they_are_asked_for(
    served: Serve, empty_record: Path, polls: Polls, recorded_again: Record, see: See
) -> None:
    """The newest page stands still while the record grows, and follows it where that is wanted; the events of a run
    come newest first; a poll says which runs it showed and what changed with it.
    """
    recording = polls("success")
    recorded_again(empty_record, recording[:100])
    here = served(empty_record)
    seen = see(here.url)
    page = seen.go("/record")
    first = page.locator("tbody a.row").first.inner_text()
    recorded_again(empty_record, recording[100:])
    page.get_by_role("button", name="Show 50 new events or more").click()
    head = here.client.get("/api/record").json()["position"]

    def at_head() -> bool:
        """Events after the click are read too."""
        for more in page.locator("button.fresh").all():
            more.click()
        return page.locator("tbody a.row").first.inner_text() == f"{head:,}"

    wait(at_head, what="the head of the record")
    assert first != f"{head:,}"
    page.get_by_label("Follow").check()
    recorded_again(empty_record, polls("failure")[:20])
    head = here.client.get("/api/record").json()["position"]
    seen.until(f"document.querySelector('tbody a.row').innerText === '{head:,}'")

    run = named(here, "ok-run")
    page = seen.go(f"/runs/{run['run_id']}?tab=events")
    positions = [int(text.replace(",", "")) for text in page.locator("tbody a.row").all_inner_texts()]
    stream = {"stream": f"run/{run['run_id']}", "backwards": "true"}
    assert positions == [event["position"] for event in here.client.get("/api/events", params=stream).json()["events"]]
    page = seen.go(f"/record/{run['transitions'][-1]['position']}")
    showed = page.get_by_role("region", name="What it showed")
    assert showed.locator("tbody tr").all_inner_texts() == ["run\tok-run\trunning\trunning → succeeded"]
    showed.get_by_role("link", name="ok-run").click()
    seen.until("document.title.includes('ok-run')")
    assert seen.complaints == []


def test_any_answer_is_there_word_for_word(towned: Served, see: See) -> None:
    """A poll's page holds its answer: copied it is the API's body, found by search, walked by the arrow keys."""
    position = named(towned, "ok-run")["evidence"][-1]
    body = towned.client.get(f"/api/polls/{position}").json()["body"]
    seen = see(towned.url, permissions=["clipboard-read", "clipboard-write"])
    page = seen.go(f"/record/{position}")
    answer = page.get_by_role("region", name="Answer")
    answer.get_by_role("button", name="Copy all").click()
    answer.get_by_text("Copied").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == body
    answer.get_by_role("searchbox").fill("exit_status")
    page.keyboard.press("Enter")
    answer.locator(".json-row.hit").first.wait_for()
    assert "exit_status" in answer.locator(".json-row[aria-selected=true]").inner_text()
    path = answer.locator(".json-foot code").inner_text()
    assert re.fullmatch(r"\.\[\d+\]\.jobs\[0\]\.job_submissions\[0\]\.exit_status|\..*exit_status", path)
    tree = answer.get_by_role("tree")
    tree.locator("[tabindex='0']").focus()
    page.keyboard.press("Home")
    assert tree.locator("[aria-selected=true]").get_attribute("aria-level") == "1"
    rows = tree.get_by_role("treeitem").count()
    page.keyboard.press("ArrowLeft")
    assert tree.get_by_role("treeitem").count() == 1
    page.keyboard.press("ArrowRight")
    assert tree.get_by_role("treeitem").count() == rows
    page.get_by_role("link", name="Next").click()
    seen.until(f"location.pathname === '/record/{position + 1}'")
    page.get_by_role("link", name="Previous").click()
    seen.until(f"location.pathname === '/record/{position}'")
    assert seen.complaints == []


def test_the_last_position_has_no_next_and_the_first_no_previous(towned: Served, see: See) -> None:
    """Neighbours end where the record does, also where that is a moment of the past."""
    seen = see(towned.url)
    head = towned.client.get("/api/record").json()["position"]
    for path in (f"/record/{head}", "/record/100?at=100"):
        page = seen.go(path)
        seen.until("document.querySelector('nav[aria-label=Neighbours] button')?.innerText.includes('Next')")
        assert page.get_by_role("link", name="Previous").count() == 1
    assert seen.go("/record/1").get_by_role("link", name="Previous").count() == 0


def test_the_tree_of_a_value_is_exact(tmp_path: Path) -> None:
    """Paths are jq's, searches find keys and values, and a list too long to open at once stays closed."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: `apt-get install nodejs`")
    rows = Path(__file__).parent.parent.parent / "projections/dashboard/assets/js/pages/record/rows.js"
    (tmp_path / "rows.mjs").write_text(rows.read_text())
    (tmp_path / "try.mjs").write_text(
        'import { everyPath, found, openedTo, rowsOf } from "./rows.mjs";\n'
        'const value = [{ a: [1, { "b c": null }], many: Array(100).fill(0) }];\n'
        "console.log(JSON.stringify({ paths: rowsOf(value, everyPath(value)).slice(0, 6).map((row) => row.path),"
        ' hits: found(value, "B C"), open: [...openedTo(value, 9)], scalar: rowsOf(3, new Set()).length },'
        " (key, one) => (one instanceof Set ? [...one] : one)));\n"
    )
    printed = json.loads(
        subprocess.run([node, tmp_path / "try.mjs"], capture_output=True, text=True, check=True).stdout
    )
    assert printed["paths"] == [".", ".[0]", ".[0].a", ".[0].a[0]", ".[0].a[1]", '.[0].a[1]["b c"]']
    assert printed["hits"]["paths"] == ['.[0].a[1]["b c"]']
    assert ".[0].many" not in printed["open"]
    assert printed["scalar"] == 1
