"""The dashboard's pages of runs, the record, incidents, submitting and access, in a real browser on real records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import PHONE, text_of

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


SOME_OR_ALL = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])


@pytest.mark.ci
@SOME_OR_ALL
def test_a_phone_needs_no_sideways_scroll_on_a_run_of_slurm(
    whole: bool, served: Serve, polls: Polls, recorded_again: Record, tmp_path: Path, see: See
) -> None:
    """A step quotes a row of a listing, which has no space. Without `long` one run of each verdict and life."""
    for name in ("success", "timeout", "checkpoint"):
        recorded_again(tmp_path / "record.db", polls(f"../slurm-22.05/{name}"))
    here = served(tmp_path / "record.db")
    seen = see(here.url, **PHONE)
    runs = here.client.get("/api/runs?limit=200").json()["runs"]
    alike = {(run["state"], run["reason"], len(run["transitions"]), run["attempts"]): run for run in runs}
    assert {run["state"] for run in alike.values()} == {"succeeded", "finishing", "failed"}
    page = seen.go("/runs")
    for run in runs if whole else alike.values():
        seen.go(f"/runs/{run['run_id']}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, run["name"]


def test_an_unknown_path_is_a_page_for_people_and_a_problem_for_programs(
    served: Serve, empty_record: Path, see: See
) -> None:
    """404 both times; the page leads on; nothing under /api is a page."""
    here = served(empty_record)
    html = {"Accept": "text/html,*/*"}
    answers = [here.client.get(path, headers=html) for path in ("/nosuch", "/runs/a/b", "/api/nosuch")]
    answers.append(here.client.get("/nosuch"))
    assert [answer.status_code for answer in answers] == [404] * 4
    kinds = [answer.headers["content-type"].partition(";")[0] for answer in answers]
    assert kinds == ["text/html", "text/html", "application/problem+json", "application/problem+json"]
    assert here.client.post("/nosuch", headers=html).status_code in {403, 404}
    seen = see(here.url)
    page = seen.go("/nosuch?x=1")
    assert "There is no page /nosuch" in text_of(page, "#page")
    page.get_by_role("navigation", name="All pages").get_by_role("link", name="Runs").click()
    seen.until("document.title.includes('Runs')")


# -- runs


@pytest.mark.ci
def test_an_empty_record_and_a_missing_thing_are_said_plainly(served: Serve, empty_record: Path, see: See) -> None:
    """Where nothing happened every page says so and names a command; a missing thing is said in words, not as a status
    of HTTP with a button that cannot help.
    """
    seen = see(served(empty_record).url)
    page = seen.go("/runs")
    for path in ("/runs", "/record", "/record?show=polls", "/incidents"):
        seen.go(path)
        assert page.locator(".empty").count() >= 1, path
    assert "No source has been polled" in text_of(page, "#page")
    for path in ("/", "/machines", "/costs"):
        seen.go(path)
        assert page.locator(".empty code").first.inner_text().startswith(("steno ", "STENO_")), path
    assert seen.complaints == []
    for kind in ("run", "machine"):
        seen.go(f"/{kind}s/nobody")
        words = page.get_by_text(f"The record has no {kind} nobody.")
        words.wait_for()
        assert "404" not in text_of(words.page, "main")
    seen.go("/record/99999999").get_by_text("There is no such position.").wait_for()


@pytest.mark.ci
def test_the_list_of_runs_is_what_the_api_lists(towned: Served, see: See) -> None:
    """Every run, newest first, with the words of its verdict; a state or a name narrows it, and a link keeps that."""
    seen = see(towned.url)
    page = seen.go("/runs")
    runs = towned.client.get("/api/runs").json()["runs"]
    assert page.locator("tbody a.row").all_inner_texts() == [run["name"] for run in runs]
    for number, run in enumerate(runs):
        text = page.locator("tbody tr").nth(number).inner_text()
        assert run["state"] in text
        assert run["reason"] in text
    page.get_by_label("State").select_option("failed")
    seen.until("location.search.includes('state=failed')")
    seen.settled()
    failed = [run["name"] for run in runs if run["state"] == "failed"]
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
    seen.until("document.title.includes('bad-run')")
    assert seen.complaints == []


def test_a_verdict_stands_beside_every_poll_it_rests_on(towned: Served, see: See) -> None:
    """The sentence, the rule, each quoted field with its path and value, a link to each poll, what would flip it."""
    for name in ("bad-run", "retry-run", "spot-run"):
        run = named(towned, name)
        explanation = towned.client.get(f"/api/runs/{run['run_id']}/explain").json()
        page = see(towned.url).go(f"/runs/{run['run_id']}?tab=why")
        text = text_of(page, ".verdict")
        assert explanation["sentence"].replace("`", "") in text
        assert explanation["rule"] in text
        for quote in explanation["evidence"]:
            figure = page.locator(".verdict .quote").filter(has_text=f"#{quote['position']}")
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
        for flip in explanation["flips"]:
            assert flip.partition(": ")[2] in text
        assert len(explanation["steps"]) == page.locator(".steps li").count()
        assert run["state"] in text_of(page, ".run-verdict")


def test_the_providers_words_are_never_among_ours(towned: Served, see: See) -> None:
    """The words of the provider stand in a panel of its own, word for word, and none of our words is in it."""
    run = named(towned, "bad-run")
    page = see(towned.url).go(f"/runs/{run['run_id']}?tab=why")
    theirs = page.get_by_role("region", name="What dstack says")
    words = theirs.locator("dd").all_inner_texts()
    job = run["reported"]["jobs"][0]
    assert words[:2] == [run["reported"]["status"], run["reported"]["reason"]]
    assert words[-3:] == [job["status"], job["reason"], str(job["exit_status"])]
    assert run["reason"] not in theirs.inner_text()
    assert theirs.locator(".badge").count() == 0


def test_a_timeline_draws_every_state_attempt_and_blind_gap(odd_towned: Served, see: See) -> None:
    """A row a state in order, the attempts apart, the machine's phases below, and what nobody saw hatched and said."""
    run = named(odd_towned, "retry-run")
    life = odd_towned.client.get(f"/api/runs/{run['run_id']}/timeline").json()
    page = see(odd_towned.url).go(f"/runs/{run['run_id']}")
    drawn = [row.split(" ")[0] for row in page.locator("table.life th .badge").all_inner_texts()]
    assert drawn == [*(span["state"] for span in life["spans"]), run["state"]]
    assert "attempt 2" in text_of(page, "table.life")
    assert page.locator(".life-machine").count() == len(life["machine"]["phases"])
    away = next(
        run
        for run in odd_towned.client.get("/api/runs").json()["runs"]
        if odd_towned.client.get(f"/api/runs/{run['run_id']}/timeline").json()["blind"]
    )
    page = see(odd_towned.url).go(f"/runs/{away['run_id']}")
    kinds = {gap["kind"] for gap in odd_towned.client.get(f"/api/runs/{away['run_id']}/timeline").json()["blind"]}
    legends = page.locator(".life-legend").all_inner_texts()
    assert [legend.strip().startswith(("no answer from", "not polled from")) for legend in legends] == [True] * len(
        kinds
    )
    assert page.locator("table.life rect[fill^='url(#hatch']").count() >= 1


def test_a_timeline_is_zoomed_and_its_bars_say_what_they_are(towned: Served, see: See) -> None:
    """Buttons and a drag show a stretch of it; a bar is told on focus and leads to the poll that began it."""
    run = named(towned, "ok-run")
    seen = see(towned.url)
    page = seen.go(f"/runs/{run['run_id']}")
    whole = text_of(page, ".life-axis .right")
    page.get_by_role("button", name="Zoom in").click()
    seen.until(f"document.querySelector('.life-axis .right').innerText !== {whole!r}")
    page.get_by_role("button", name="Later").click()
    page.get_by_role("button", name="Whole run").click()
    seen.until(f"document.querySelector('.life-axis .right').innerText === {whole!r}")
    bar = page.locator("a.life-link").first
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 8, steps=4)
    page.mouse.up()
    seen.until(f"document.querySelector('.life-axis .right').innerText !== {whole!r}")
    assert f"/runs/{run['run_id']}" in page.url, "a drag is not a click"
    bar.focus()
    first = run["transitions"][0]
    assert f"began with #{first['position']}" in text_of(page, ".tip")
    page.keyboard.press("Enter")
    seen.until(f"location.pathname === '/record/{first['position']}'")
    assert seen.complaints == []


@SOME_OR_ALL
def test_a_run_in_the_past_is_the_run_as_it_was(whole: bool, towned: Served, see: See) -> None:
    """At each transition (without `long` at each third) the page shows that state, offers no stop, and says that output
    is shown as it is now.
    """
    run = named(towned, "retry-run")
    seen = see(towned.url)
    page = seen.go(f"/runs/{run['run_id']}?at={run['transitions'][0]['position']}")
    for move in run["transitions"][:: 1 if whole else 3]:
        seen.go(f"/runs/{run['run_id']}?at={move['position']}")
        assert text_of(page, ".run-verdict").startswith(move["to"])
        assert "As of" in text_of(page, ".strip")
        assert page.get_by_role("button", name="Stop").count() == 0
    page.get_by_role("tab", name="Output").click()
    assert "shown as it is now" in text_of(page, "[role=tabpanel]")
    seen.go(f"/runs/{run['run_id']}?at={run['transitions'][0]['position'] - 1}")
    assert "no such run at this moment" in text_of(page, ".empty")
    page.get_by_role("link", name="this run as it is now").click()
    seen.until("document.querySelector('.run-verdict')?.innerText.includes('succeeded')")


def test_a_past_moment_is_shown_as_it_was_known_or_as_it_is_known_now(
    served: Serve, polls: Polls, recorded_again: Record, tmp_path: Path, see: See
) -> None:
    """A job that Slurm says ended at 225 was polled as ended later. The address holds which of the two is shown, and
    links keep it; live, there is no choice.
    """
    recorded_again(tmp_path / "record.db", polls("../slurm-22.05/fanout_one_winner"))
    here = served(tmp_path / "record.db")
    (run,) = here.client.get("/api/runs?name=fan&state=running&at=225").json()["runs"]
    seen = see(here.url)
    page = seen.go(f"/runs/{run['run_id']}?at=225")
    assert text_of(page, ".run-verdict").startswith("running")
    page.get_by_role("button", name="Known now", pressed=False).click()
    seen.until("document.querySelector('.run-verdict')?.innerText.startsWith('succeeded')")
    assert page.evaluate("location.search") == "?at=225&known=now"
    page.get_by_role("link", name="Runs", exact=True).first.click()
    seen.until("location.pathname + location.search === '/runs?at=225&known=now'")
    page.go_back()
    page.get_by_role("button", name="Known now", pressed=True).click()
    seen.until("document.querySelector('.run-verdict')?.innerText.startsWith('running')")
    page.get_by_role("button", name="Known now").click()
    page.get_by_role("button", name="Back to live").click()
    seen.until("location.search === ''")
    assert page.get_by_role("button", name="Known now").count() == 0
    assert seen.complaints == []


def test_the_table_of_a_chart_is_of_the_moment_that_is_drawn(towned: Served, see: See) -> None:
    """The address of its CSV has the moment and by when it is known; both answer."""
    at = towned.client.get("/api/record").json()["position"] - 1
    page = see(towned.url).go(f"/costs?at={at}&known=now")
    links = page.locator("a[download]")
    links.first.wait_for()
    addresses = [str(link.get_attribute("href")) for link in links.all()]
    assert all(f"at={at}&known=now" in address for address in addresses), addresses
    assert {towned.client.get(address).status_code for address in addresses} == {200}


def test_a_runs_cost_is_told_line_by_line(towned: Served, see: See) -> None:
    """Its charges sum to our figure; the provider's own figure and every difference lead from theirs to ours."""
    from playwright.sync_api import expect

    run = named(towned, "bad-run")
    costs = towned.client.get(f"/api/runs/{run['run_id']}/costs").json()
    page = see(towned.url).go(f"/runs/{run['run_id']}?tab=cost")
    expect(page.get_by_role("region", name="Charges").locator("tbody tr")).to_have_count(len(costs["charges"]))
    sums = page.locator("table.sums tr")
    expect(sums).to_have_count(len(costs["reconciliation"]["lines"]) + 2)
    lines = sums.all_inner_texts()
    assert lines[0].startswith("dstack says")
    assert lines[-1].startswith("we say")


# -- incidents


def test_an_incident_is_explained_and_leads_to_its_moment(odd_towned: Served, see: See) -> None:
    """Each anomaly in a sentence with what to do; blind spots with their lengths; both set the slider to the moment."""
    incidents = odd_towned.client.get("/api/incidents").json()
    assert incidents["anomalies"]
    assert incidents["blind"]
    seen = see(odd_towned.url)
    page = seen.go("/incidents")
    assert page.locator(".incident").count() == len(incidents["anomalies"])
    newest = incidents["anomalies"][0]
    first = page.locator(".incident").first
    assert newest["detail"] in first.inner_text()
    assert newest["kind"] in page.locator(".kind").first.inner_text()
    now = {
        source["name"]: source["blind"]
        for source in odd_towned.client.get("/api/overview").json()["sources"]
        if source["observability"] == "blind"
    }
    assert {gap["source"]: gap["kind"] for gap in incidents["blind"] if gap["to"] is None} == now
    assert set(now.values()) == {"not_polled"}, "nobody adds to this record"
    rows = page.locator(".gaps li").all_inner_texts()
    assert len(rows) == len(incidents["blind"])
    for row, gap in zip(rows, incidents["blind"], strict=True):
        assert {"no_answer": "no answer", "not_polled": "not polled"}[gap["kind"]] in row
    first.get_by_role("button", name="Go to that moment").click()
    seen.until(f"location.search.includes('at={newest['position']}')")
    seen.settled()
    assert page.locator(".incident").count() >= 1
    page.go_back()
    seen.until("!location.search.includes('at=')")
    assert seen.complaints == []


def test_no_page_shows_a_script_that_a_run_was_named_after(towned: Served, see: See) -> None:
    """Text from outside is text: a path that holds markup stays one."""
    seen = see(towned.url)
    page = seen.go("/runs/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert page.locator("#page img").count() == 0
    assert "<img" in text_of(page, "#page")
