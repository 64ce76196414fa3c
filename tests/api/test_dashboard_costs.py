"""The dashboard's page of costs in a real browser: its sums and its pages are those of the API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.dashboard import told
from stenotest.big import big_record

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
    assert [line.splitlines()[0].split("\t")[0] for line in lines[1:-1]] == [one["cause"] for one in sides["lines"]]
    assert lines[-1].startswith("we say")
    seen.go("/costs?at=1")
    seen.until("document.body.innerText.includes('No costs on either side yet')")
    assert seen.complaints == []


def test_rows_of_a_long_record_are_paged_and_the_sums_are_of_all(served: Serve, tmp_path: Path, see: See) -> None:
    """The newest page first, then older ones, and back; what no run pays is on the newest."""
    big_record(tmp_path / "long.db", events=12_000)
    here = served(tmp_path / "long.db")
    whole = told(here.client, "/api/costs", by="run")
    names = [row["label"] for row in whole["rows"]]
    assert 200 < len(names) <= 400
    seen = see(here.url)
    page = seen.go("/costs?by=run")

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
