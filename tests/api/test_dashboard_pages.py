"""The dashboard's pages of runs, the record, incidents, submitting and access, in a real browser on real records."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Serve, Served
    from stenolab.browser import See

    from events.poll import Poll

pytestmark = pytest.mark.slow

Polls = Callable[[str], "tuple[Poll, ...]"]
Record = Callable[[Path, "Sequence[Poll]"], None]


def named(here: Served, name: str) -> dict[str, Any]:
    """The run of that name, as the API has it."""
    found: dict[str, Any] = here.client.get(f"/api/runs/{name}").json()
    return found


def all_pages(here: Served) -> tuple[str, ...]:
    """Every page of this file, with everything that can be shown on it."""
    run = named(here, "retry-run")
    poll, seen = (
        run["evidence"][-1],
        here.client.get("/api/events?type=RunObserved&limit=1").json()["events"][0]["position"],
    )
    return (
        "/runs",
        "/runs?state=failed",
        "/runs?search=nothing-like-it",
        "/runs?user=admin&order=cost&since=2020-01-01",
        *(f"/runs/{run['run_id']}?tab={tab}" for tab in ("why", "cost", "events")),
        "/runs/nobody",
        "/record",
        "/record?show=polls",
        "/record?type=RunObserved",
        f"/record/{poll}",
        f"/record/{seen}",
        "/record/99999999",
        "/incidents",
        "/submit",
        "/submit?what=command",
        "/docs",
        "/docs#submitRun",
        "/login",
    )


# -- every page


@pytest.mark.long  # as test_dashboard_core does of a record that is less odd
def test_no_page_complains_shifts_or_asks_anybody_else(served: Serve, odd_town: Path, see: See) -> None:
    """No error, no violation of the policy, no request off the host, no layout shift; live, and in the past.

    A page of what is not there complains of the 404 that it asked for, and of nothing else.
    """
    here = served(odd_town)
    then = named(here, "retry-run")["transitions"][3]["position"]
    for path in all_pages(here):
        for at in (None, then):
            seen = see(here.url)
            page = seen.go(path if at is None else f"{path}{'&' if '?' in path else '?'}at={at}")
            page.wait_for_timeout(200)
            number = re.fullmatch(r"/record/(\d+)", path)
            is_missing = "nobody" in path or (number is not None and int(number[1]) > (at or 9999))
            assert [said for said in seen.complaints if not (is_missing and "status of 404" in said)] == [], (path, at)
            assert seen.elsewhere() == []
            assert seen.shifted() < 0.02, (path, at)
            page.context.close()


@pytest.mark.long  # test_dashboard_core has every page in both themes, of a record that is less odd
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(scheme: str, served: Serve, odd_town: Path, see: See) -> None:
    """Every rule of axe holds on every page, live and past, in both themes."""
    from axe_playwright_python.sync_playwright import Axe

    here = served(odd_town)
    seen = see(here.url, color_scheme=scheme, reduced_motion="reduce")
    for path in (
        *all_pages(here),
        "/runs?at=2400",
        "/submit?at=2400",
        "/incidents?at=2400",
        f"/runs/{named(here, 'ok-run')['run_id']}?at=2400&tab=output",
    ):
        found = Axe().run(seen.go(path))
        assert found.violations_count == 0, (path, found.generate_report())


def test_a_phone_needs_no_sideways_scroll_on_any_page(served: Serve, odd_town: Path, see: See) -> None:
    """At 360 pixels everything is within the width; what is wider scrolls by itself."""
    here = served(odd_town)
    seen = see(here.url, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    for path in all_pages(here):
        page = seen.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_an_empty_record_is_no_empty_page(served: Serve, empty_record: Path, see: See) -> None:
    """Where nothing happened, every list says so."""
    here = served(empty_record)
    for path in ("/runs", "/record", "/record?show=polls", "/incidents"):
        seen = see(here.url)
        assert seen.go(path).locator(".empty").count() >= 1, path
        assert seen.complaints == []


# -- runs


def test_the_list_of_runs_is_what_the_api_lists(served: Serve, town: Path, see: See) -> None:
    """Every run, newest first, with the words of its verdict; a state or a name narrows it, and a link keeps that."""
    here = served(town)
    seen = see(here.url)
    page = seen.go("/runs")
    told = here.client.get("/api/runs").json()["runs"]
    assert page.locator("tbody a.row").all_inner_texts() == [run["name"] for run in told]
    for number, run in enumerate(told):
        said = page.locator("tbody tr").nth(number).inner_text()
        assert run["state"] in said
        assert run["reason"] in said
    page.get_by_label("State").select_option("failed")
    seen.until("location.search.includes('state=failed')")
    seen.settled()
    failed = [run["name"] for run in told if run["state"] == "failed"]
    assert page.locator("tbody a.row").all_inner_texts() == failed
    page.get_by_label("Search").fill("BAD-run")
    seen.until("location.search.includes('search=BAD-run')")
    seen.settled()
    assert page.locator("tbody a.row").all_inner_texts() == ["bad-run"]
    page.reload()
    seen.settled()
    assert page.locator("tbody a.row").all_inner_texts() == ["bad-run"]
    assert page.get_by_label("Search").input_value() == "BAD-run"
    page.get_by_role("link", name="bad-run").click()
    seen.until("document.title.startsWith('bad-run')")
    assert seen.complaints == []


def test_a_verdict_stands_beside_every_poll_it_rests_on(served: Serve, town: Path, see: See) -> None:
    """The sentence, the rule, each quoted field with its path and value, a link to each poll, what would flip it."""
    here = served(town)
    for name in ("bad-run", "retry-run", "spot-run"):
        run = named(here, name)
        found = here.client.get(f"/api/runs/{run['run_id']}/explain").json()
        page = see(here.url).go(f"/runs/{run['run_id']}")
        said = text_of(page, ".verdict")
        assert found["sentence"] in said
        assert found["rule"] in said
        for quote in found["evidence"]:
            figure = page.locator(".quote").filter(has_text=f"#{quote['position']}")
            fields = {
                group.locator(".quote-parent").inner_text().removesuffix(".") + "." + key: value
                for group in figure.locator(".quote-group").all()
                for key, value in zip(
                    group.locator("dt").all_inner_texts(), group.locator("dd").all_inner_texts(), strict=True
                )
            }
            assert fields == {
                field["path"]: json.dumps(field["value"], ensure_ascii=False) for field in quote["fields"]
            }
            assert figure.get_by_role("link").first.get_attribute("href") == f"/record/{quote['position']}"
        for flip in found["flips"]:
            assert flip.partition(": ")[2] in said
        assert len(found["steps"]) == page.locator(".steps li").count()
        assert run["state"] in text_of(page, ".run-verdict")


def test_the_providers_words_are_never_among_ours(served: Serve, town: Path, see: See) -> None:
    """What the provider reports stands in a panel of its own, word for word, and none of our words is in it."""
    here = served(town)
    run = named(here, "bad-run")
    page = see(here.url).go(f"/runs/{run['run_id']}")
    theirs = page.get_by_role("region", name="What dstack says")
    words = theirs.locator("dd").all_inner_texts()
    job = run["reported"]["jobs"][0]
    assert words[:2] == [run["reported"]["status"], run["reported"]["reason"]]
    assert words[-3:] == [job["status"], job["reason"], str(job["exit_status"])]
    assert run["reason"] not in theirs.inner_text()
    assert theirs.locator(".badge").count() == 0


def test_a_timeline_draws_every_state_attempt_and_blind_gap(served: Serve, odd_town: Path, see: See) -> None:
    """A row a state in order, the attempts apart, the machine's phases below, and what nobody saw hatched and said."""
    here = served(odd_town)
    run = named(here, "retry-run")
    life = here.client.get(f"/api/runs/{run['run_id']}/timeline").json()
    page = see(here.url).go(f"/runs/{run['run_id']}")
    drawn = [row.split(" ")[0] for row in page.locator("table.life th .badge").all_inner_texts()]
    assert drawn == [*(span["state"] for span in life["spans"]), run["state"]]
    assert "attempt 2" in text_of(page, "table.life")
    assert page.locator(".life-machine").count() == len(life["machine"]["phases"])
    away = next(
        run
        for run in here.client.get("/api/runs").json()["runs"]
        if here.client.get(f"/api/runs/{run['run_id']}/timeline").json()["blind"]
    )
    page = see(here.url).go(f"/runs/{away['run_id']}")
    assert "not observed" in text_of(page, ".life-legend")
    assert page.locator("table.life rect[fill^='url(#hatch']").count() >= 1


def test_a_run_in_the_past_is_the_run_as_it_was(served: Serve, town: Path, see: See) -> None:
    """At each transition the page shows that state, offers no stop, and says that output is not in the record."""
    here = served(town)
    run = named(here, "retry-run")
    seen = see(here.url)
    for move in run["transitions"]:
        page = seen.go(f"/runs/{run['run_id']}?at={move['position']}")
        assert text_of(page, ".run-verdict").startswith(move["to"])
        assert "As of" in text_of(page, ".strip")
        assert page.get_by_role("button", name="Stop").count() == 0
    page.get_by_role("tab", name="Output").click()
    assert "not recorded" in text_of(page, "[role=tabpanel]")
    seen.go(f"/runs/{run['run_id']}?at={run['transitions'][0]['position'] - 1}")
    assert "no such run at this moment" in text_of(page, ".empty")
    page.get_by_role("link", name="this run as it is now").click()
    seen.until("document.querySelector('.run-verdict')?.innerText.includes('succeeded')")


def test_a_runs_cost_is_told_line_by_line(served: Serve, town: Path, see: See) -> None:
    """Its charges sum to our figure; the provider's own figure and every difference lead from theirs to ours."""
    from playwright.sync_api import expect

    here = served(town)
    run = named(here, "bad-run")
    costs = here.client.get(f"/api/runs/{run['run_id']}/costs").json()
    page = see(here.url).go(f"/runs/{run['run_id']}?tab=cost")
    expect(page.get_by_role("region", name="Charges").locator("tbody tr")).to_have_count(len(costs["charges"]))
    sums = page.locator("table.sums tr")
    expect(sums).to_have_count(len(costs["reconciliation"]["lines"]) + 2)
    lines = sums.all_inner_texts()
    assert lines[0].startswith("dstack says")
    assert lines[-1].startswith("we say")


# -- the record


def test_the_record_is_paged_both_ways_without_loss(served: Serve, town: Path, see: See) -> None:
    """From the newest to older pages and back, every position once; a type and a stream narrow it."""
    here = served(town)
    seen = see(here.url)
    page = seen.go("/record")
    head = here.client.get("/api/record").json()["position"]

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
    stream = f"run/{named(here, 'ok-run')['run_id']}"
    page.get_by_role("searchbox", name="Stream").fill(stream)
    seen.until("location.search.includes('stream=')")
    told = here.client.get(
        "/api/events", params={"type": "RunObserved", "stream": stream, "limit": 50, "backwards": "true"}
    ).json()
    assert shown() == [event["position"] for event in told["events"]]
    assert seen.complaints == []


def test_any_answer_is_there_word_for_word(served: Serve, town: Path, see: See) -> None:
    """A poll's page holds its answer: copied it is the API's body, found by search, walked by the arrow keys."""
    here = served(town)
    position = named(here, "ok-run")["evidence"][-1]
    body = here.client.get(f"/api/polls/{position}").json()["body"]
    seen = see(here.url, permissions=["clipboard-read", "clipboard-write"])
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


def test_the_last_position_has_no_next_and_the_first_no_previous(served: Serve, town: Path, see: See) -> None:
    """Neighbours end where the record does, also where that is a moment of the past."""
    here = served(town)
    seen = see(here.url)
    head = here.client.get("/api/record").json()["position"]
    for path in (f"/record/{head}", "/record/100?at=100"):
        page = seen.go(path)
        seen.until("document.querySelector('nav[aria-label=Neighbours] button')?.innerText.includes('Next')")
        assert page.get_by_role("link", name="Previous").count() == 1
    assert seen.go("/record/1").get_by_role("link", name="Previous").count() == 0


# -- incidents


def test_an_incident_is_explained_and_leads_to_its_moment(served: Serve, odd_town: Path, see: See) -> None:
    """Each anomaly in a sentence with what to do; blind spots with their lengths; both set the slider to the moment."""
    here = served(odd_town)
    told = here.client.get("/api/incidents").json()
    assert told["anomalies"]
    assert told["blind"]
    seen = see(here.url)
    page = seen.go("/incidents")
    assert page.locator(".incident").count() == len(told["anomalies"])
    newest = told["anomalies"][0]
    first = page.locator(".incident").first
    assert newest["detail"] in first.inner_text()
    assert newest["kind"] in first.inner_text()
    silent = [one for one in here.client.get("/api/overview").json()["sources"] if one["observability"] == "blind"]
    assert page.locator(".gaps li").count() == len(told["blind"]) + len(silent)
    first.get_by_role("button", name="Go to that moment").click()
    seen.until(f"location.search.includes('at={newest['position']}')")
    seen.settled()
    assert page.locator(".incident").count() >= 1
    page.go_back()
    seen.until("!location.search.includes('at=')")
    assert seen.complaints == []


def test_no_page_shows_a_script_that_a_run_was_named_after(served: Serve, town: Path, see: See) -> None:
    """What comes from outside is text: a path that holds markup stays one."""
    seen = see(served(town).url)
    page = seen.go("/runs/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert page.locator("#page img").count() == 0
    assert "<img" in text_of(page, "#page")


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
    said = json.loads(subprocess.run([node, tmp_path / "try.mjs"], capture_output=True, text=True, check=True).stdout)
    assert said["paths"] == [".", ".[0]", ".[0].a", ".[0].a[0]", ".[0].a[1]", '.[0].a[1]["b c"]']
    assert said["hits"]["paths"] == ['.[0].a[1]["b c"]']
    assert ".[0].many" not in said["open"]
    assert said["scalar"] == 1
