"""The dashboard's leaderboards, and what the page of a kernel's run shows, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import text_of
from stenolab.dashboard import told
from stenotest.kernel_record import ToldTime, kernel_record
from stenotest.shared_pages import violations

if TYPE_CHECKING:
    from conftest import Serve, Served
    from playwright.sync_api import Page
    from stenolab.browser import See

pytestmark = pytest.mark.ci

CHEAT = "its clock says 0.020000 ms for a call, the judge's 43.100000 ms"
DAY = 86400
H100 = "vector-add · H100 · float32 · 4 processors"
MI300X = "vector-add · MI300X · float32 · 4 processors"


def kernels() -> list[ToldTime]:
    """Two weeks of kernels: fourteen on one board, two on another, two cheats, an unproven and a failing kernel."""
    times = [
        ToldTime(
            name=f"add-{number:02}",
            at=number * DAY,
            median=0.9 * 0.8**number,
            submitter="grace" if number % 3 else "ada",
        )
        for number in range(14)
    ]
    return [
        *times,
        ToldTime(name="first-h100", at=3600, median=0.3, gpu="H100", host="gpu-h100"),
        ToldTime(name="next-h100", at=2 * DAY + 3600, median=0.4, gpu="H100", host="gpu-h100"),
        ToldTime(name="cheat", at=3 * DAY + 3600, end="CHEATING_SUSPECTED", message=CHEAT, gpu="H100"),
        ToldTime(name="same", at=4 * DAY + 3600, result={"batches": []}),
        ToldTime(name="odd", at=5 * DAY + 3600, result={"median_ms": 0.1}),
        ToldTime(name="broken", at=6 * DAY + 3600, end="COMPILE_ERROR", message="a.hip:1: expected ;\n  1 | oops"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their record."""
    return kernel_record(tmp_path_factory.mktemp("kernels") / "kernels.db", kernels())


@pytest.fixture(scope="module")
def here(served_on: Serve, record: Path) -> Served:
    """Its service, which no test changes anything of."""
    return served_on(record)


def board(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def test_the_boards_are_those_of_the_api(here: Served, see: See) -> None:
    """A panel for each problem, GPU and dtype, its places in order, with time, evidence, machine and start."""
    seen = see(here.url, viewport={"width": 1440, "height": 900})
    page = seen.go("/kernels")
    leaderboard = told(here.client, "/api/kernels/leaderboard")
    assert page.locator("h2.plain").all_inner_texts() == [H100, MI300X]
    for wanted in leaderboard["boards"]:
        panel = board(page, f"{wanted['problem']} · {wanted['gpu']} · {wanted['dtype']} · {wanted['cpus']} processors")
        rows = panel.locator("table").first.locator("tbody tr")
        assert rows.locator("a.row").all_inner_texts() == [place["kernel"]["name"] for place in wanted["places"]]
        text, best = rows.first.inner_text(), wanted["places"][0]["kernel"]
        for word in (best["submitter"], best["machine"], best["start"], "hip", "0.002374 ms ("):
            assert word in text
    text = board(page, H100).locator("tbody tr").first.inner_text()
    assert "0.3 ms" in text
    assert "0.2941–0.3059 ms" in text, "its interval"
    assert seen.complaints == []
    assert seen.elsewhere() == []
    assert seen.shifted() < 0.02


def test_what_is_suspected_or_unproven_stands_apart(here: Served, see: See) -> None:
    """In plain words, with what was seen; the same words are in the list of runs and on the run's page."""
    seen = see(here.url)
    page = seen.go("/kernels")
    cheats = page.get_by_role("region", name="Suspected of cheating")
    assert cheats.locator("tbody a.row").all_inner_texts() == ["cheat"]
    results = [text.split("\n")[-1] for text in cheats.locator("tbody .badge").all_inner_texts()]
    assert results == ["cheating suspected"]
    assert CHEAT in cheats.inner_text()
    unproven = page.get_by_role("region", name="Not proven")
    assert unproven.locator("tbody a.row").all_inner_texts() == ["odd", "same"]
    assert "its median_ms is" in unproven.inner_text()
    seen.go("/runs?name=cheat")
    assert "failed · cheating suspected · exit 1" in text_of(page, "tbody tr")
    page.get_by_role("link", name="cheat").click()
    seen.until("document.title.includes('cheat')")
    seen.settled()
    assert text_of(page, ".run-verdict") == "failed · cheating suspected · exit 1"
    assert "CHEATING_SUSPECTED" not in text_of(page, ".kernel")
    assert CHEAT in text_of(page, ".kernel .facts")


def test_filters_are_in_the_address_and_any_takes_them_away(here: Served, see: See) -> None:
    """A reload and the way back keep them; every value of any kernel can be chosen; of nothing the page says so."""
    seen = see(here.url)
    page = seen.go("/kernels")
    page.get_by_label("GPU").select_option("H100")
    seen.until("location.search === '?gpu=H100'")
    seen.until("document.querySelectorAll('h2.plain').length === 1")
    page.reload()
    seen.settled()
    assert page.locator("h2.plain").all_inner_texts() == [H100]
    assert page.get_by_role("region", name="Suspected of cheating").locator("tbody a.row").all_inner_texts() == [
        "cheat"
    ]
    seen.until("document.querySelectorAll('.filters select')[1].options.length === 3")
    page.get_by_label("GPU").select_option("MI300X")
    seen.until("document.querySelector('h2.plain').innerText.includes('MI300X')")
    page.get_by_label("GPU").select_option("")
    seen.until("location.search === '' && document.querySelectorAll('h2.plain').length === 2")
    page = seen.go("/kernels?dtype=int32")
    page.get_by_role("button", name="Show all kernels").click()
    seen.until("document.querySelectorAll('h2.plain').length === 2")
    assert seen.complaints == []


def test_a_long_board_shows_its_best_and_then_all(here: Served, see: See) -> None:
    """Ten places; the button shows the slower kernels."""
    seen = see(here.url)
    panel = board(seen.go("/kernels?gpu=MI300X"), MI300X)
    assert panel.locator("table").first.locator("tbody tr").count() == 10
    assert "4 slower times" in panel.inner_text()
    panel.get_by_role("button", name="Show up to 500").click()
    seen.until("document.querySelector('.panel table').tBodies[0].rows.length === 14")
    assert panel.get_by_role("button", name="Show up to 500").count() == 0


def test_the_plot_and_its_table_have_every_submission(here: Served, see: See) -> None:
    """A dot each in order, the records marked; the table is opened with the keyboard and its rows are links."""
    seen = see(here.url)
    page = seen.go("/kernels?gpu=H100")
    panel = board(page, H100)
    plot = panel.get_by_role("img")
    label = plot.get_attribute("aria-label") or ""
    assert "Times of 2 submissions from 2025-12-15 to 2025-12-17: the first 0.3 ms, the best 0.3 ms" in label
    assert (plot.locator("circle").count(), plot.locator("circle.record").count()) == (2, 1)
    summary = panel.locator("summary")
    summary.focus()
    page.keyboard.press("Enter")
    rows = panel.locator("details tbody tr")
    rows.first.wait_for()
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["next-h100", "first-h100"]
    assert "0.4 ms" in rows.first.inner_text()
    assert "0.3 ms" in rows.first.inner_text(), "best so far"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "next-h100"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    seen.until("document.title.includes('first-h100')")


def test_a_kernels_run_shows_its_story_and_leads_to_its_board(here: Served, see: See) -> None:
    """Statuses, tests, times with their evidence; any other run has none of it, and asks for none."""
    from playwright.sync_api import expect

    seen = see(here.url)
    page = seen.go("/runs/first-h100")
    part = page.locator(".kernel")
    statuses = told(here.client, "/api/kernels/first-h100")["statuses"]
    expect(part.get_by_role("region", name="Statuses").locator("tbody tr")).to_have_count(len(statuses))
    assert "1 of 1 passed" in part.get_by_role("region", name="Tests").inner_text()
    times = part.get_by_role("region", name="Benchmarks").locator("tbody tr").inner_text().split("\t")
    assert [text.strip() for text in times] == [
        "1", "N=4194304", "0.3 ms", "0.2976 ms", "0.3024 ms", "0.6 %", "0.2941–0.3059 ms", "–",
        "0.01 ms", "0.002374 ms (0.8 %)", "1,000",
    ]  # fmt: skip
    page.get_by_role("link", name="Leaderboard of vector-add on H100").click()
    seen.until("location.pathname === '/kernels'")
    seen.settled()
    expect(page.locator("h2.plain")).to_have_text([H100])
    assert seen.page.url.endswith("?problem=vector-add&gpu=H100&dtype=float32")
    seen.go("/runs/broken")
    assert "a.hip:1: expected ;\n  1 | oops" in page.get_by_role("region", name="Compiler output").inner_text()
    assert seen.complaints == []


def test_a_run_that_is_no_kernel_is_not_asked_for_one(served: Serve, town: Path, see: See) -> None:
    """Its page has no such part."""
    seen = see(served(town).url)
    page = seen.go("/runs/ok-run")
    assert page.get_by_role("region", name="Kernel", exact=True).count() == 0
    assert not [url for url in seen.asked if "/api/kernels" in url]


def test_a_moment_past_has_the_boards_of_then(here: Served, see: See) -> None:
    """Before the second time of a board there is one place and nothing to plot; before the first no board."""
    end = told(here.client, "/api/kernels/first-h100")["statuses"][-1]["position"]
    seen = see(here.url)
    page = seen.go(f"/kernels?at={end}&gpu=H100")
    panel = board(page, H100)
    assert panel.locator("tbody a.row").all_inner_texts() == ["first-h100"]
    assert panel.locator("svg[role=img]").count() == 0
    assert page.get_by_role("link", name="Submit", exact=True).count() == 1, "the navigation's alone"
    page = seen.go("/kernels?at=1")
    assert "No times at this moment" in text_of(page, ".empty")
    assert seen.complaints == []


def test_a_new_time_appears_by_itself(served: Serve, tmp_path: Path, see: See) -> None:
    """Without a reload, at its place."""
    record = kernel_record(tmp_path / "kernels.db", kernels()[:2])
    seen = see(served(record).url)
    page = seen.go("/kernels")
    assert page.locator("tbody a.row").first.inner_text() == "add-01"
    kernel_record(record, [ToldTime(name="newest", at=20 * DAY, median=0.1)])
    seen.until("document.querySelector('tbody a.row').innerText === 'newest'")
    assert seen.complaints == []


def test_the_keyboard_goes_to_the_page_and_its_filter(here: Served, see: See) -> None:
    """`g k`, then `/`; a phone's navigation shows it."""
    seen = see(here.url)
    page = seen.go("/runs")
    page.keyboard.press("g")
    page.keyboard.press("k")
    seen.until("document.title.includes('Kernels')")
    seen.settled()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    phone = see(here.url, viewport={"width": 390, "height": 800})
    phone.go("/kernels")
    phone.until(
        "(({ right }) => right <= document.querySelector('.nav').getBoundingClientRect().right + 1)"
        "(document.querySelector('.nav [aria-current]').getBoundingClientRect())"
    )


PATHS = ("/kernels", "/kernels?dtype=int32", "/runs/add-13", "/runs/same", "/runs/broken", "/runs/cheat")


def test_axe_finds_nothing_and_a_phone_is_wide_enough(here: Served, see: See) -> None:
    """With the table of the plot open; each page once, in turn in both themes; `long` has the colours of all."""
    seen = see(here.url, reduced_motion="reduce", viewport={"width": 390, "height": 900})
    page = seen.go("/runs")
    for number, path in enumerate(PATHS):
        page.emulate_media(color_scheme=("light", "dark")[number % 2])
        seen.go(path)
        if path == "/kernels":
            page.locator("summary").first.click()
        assert violations(seen, colours=number % 3 == 0) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


@pytest.mark.long
def test_axe_finds_nothing_and_nothing_scrolls_sideways(here: Served, see: See) -> None:
    """In both themes, with the table of the plot open; the boards and the page of a kernel fit a desk and a phone, and
    do not shift.
    """
    from axe_playwright_python.sync_playwright import Axe

    looks = [
        see(here.url, color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 900})
        for width, scheme in ((1440, "dark"), (390, "light"), (390, "dark"), (1440, "light"))
    ]
    for path in PATHS:
        for seen in looks:
            seen.page.goto("about:blank")
            page = seen.go(path)
            assert seen.shifted() < 0.02, path
            if path == "/kernels":
                page.locator("summary").first.click()
            report = Axe().run(page, options={"reporter": "no-passes"})
            assert report.violations_count == 0, (path, report.generate_report())
            width = (page.viewport_size or {"width": 0})["width"]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_an_empty_record_says_how_to_begin(served: Serve, empty_record: Path, see: See) -> None:
    """With commands to type."""
    seen = see(served(empty_record).url)
    page = seen.go("/kernels")
    assert re.match("steno kernel problems", page.locator(".empty code").first.inner_text())
    assert seen.complaints == []
