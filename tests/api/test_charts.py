"""The charts over HTTP and on their page: sums, CSV, the past, and what the tables say."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING

import pytest
from stenolab.dashboard import told
from stenotest import steno_process
from stenotest.busy_weeks import busy_weeks
from stenotest.dstack_history import START

from steno.cli.render.words import short
from steno.events.clock import SECOND, duration

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served
    from stenolab.browser import See

SINCE = "2025-12-01"
PATHS = ("/api/spend", "/api/utilisation", "/api/starts", "/api/runs/train/like", "/api/costs")


@pytest.fixture(scope="module")
def here(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A service on some weeks of work."""
    return served_on(busy_weeks(tmp_path_factory.mktemp("weeks") / "record.db", days=8, start=START))


def test_days_and_stacks_sum_to_the_bill(here: Served) -> None:
    """To the micro-dollar, however it is stacked."""
    total = told(here.client, "/api/costs")["total"]["total_usd"]
    for by in ("line", "gpu", "user"):
        chart = told(here.client, "/api/spend", by=by, since=SINCE)
        assert chart["total_usd"] == total
        assert sum(map(Decimal, chart["daily"])) == Decimal(total)
        for place, day in enumerate(chart["daily"]):
            assert sum(Decimal(series["daily"][place]) for series in chart["series"]) == Decimal(day)


def test_the_table_of_a_range_sums_to_its_chart(here: Served) -> None:
    """Whatever the rows and the pages; a range that ends before it begins is refused."""
    days = told(here.client, "/api/spend", since=SINCE)["days"][2:5]
    of = {"since": days[0], "until": days[-1]}
    drawn = told(here.client, "/api/spend", **of)["total_usd"]
    for by in ("vm", "run", "day", "user", "gpu"):
        report = told(here.client, "/api/costs", by=by, **of)
        assert report["total"]["total_usd"] == drawn
        assert sum(Decimal(row["total_usd"]) for row in report["rows"]) == Decimal(drawn)
        page = told(here.client, "/api/costs", by=by, limit=1, order="newest", **of)
        assert (page["rows"], page["total"]) == (report["rows"][-1:], report["total"])
        assert report["reconciliation"] == told(here.client, "/api/costs")["reconciliation"]
    refused = here.client.get("/api/costs", params={"since": days[-1], "until": days[0]})
    assert (refused.status_code, refused.json()["field"]) == (400, "since")


@pytest.mark.parametrize("path", PATHS)
def test_every_chart_is_to_be_had_as_csv(here: Served, path: str) -> None:
    """By the parameter or by `Accept`; the same rows, as a file."""
    told(here.client, path)
    by_format = here.client.get(path, params={"format": "csv"})
    by_accept = here.client.get(path, headers={"Accept": "text/csv"})
    assert by_format.text == by_accept.text
    assert by_format.headers["content-type"].startswith("text/csv")
    assert "attachment" in by_format.headers["content-disposition"]
    assert by_format.headers["vary"] == "Accept"
    rows = list(csv.reader(io.StringIO(by_format.text)))
    assert len({len(row) for row in rows}) == 1


def test_a_past_moment_shows_what_it_showed_then(here: Served) -> None:
    """The last position is the present; half way back less was spent."""
    now = told(here.client, "/api/spend", since=SINCE, until="2025-12-22")
    position = now["position"]
    assert told(here.client, "/api/spend", since=SINCE, until="2025-12-22", at=position)["daily"] == now["daily"]
    before = told(here.client, "/api/spend", since=SINCE, at=position // 2)
    assert Decimal(before["total_usd"]) < Decimal(now["total_usd"])


def test_a_run_is_compared_with_the_others_of_its_name(here: Served) -> None:
    """Its parts, and their medians."""
    beside = told(here.client, "/api/runs/train/like")
    assert beside["runs"] > 5
    assert [phase["phase"] for phase in beside["phases"]] == ["queue", "provisioning", "running"]
    assert all(phase["count"] == beside["runs"] for phase in beside["phases"])


def test_show_says_what_the_api_says_of_runs_with_its_name(here: Served) -> None:
    """The same object with --json; the medians of duration and cost in one line of text, of the runs that ended."""
    runs = told(here.client, "/api/runs", name="train", limit=100)["runs"]
    words, home = ("show", runs[0]["run_id"], "--record", str(here.record)), {"HOME": str(here.record.parent)}
    beside = told(here.client, f"/api/runs/{runs[0]['run_id']}/like")
    assert beside.pop("position") > 0
    assert json.loads(steno_process.run([*words, "--json"], env=home, check=True).stdout)["like"] == beside
    assert beside["cost_usd"] == runs[0]["cost_usd"]
    assert Decimal(beside["median_cost_usd"]) == median(Decimal(run["cost_usd"]) for run in runs[1:])
    printed = steno_process.run(words, env=home, check=True).stdout
    took = duration(round(median(run["execution_seconds"] for run in runs[1:]) * SECOND))
    assert f"median of {len(runs) - 1} other runs: ran {took}, cost {short(beside['median_cost_usd'])}\n" in printed


def test_a_run_whose_name_no_other_has_is_compared_with_none(town: Path) -> None:
    """No line in the text, no medians in the JSON."""
    words, home = ("show", "ok-run", "--record", str(town)), {"HOME": str(town.parent)}
    beside = json.loads(steno_process.run([*words, "--json"], env=home, check=True).stdout)["like"]
    assert (beside["runs"], beside["median_cost_usd"]) == (0, None)
    assert "median" not in steno_process.run(words, env=home, check=True).stdout


def test_a_range_that_ends_before_it_begins_is_refused(here: Served) -> None:
    """With the parameter's name."""
    answer = here.client.get("/api/spend", params={"since": "2026-02-01", "until": "2026-01-01"})
    assert (answer.status_code, answer.json()["field"]) == (400, "since")


def test_the_page_draws_what_the_api_says(here: Served, see: See) -> None:
    """A bar a day, a strip a GPU, the sums of the table; the range is in the address. Nothing is wrong or moves."""
    seen = see(here.url)
    page = seen.go("/costs?range=all&stack=gpu")
    spend = told(here.client, "/api/spend", by="gpu", since=SINCE)
    assert seen.shifted() < 0.01, "before the table below is opened, which moves what follows it"
    panel = page.get_by_label("Spend by day", exact=True)
    assert panel.locator("g.bar").count() == len(spend["days"])
    panel.get_by_text("As a table").click()
    total = panel.locator("tfoot td").last
    total.wait_for()
    assert Decimal(total.inner_text().lstrip("$").replace(",", "")) == round(Decimal(spend["total_usd"]), 4)
    assert page.locator(".use-strips svg[role=group]").count() == 4  # three GPUs and all machines
    assert seen.complaints == []


def test_the_page_of_a_run_shows_the_median_cost_of_its_name(here: Served, see: See) -> None:
    """Beside its own, above the bars."""
    beside = told(here.client, "/api/runs/train/like")
    seen = see(here.url)
    panel = seen.go(f"/runs/{beside['run_id']}").get_by_label("Compared with its like", exact=True)
    words = panel.locator("p").first.inner_text()
    amounts = words.split("cost: ")[1].rstrip(".").replace("$", "").split(", median ")
    assert [round(Decimal(amount), 4) for amount in amounts] == [
        round(Decimal(beside[key]), 4) for key in ("cost_usd", "median_cost_usd")
    ]
    assert seen.complaints == []


def test_a_month_is_reported_with_the_sums_of_its_costs(here: Served) -> None:
    """The tables of its rows sum to the costs of its days; a month to come has a reason instead of figures."""
    report = told(here.client, "/api/report", month="2025-12")
    costs = told(here.client, "/api/costs", since="2025-12-01", until="2025-12-31")["total"]["total_usd"]
    users = [Decimal(row["usd"]) for row in report["rows"] if row["section"] == "By user"]
    assert (report["total_usd"], sum(users)) == (costs, Decimal(costs))
    table = here.client.get("/api/report", params={"month": "2025-12", "format": "csv"})
    assert len(list(csv.DictReader(io.StringIO(table.text)))) == len(report["rows"])
    assert told(here.client, "/api/report", month="2999-01")["unknown"] == "2999-01 has not begun"
    for wrong in ("2025-13", "2025-1", "soon"):
        refused = here.client.get("/api/report", params={"month": wrong})
        assert (refused.status_code, refused.json()["field"]) == (400, "month")


def test_the_forecast_says_why_there_is_none(here: Served) -> None:
    """The record's days are over; at a moment within them there is a band."""
    assert told(here.client, "/api/forecast")["unknown"].startswith("the newest poll is of ")
    then = told(here.client, "/api/forecast", at="2025-12-18T12:00:00Z")
    assert then["unknown"].startswith("it needs 7 whole days")
    assert then["month"] == "2025-12"
