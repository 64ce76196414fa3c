"""Moving budget and the way into a run, over HTTP and on the dashboard."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from stenotest.decided_record import BUDGET, DecidedRecord

from steno.engine.state.policy import OwnerLimit
from steno.engine.wire import DOLLAR

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve
    from stenolab.browser import See

LIMITS = (OwnerLimit(owner="user/ada", budget=300 * DOLLAR, runs=2), OwnerLimit(owner="user/bob", budget=50 * DOLLAR))
MOVE = {"amount_usd": "100", "giver": "user/ada", "receiver": "user/bob", "why": "deadline"}


@pytest.fixture
def site(tmp_path: Path) -> DecidedRecord:
    """A record with limits of two users, and a run of the first."""
    made = DecidedRecord(tmp_path, policy=replace(BUDGET, limits=LIMITS))
    made.request("train")
    made.round()
    made.start("train", "m1")
    made.wait(60)
    return made


def test_a_move_is_in_force_at_once_and_in_the_record(served: Serve, site: DecidedRecord) -> None:
    client = served(site.folder / "record.db").client
    made = client.post("/api/budget/moves", json=MOVE)
    assert made.status_code == 201, made.text
    budgets = {owner["owner"]: owner["budget_usd"] for owner in made.json()["owners"]}
    assert budgets == {"user/ada": "200.000000", "user/bob": "150.000000"}
    now = {"min_position": int(made.headers["steno-position"])}
    listed = client.get("/api/budget", params=now).json()["limits"]
    assert {owner["owner"]: owner["budget_usd"] for owner in listed} == budgets
    (action,) = client.get("/api/audit", params=now).json()["actions"][:1]
    assert (action["action"], action["name"]) == ("moved $100.00 from user/ada to user/bob", "(deadline)")
    changed = client.get("/api/changes", params={**now, "since": "2025-01-01"}).json()["changes"]
    assert [row["what"] for row in changed if "moved" in row["what"]]


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"amount_usd": "0"}, 422, "amount_usd"),
        ({"amount_usd": "much"}, 422, "amount_usd"),
        ({"giver": "ada"}, 422, "giver"),
        ({"receiver": "user/ada"}, 409, "receiver"),
        ({"receiver": "user/eve"}, 409, None),
        ({"amount_usd": "301"}, 403, None),
        ({"why": " "}, 422, "why"),
    ],
)
def test_a_bad_move_is_one_line_and_moves_nothing(
    served: Serve, site: DecidedRecord, change: dict[str, str], status: int, field: str | None
) -> None:
    client = served(site.folder / "record.db").client
    refused = client.post("/api/budget/moves", json=MOVE | change)
    assert (refused.status_code, refused.json().get("field")) == (status, field), refused.text
    assert "\n" not in refused.json()["detail"]
    assert {owner["moved_usd"] for owner in client.get("/api/budget").json()["limits"]} == {"0.000000"}


def test_budget_is_moved_to_whatever_owner_the_settings_name(served: Serve, tmp_path: Path) -> None:
    """And the schema that clients are made from allows it."""
    owners = ("label/team=vision", "user/eve.b-c@lab", "project/a b", "gpu/A100_80")
    limits = tuple(OwnerLimit(owner=owner, budget=300 * DOLLAR) for owner in owners)
    client = served(DecidedRecord(tmp_path, policy=replace(BUDGET, limits=limits)).folder / "record.db").client
    fields = client.get("/openapi.json").json()["components"]["schemas"]["BudgetMoveBody"]["properties"]
    for giver, receiver in pairwise(owners):
        assert re.search(fields["giver"]["pattern"], giver)
        assert re.search(fields["receiver"]["pattern"], receiver)
        moved = client.post("/api/budget/moves", json={**MOVE, "giver": giver, "receiver": receiver})
        assert moved.status_code == 201, moved.text


def test_a_run_that_does_not_run_has_no_entrance(served: Serve, site: DecidedRecord) -> None:
    site.request("eval")
    client = served(site.folder / "record.db").client
    refused = client.get("/api/runs/eval/entrance")
    assert refused.status_code == 409
    assert "does not run yet" in refused.json()["detail"]
    assert client.get("/api/runs/train/entrance", params={"port": 0}).status_code == 400
    assert client.get("/api/runs/nobody/entrance").status_code == 404


@pytest.mark.slow
def test_budget_is_moved_on_the_page_of_costs(served: Serve, site: DecidedRecord, see: See) -> None:
    """A reason is needed; the table shows both as they are then."""
    page = see(served(site.folder / "record.db").url).go("/costs")
    page.get_by_role("button", name="Move budget…").click()
    sheet = page.get_by_role("dialog", name="Move budget")
    sheet.get_by_label("Dollars").fill("100")
    sheet.get_by_role("button", name="Move it").click()
    sheet.get_by_text("Write why").wait_for()
    sheet.get_by_label("Why").fill("deadline")
    sheet.get_by_role("button", name="Move it").click()
    table = page.get_by_role("table", name="Owners with limits")
    table.get_by_text("of $200.00").wait_for()
    table.get_by_text("of $150.00").wait_for()
