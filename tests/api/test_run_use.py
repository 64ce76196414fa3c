"""The use of a run's GPUs over HTTP and on its page; waste over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.in_process import InProcess
from stenotest.sampled_record import ONE_OF_FOUR, sampled_record

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served
    from stenolab.browser import See


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sampled_record(tmp_path_factory.mktemp("sampled")).parent


@pytest.fixture(scope="module")
def here(served_on: Serve, home: Path) -> Served:
    return served_on(home / "record.db")


def test_waste_is_what_the_command_prints(here: Served, home: Path) -> None:
    for by in ("user", "run", "gpu"):
        answer = here.client.get("/api/waste", params={"by": by, "since": "2025-12-01"}).json()
        assert answer == InProcess(home).json("waste", "--by", by, "--since", "2025-12-01")
    refused = here.client.get("/api/waste", params={"since": "2025-12-01", "until": "2025-11-01"})
    assert (refused.status_code, refused.json()["field"]) == (400, "since")


def test_samples_have_a_bounded_number_of_points(here: Served) -> None:
    """The whole run or a part of it; a run without samples has none."""
    for asked_for, points in (({}, 120), ({"points": 1}, 1), ({"points": 500, "to": "2025-12-15T09:05:00Z"}, 500)):
        use = here.client.get("/api/runs/train/samples", params=asked_for).json()
        assert {len(gpu[name]) for gpu in use["gpus"] for name in ("mean", "least", "most")} == {points}
        assert tuple(gpu["most"][0] for gpu in use["gpus"]) == ONE_OF_FOUR
    assert set(use["gpus"][0]["mean"]) == {80}
    assert use["seconds"] == {"working": 300, "idle": 0, "unknown": 0}
    assert here.client.get("/api/runs/blind/samples").json()["gpus"] == []
    turned = here.client.get("/api/runs/train/samples", params={"from": "2025-12-16", "to": "2025-12-15"})
    assert (turned.status_code, turned.json()["field"]) == (400, "from")


def test_the_page_of_a_run_draws_the_use_of_its_gpus(here: Served, see: See) -> None:
    """A line for each GPU, the idle time shaded, both as tables; nothing for a run without samples."""
    seen = see(here.url)
    page = seen.go("/runs/train")
    panel = page.locator("section", has=page.get_by_role("heading", name="Use of its GPUs"))
    assert panel.locator("path.use-line").count() == len(ONE_OF_FOUR)
    assert panel.locator("rect.use-idle").count() == 1
    label = panel.locator("svg").get_attribute("aria-label") or ""
    assert label.startswith("Use of 4 GPUs over time: working 10 m (28 %), idle 20 m")
    panel.get_by_text("As a table").click()
    cells = panel.get_by_role("table", name="The use of each GPU").locator("tbody tr").first.locator("td")
    assert cells.all_inner_texts()[-2:] == ["10.0 GB of 192.0 GB", "90 W"]
    assert panel.get_by_role("table", name="Times in which all GPUs were idle").locator("tbody tr").count() == 1
    seen.go("/runs/blind")
    assert page.get_by_role("heading", name="Use of its GPUs").count() == 0
    assert not seen.complaints
