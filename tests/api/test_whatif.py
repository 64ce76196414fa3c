"""Predictions over HTTP: as the command says, and what is refused."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest
from stenolab.dashboard import told
from stenotest.history_file import record_of_history
from stenotest.in_process import InProcess
from stenotest.policies import HISTORIES, RECORDED

from steno.projections.api.reads import whatif

if TYPE_CHECKING:
    from conftest import Serve, Served
    from stenolab.browser import See


@pytest.fixture(scope="module")
def here(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A service on the history of a genuine server."""
    folder = tmp_path_factory.mktemp("whatif")
    return served_on(record_of_history(HISTORIES / f"{RECORDED}.jsonl.zst", folder / "record.db"))


def test_it_answers_as_the_command(here: Served) -> None:
    """The same object, for the same policy and seed."""
    answer = told(here.client, "/api/whatif", policy="pool", max_vms=1, idle_timeout=5, price_cents=249, seed=3)
    words = ("--policy", "pool", "--max-vms", "1", "--idle-timeout", "5s", "--price", "2.49", "--seed", "3")
    assert answer == InProcess(here.record.parent, STENO_RECORD=str(here.record)).json("whatif", *words)


def test_a_sweep_goes_from_the_lesser_to_the_greater(here: Served) -> None:
    """Whichever comes first, and the cheapest within the wait is named; as CSV too."""
    sweep = {"sweep": "max-vms", "least": 2, "most": 1, "keep_p95": 86_400}
    answer = told(here.client, "/api/whatif", **sweep)
    assert [each["policy"] for each in answer["predictions"]] == ["max-vms=1", "max-vms=2"]
    assert answer["cheapest"] in ("max-vms=1", "max-vms=2")
    rows = list(csv.DictReader(io.StringIO(here.client.get("/api/whatif", params=sweep | {"format": "csv"}).text)))
    assert [row["policy"] for row in rows] == ["recorded"] * 2 + ["max-vms=1"] * 3 + ["max-vms=2"] * 3


def test_what_cannot_be_predicted_is_a_problem(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """404 where nothing is recorded to begin with, 409 for more runs than a service simulates, 400 for a wrong word."""
    nothing = here.client.get("/api/whatif", params={"until": "2026-01-01"})
    assert (nothing.status_code, "No run was submitted" in nothing.json()["detail"]) == (404, True)
    assert here.client.get("/api/whatif", params={"policy": "best"}).status_code == 400
    monkeypatch.setattr(whatif, "MOST_RUNS", 1)
    many = here.client.get("/api/whatif")
    assert (many.status_code, "too many here" in many.json()["detail"]) == (409, True)


def test_the_page_of_costs_simulates_on_request(here: Served, see: See) -> None:
    """The recorded policy and a mark for each other one; nothing is wrong."""
    seen = see(here.url)
    page = seen.go("/costs?range=all")
    panel = page.get_by_label("What if", exact=True)
    panel.get_by_role("button", name="Machine limit").click()
    panel.locator("svg rect").first.wait_for()
    assert panel.locator("svg rect").count() == 7
    assert "differs from its bill by" in panel.inner_text()
    assert seen.complaints == []
