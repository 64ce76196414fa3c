"""The API's reference at /docs, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.browser import See

pytestmark = [pytest.mark.ci, pytest.mark.slow]


def test_the_reference_is_drawn_from_the_api_s_own_document(served: Serve, odd_town: Path, see: See) -> None:
    """Every route and object of /openapi.json is there; a search narrows them; a type leads to its object."""
    here = served(odd_town)
    document = here.client.get("/openapi.json").json()
    summaries = {
        operation["operationId"]: f"{method} {path} {operation['summary']}".lower()
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    objects = [f"object-{name}" for name in document["components"]["schemas"]]
    seen = see(here.url)
    page = seen.go("/docs#getRun")
    assert set(page.eval_on_selector_all(".reference details", "all => all.map(one => one.id)")) == {
        *summaries,
        *objects,
    }
    opened = page.locator("#getRun[open]")
    assert f"'{here.url}/api/runs/{{id}}'" in opened.locator("pre").inner_text()
    opened.get_by_role("link", name="RunAnswer").click()
    page.locator("#object-RunAnswer[open]").get_by_text("run_id").wait_for()
    page.get_by_label("Find a route").fill("stop")
    stops = sum("stop" in words for words in summaries.values())
    seen.until(f"document.querySelectorAll('.reference details').length === {stops}")
    assert seen.complaints == []
