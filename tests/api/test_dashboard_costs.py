"""The dashboard's page of costs in a real browser: its sums and its pages are those of the API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import PHONE
from stenolab.dashboard import told
from stenotest.big import big_record
from stenotest.busy_weeks import busy_weeks

from steno.engine.state.policy import DAY
from steno.events.clock import SystemClock

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.browser import See

pytestmark = pytest.mark.slow


def test_what_everything_cost_stands_beside_the_providers_figure(served: Serve, town: Path, see: See) -> None:
    """From theirs to ours, a line for every cause; of a moment past it is as it was then."""
    here = served(town)
    seen = see(here.url)
    page = seen.go("/costs")
    sides = told(here.client, "/api/costs")["reconciliation"]
    lines = page.locator("table.sums tr").all_inner_texts()
    assert len(lines) == len(sides["lines"]) + 2 > 2
    assert lines[0].startswith("the provider says")
    assert [line.splitlines()[0].split("\t")[0] for line in lines[1:-1]] == [
        line_of["cause"] for line_of in sides["lines"]
    ]
    assert lines[-1].startswith("we say")
    seen.go("/costs?at=1")
    seen.until("document.body.innerText.includes('No costs on either side yet')")
    assert seen.complaints == []


@pytest.mark.parametrize("options", [PHONE, pytest.param({}, marks=pytest.mark.long)], ids=["phone", "desk"])
def test_the_range_moves_the_table_with_the_charts(
    served: Serve, tmp_path: Path, see: See, options: dict[str, Any]
) -> None:
    """Their totals are the same in each range, and a range in which nothing was billed says so; on a phone too."""
    start = SystemClock().now() - 20 * DAY
    here = served(busy_weeks(tmp_path / "weeks.db", days=6, start=start))
    whole = f"${float(told(here.client, '/api/costs')['total']['total_usd']):.4f}"
    seen = see(here.url, **options)
    page = seen.go("/costs?by=day")
    total = page.locator(".costs-grid table.table").first.locator("tfoot td").last
    total.wait_for()
    assert total.inner_text() == whole
    for days in ("7", "all", "30"):
        page.get_by_label("Range").select_option(days)
        if days == "7":
            seen.until("document.querySelector('.costs-grid')?.innerText.includes('Nothing in this range')")
        else:
            seen.until(f"document.querySelector('.costs-grid table.table tfoot')?.innerText.includes({whole!r})")
        assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")
    seen.go(f"/costs?by=day&range=90&at={told(here.client, '/api/record')['position'] // 2}")
    label = page.locator(".charts svg[aria-label^='Spend of']").first.get_attribute("aria-label")
    assert str(label).endswith(total.inner_text())
    assert seen.complaints == []


@pytest.mark.ci
def test_rows_of_a_long_record_are_paged_and_the_sums_are_of_all(served: Serve, tmp_path: Path, see: See) -> None:
    """The newest page first, then older pages, and back; what no run pays is on the newest."""
    big_record(tmp_path / "long.db", events=12_000)
    here = served(tmp_path / "long.db")
    whole = told(here.client, "/api/costs", by="run")
    names = [row["label"] for row in whole["rows"]]
    assert 200 < len(names) <= 400
    seen = see(here.url)
    page = seen.go("/costs?by=run&range=all")

    def shown() -> list[str]:
        return page.locator("table.table tbody td:first-child").all_inner_texts()

    page.locator(".costs-grid table").first.wait_for()
    together = page.locator(".costs-grid tfoot").first.inner_text()
    assert [text.strip() for text in shown()] == names[-200:]
    page.get_by_role("button", name="Older").click()
    seen.until(f"document.querySelector('.costs-grid').innerText.includes({names[0]!r})")
    assert page.get_by_role("button", name="Older").is_disabled()
    assert page.locator(".costs-grid tfoot").first.inner_text() == together
    page.get_by_role("button", name="Newest").click()
    seen.until(f"document.querySelector('.costs-grid').innerText.includes({names[-1]!r})")
    assert seen.complaints == []
