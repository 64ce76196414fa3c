"""Every page of the dashboard in a real browser: axe finds nothing on it, and it fits a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import PHONE
from stenotest.shared_pages import violations

if TYPE_CHECKING:
    from conftest import Served
    from stenolab.browser import See, Seen

pytestmark = pytest.mark.slow


def named(here: Served, name: str) -> dict[str, Any]:
    """The run of that name, as the API has it."""
    run: dict[str, Any] = here.client.get(f"/api/runs/{name}").json()
    return run


def all_pages(here: Served) -> tuple[str, ...]:
    """Every page, with everything that can be shown on it."""
    run, other = named(here, "retry-run"), named(here, "bad-run")
    poll, seen = (
        run["evidence"][-1],
        here.client.get("/api/events?type=RunObserved&limit=1").json()["events"][0]["position"],
    )
    return (
        "/",
        "/runs",
        "/runs?state=failed",
        "/runs?search=nothing-like-it",
        "/runs?user=admin&order=cost&since=2020-01-01",
        *(f"/runs/{run['run_id']}?tab={tab}" for tab in ("why", "cost", "events")),
        f"/runs/{run['run_id']}?from={other['run_id']}",
        "/runs/nobody",
        f"/compare?a={run['run_id']}&b={other['run_id']}",
        f"/compare?a={run['run_id']}",
        "/compare",
        "/machines",
        f"/machines/{here.client.get('/api/vms').json()['vms'][0]['vm_id']}",
        "/machines/nobody",
        "/costs",
        "/kernels",
        "/record",
        "/record?show=polls",
        "/record?type=RunObserved",
        f"/record/{poll}",
        f"/record/{seen}",
        "/record/99999999",
        "/incidents",
        "/cases",
        "/changes?hours=720",
        "/report?month=2026-11",
        "/report?month=2020-01",
        "/cases?case=1",
        "/submit",
        "/submit?what=command",
        "/docs",
        "/docs#submitRun",
        "/admin",
        "/admin?show=audit",
        "/admin?show=tokens",
        "/login",
        "/nosuch",
    )


DESK: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}}
ALIKE = (
    "state=", "search=nothing", "user=", "tab=events", "?from=", "?at=1200", "type=", "/machines/nobody", "/compare?a=",
    "#submitRun", "/docs", "/runs?at=", "/admin?", "/incidents?at=", "/kernels",
)  # fmt: skip
"""In the paths of pages that are shown by the same code as another page of the list, with other rows."""


COLOURFUL = ("tab=why", "tab=cost", "/record/9", "/incidents", "what=command", "/costs", "/login")
"""In the paths of pages that together have every colour, for `make test`."""


def kinds(paths: tuple[str, ...]) -> tuple[str, ...]:
    """A page of each kind, without those that are like another page."""
    return tuple(path for path in paths if "&b=" in path or not any(part in path for part in ALIKE))


def live_and_past(here: Served) -> tuple[str, ...]:
    return (
        *all_pages(here),
        "/runs?at=2400",
        "/submit?at=2400",
        "/incidents?at=2400",
        "/admin?at=2400",
        "/?at=2400",
        "/?at=99999999",
        "/?at=1200",
        "/machines?at=1200",
        "/costs?at=1200",
        "/?keys",
        f"/runs/{named(here, 'ok-run')['run_id']}?at=2400&tab=output",
    )


def complains(seen: Seen, path: str) -> list[str]:
    """The complaints of a page; but a page of a missing thing may complain of its 404."""
    is_missing = "nobody" in path or "99999999" in path or path == "/nosuch"
    return [text for text in seen.complaints if not (is_missing and "status of 40" in text)]


@pytest.mark.ci
def test_axe_finds_nothing_on_a_page_of_each_kind(odd_towned: Served, see: See) -> None:
    """In turn in both themes, on a desk and as narrow as a phone, where nothing is wider than 360 pixels either; none
    complains or asks anybody else. Colours are looked at on some; `long` has all, and the reference of the API.
    """
    seen = see(odd_towned.url, reduced_motion="reduce", **DESK)
    page = seen.go("/")
    for number, path in enumerate(kinds(live_and_past(odd_towned))):
        narrow = number % 2 == 1
        page.emulate_media(color_scheme="dark" if number % 4 in (1, 2) else "light")
        seen.go(path)
        if path == "/?keys":
            page.keyboard.press("?")
            page.get_by_role("dialog", name="Keys").wait_for()
        colours = any(part in path for part in COLOURFUL) or path == "/"
        wide = [] if narrow else violations(seen, colours=colours)
        page.set_viewport_size(PHONE["viewport"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert (wide or (violations(seen, colours=colours) if narrow else [])) == [], path
        page.set_viewport_size(DESK["viewport"])
        assert complains(seen, path) == [], path
        seen.complaints.clear()
        page.keyboard.press("Escape")
    assert seen.elsewhere() == []


@pytest.mark.long
def test_axe_finds_nothing_on_any_page_and_none_complains(odd_towned: Served, see: See) -> None:
    """Every rule of axe holds on every page, live and past, in both themes, on a desk and on a phone; nothing is wider
    than the screen or than 360 pixels, complains or comes from elsewhere; on a desk nothing shifts.
    """
    from axe_playwright_python.sync_playwright import Axe

    looks = [
        see(odd_towned.url, color_scheme=scheme, reduced_motion="reduce", **size)
        for size, scheme in ((DESK, "light"), (PHONE, "dark"), (DESK, "dark"), (PHONE, "light"))
    ]
    for path in live_and_past(odd_towned):
        for seen in looks:
            seen.page.goto("about:blank")
            seen.complaints.clear()
            page = seen.go(path)
            assert complains(seen, path) == [], path
            assert seen.elsewhere() == []
            page_size = page.viewport_size or DESK["viewport"]
            width = page_size["width"]
            assert width < 1000 or seen.shifted() < 0.02, path
            if path == "/?keys":
                page.keyboard.press("?")
                page.get_by_role("dialog", name="Keys").wait_for()
            report = Axe().run(page, options={"reporter": "no-passes"})
            assert report.violations_count == 0, (path, page.viewport_size, report.generate_report())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            page.set_viewport_size(PHONE["viewport"])
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            page.set_viewport_size(page_size)
