"""Finding runs on the dashboard: filters in the address, what ran on the page of a run; in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.browser import text_of

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.browser import See

pytestmark = pytest.mark.slow


def test_a_filtered_view_can_be_shared(served: Serve, town: Path, see: See) -> None:
    """Every filter and the order are in the address, and lead to the same runs elsewhere; they can be cleared."""
    here = served(town)
    seen = see(here.url)
    page = seen.go("/runs")
    page.get_by_text("More filters").click()
    page.get_by_label("Reason").select_option("exit_nonzero")
    seen.until("location.search.includes('reason=exit_nonzero')")
    page.get_by_label("Source").select_option(index=1)
    seen.until("location.search.includes('source=')")
    page.get_by_label("Submitted from").fill("2025-01-02")
    seen.until("location.search.includes('since=2025-01-02')")
    page.get_by_label("Order").select_option("name")
    seen.until("location.search.includes('order=name')")
    seen.settled()
    query = page.evaluate("location.search")
    shown = page.locator("tbody a.row").all_inner_texts()
    source = page.get_by_label("Source").input_value()
    asked = {"reason": "exit_nonzero", "source": source, "since": "2025-01-02", "sort": "name"}
    told = here.client.get("/api/runs", params=asked).json()["runs"]
    assert shown == [run["name"] for run in told] != []

    other = see(here.url)
    page = other.go(f"/runs{query}")
    assert page.locator("tbody a.row").all_inner_texts() == shown
    assert page.get_by_label("Reason").input_value() == "exit_nonzero"
    page.get_by_role("button", name="Clear filters").click()
    other.until("!location.search.includes('reason')")
    other.settled()
    assert page.locator("tbody a.row").count() == len(here.client.get("/api/runs").json()["runs"])
    page = other.go("/runs?user=nobody")
    assert "unknown user 'nobody'; known: " in text_of(page, "#page")
    assert seen.complaints == []


def test_the_page_of_a_run_says_what_ran(served: Serve, town: Path, see: See) -> None:
    """Command, image, GPU, for whom; the list has the command's beginning."""
    here = served(town)
    seen = see(here.url)
    page = seen.go("/runs?search=ok-run")
    assert "echo hello; sleep 8; echo bye" in text_of(page, "tbody")
    page = seen.go(f"/runs/{here.client.get('/api/runs/ok-run').json()['run_id']}")
    assert page.get_by_role("region", name="Command").inner_text() == "echo hello\nsleep 8\necho bye"
    said = text_of(page, ".run-facts")
    assert all(one in said for one in ("rocm/dev-ubuntu-24.04", "MI300X:1", "admin", "dstack/"))
    assert seen.complaints == []


def test_the_address_of_the_runs_page_is_what_the_api_is_asked(tmp_path: Path) -> None:
    """Filters as they are, a day as a whole, an order as `sort` or `order`; what is unknown is left out."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: `apt-get install nodejs`")
    rows = Path(__file__).parent.parent.parent / "projections/dashboard/assets/js/pages/runs/filters.js"
    (tmp_path / "filters.mjs").write_text(rows.read_text())
    (tmp_path / "try.mjs").write_text(
        'import { asked, given, several } from "./filters.mjs";\n'
        'const queries = ["", "?search=.*%5B&state=failed&other=1&at=5", "?until=2026-11-20&order=cost",'
        ' "?order=oldest&cursor=1.2.a", "?order=toString"];\n'
        "const said = queries.map((one) => `${asked(given(one))}`);\n"
        "console.log(JSON.stringify([...said, [...several(['a', 'b', 'a'])]]));\n"
    )
    said = json.loads(subprocess.run([node, tmp_path / "try.mjs"], capture_output=True, text=True, check=True).stdout)
    assert said == [
        "limit=50",
        "limit=50&search=.*%5B&state=failed",
        "limit=50&until=2026-11-20T23%3A59%3A59.999999Z&sort=cost",
        "limit=50&cursor=1.2.a&order=oldest",
        "limit=50",
        ["a"],
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme: str, served: Serve, town: Path, see: See) -> None:
    """With filters open, with none found, with an unknown one, and on the page of a run; wide and on a phone."""
    from axe_playwright_python.sync_playwright import Axe

    here = served(town)
    run = here.client.get("/api/runs/ok-run").json()["run_id"]
    for width in (1440, 390):
        seen = see(here.url, color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 900})
        for path in ("/runs", "/runs?reason=exit_nonzero&order=cost", "/runs?search=nothing-like-it", f"/runs/{run}"):
            page = seen.go(path)
            found = Axe().run(page)
            assert found.violations_count == 0, (path, found.generate_report())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate("window.shifts.reduce((sum, one) => sum + one, 0)") < 0.01, path
