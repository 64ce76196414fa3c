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
    from conftest import Serve, Served, Starts
    from playwright.sync_api import Locator
    from stenolab.browser import See

pytestmark = pytest.mark.slow


@pytest.mark.ci
def test_a_filtered_view_can_be_shared(towned: Served, see: See) -> None:
    """Every filter and the order are in the address, and lead to the same runs elsewhere; they can be cleared."""
    seen = see(towned.url)
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
    names = page.locator("tbody a.row").all_inner_texts()
    source = page.get_by_label("Source").input_value()
    filters = {"reason": "exit_nonzero", "source": source, "since": "2025-01-02", "sort": "name"}
    runs = towned.client.get("/api/runs", params=filters).json()["runs"]
    assert names == [run["name"] for run in runs] != []

    other = see(towned.url)
    page = other.go(f"/runs{query}")
    assert page.locator("tbody a.row").all_inner_texts() == names
    assert page.get_by_label("Reason").input_value() == "exit_nonzero"
    page.get_by_role("button", name="Clear filters").click()
    other.until("!location.search.includes('reason')")
    other.settled()
    assert page.locator("tbody a.row").count() == len(towned.client.get("/api/runs").json()["runs"])
    page = other.go("/runs?user=nobody")
    assert "unknown user 'nobody'; known: " in text_of(page, "#page")
    assert seen.complaints == []


def test_the_page_of_a_run_says_what_ran(towned: Served, see: See) -> None:
    """Command, image, GPU, for whom; the list has the command's beginning."""
    seen = see(towned.url)
    page = seen.go("/runs?search=ok-run")
    assert "echo hello; sleep 8; echo bye" in text_of(page, "tbody")
    page = seen.go(f"/runs/{towned.client.get('/api/runs/ok-run').json()['run_id']}")
    assert page.get_by_role("region", name="Command").inner_text() == "echo hello\nsleep 8\necho bye"
    facts = text_of(page, ".run-facts")
    assert all(word in facts for word in ("rocm/dev-ubuntu-24.04", "MI300X:1", "admin", "dstack/"))
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
        ' "?order=oldest&cursor=1.2.a", "?order=toString", "?order=name-back"];\n'
        "const said = queries.map((one) => `${asked(given(one))}`);\n"
        "console.log(JSON.stringify([...said, [...several(['a', 'b', 'a'])]]));\n"
    )
    printed = json.loads(
        subprocess.run([node, tmp_path / "try.mjs"], capture_output=True, text=True, check=True).stdout
    )
    assert printed == [
        "limit=50",
        "limit=50&search=.*%5B&state=failed",
        "limit=50&until=2026-11-20T23%3A59%3A59.999999Z&sort=cost",
        "limit=50&cursor=1.2.a&order=oldest",
        "limit=50",
        "limit=50&sort=name&order=oldest",
        ["a"],
    ]


def test_a_bad_day_takes_five_clicks(started: Starts, tmp_path: Path, see: See) -> None:
    """Find the run that failed, read why and its last lines, run it again with more memory, compare both: in a browser,
    with a service that runs what is submitted. A key is not a click. The tab's title counts it until it is looked at.
    """
    up = started("up", "--record", tmp_path / "day.db", STENO_LOCAL_GPU="MI300X")

    def submitted(name: str, *commands: str) -> str:
        task = {"type": "task", "commands": commands, "resources": {"memory": "32GB"}, "image": "rocm/dev"}
        answer = up.post("/api/runs", json={"name": name, "configuration": task})
        run_id: str = answer.json()["run_id"]
        return run_id

    submitted("other", "echo train.py")
    failed = submitted("matmul", "echo python train.py --epochs 3", "seq 1 200", "echo out of memory; exit 1")
    seen = see(up.url)
    page = seen.go("/")
    clicks = 0

    def click(target: Locator) -> None:
        nonlocal clicks
        clicks += 1
        target.click()

    seen.until("document.title.startsWith('(1) ')")
    assert (page.locator("link[rel=icon]").get_attribute("href") or "").startswith("data:image/svg+xml,")
    click(page.get_by_role("region", name="Runs that failed since you looked").get_by_role("link", name="matmul"))
    seen.until(f"location.pathname === '/runs/{failed}'")
    seen.settled()
    assert "It exited 1" in text_of(page, ".run-why")
    seen.until("document.querySelector('.output')?.innerText.includes('out of memory')")
    assert text_of(page, ".output [role=log]").split()[-53:] == [*map(str, range(151, 201)), "out", "of", "memory"]
    seen.until("!document.title.startsWith('(')")
    click(page.get_by_role("button", name="Run again"))
    seen.until("document.activeElement.labels?.[0]?.innerText.includes('Memory')")
    page.keyboard.type("2GB")
    page.keyboard.press("Enter")
    seen.until(f"location.search.includes('from={failed}')")
    click(page.get_by_role("link", name="Compare with the run before"))
    differences = page.get_by_role("region", name="What was asked for")
    differences.wait_for()
    assert differences.locator("tbody tr").all_inner_texts() == ["resources.memory\t32GB\t2GB"]
    seen.until("document.querySelectorAll('.compare .s-failed').length === 2")
    assert clicks <= 5
    assert seen.complaints == []


@pytest.mark.ci
def test_any_run_is_copied_into_the_form_and_again_asks_for_values(served: Serve, town: Path, see: See) -> None:
    """The form has everything that was asked for, and says what it has no field for; values that are not recorded are
    asked for, in the form and in the window. Of a run that Steno did not submit it has what its provider shows.
    """
    here = served(town, api__submit_rate="off")
    task = {
        "type": "task",
        "commands": ["python train.py", "echo done"],
        "image": "rocm/dev",
        "env": {"SEED": "4"},
        "resources": {"gpu": "MI300X:1", "memory": "32GB", "shm_size": "8GB"},
        "max_duration": "2h",
        "working_dir": "/work",
    }
    made = here.client.post("/api/runs", json={"name": "train", "configuration": task}).json()
    here.client.get(f"/api/runs/{made['run_id']}", params={"min_position": made["position"]})
    seen = see(here.url)
    page = seen.go(f"/runs/{made['run_id']}")
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("button", name="Run it again").click()
    page.get_by_text("Its value is not recorded").wait_for()
    page.get_by_role("dialog").get_by_label("SEED").fill("5")
    page.get_by_role("button", name="Cancel").click()

    page.get_by_role("link", name="Copy into the form").click()
    page.get_by_text("Filled in from train").wait_for()
    fields = {"Commands": "python train.py\necho done", "Name": "train", "Longest duration": "2h", "Image": "rocm/dev"}
    fields |= {"Memory": "32GB", "GPU": "MI300X:1", "Environment": "SEED"}
    form = page.locator("form.form:visible")
    assert {name: form.get_by_label(name, exact=False).first.input_value() for name in fields} == fields
    assert "Also copied: working_dir resources" in text_of(page, "form.form:visible")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Write a value for SEED: SEED=value.").wait_for()
    form.get_by_label("Environment").fill("SEED=5")
    form.get_by_label("Name", exact=False).first.fill("again")  # the other still waits, and has its name
    page.get_by_role("button", name="Submit").click()
    seen.until("/^.runs.[0-9a-f-]{36}$/.test(location.pathname)")
    seen.until("document.title.includes('again')")
    again = here.client.get("/api/compare", params={"a": made["run_id"], "b": page.url.rpartition("/")[2]}).json()
    assert [row["field"] for row in again["task"]] == ["env.SEED"]

    page = seen.go(f"/runs/{here.client.get('/api/runs/ok-run').json()['run_id']}")
    page.get_by_role("button", name="Run again").click()
    page.get_by_text("Steno did not submit it").wait_for()
    page.get_by_role("dialog").get_by_role("link", name="Copy into the form").click()
    page.get_by_text("Filled in from ok-run").wait_for()
    assert page.get_by_label("Commands").input_value() == "echo hello\nsleep 8\necho bye"
    assert page.get_by_label("Image").input_value() == "rocm/dev-ubuntu-24.04"
    assert seen.complaints == []
