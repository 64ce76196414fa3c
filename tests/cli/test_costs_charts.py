"""`steno costs --chart` and `--csv`: the figures of the bill, drawn and as rows."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from stenotest import steno_process
from stenotest.busy_weeks import GPUS, USERS, busy_weeks
from stenotest.command_line import refused

Call = Callable[..., "subprocess.CompletedProcess[str]"]
GPU_KEYS = {f"{gpu}:1" for gpu, _ in GPUS}
RANGE = ("--since", "2025-11-01", "--until", "2025-12-31")


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """`costs(*words)`: the command on a record of eight days, on two of which nothing ran."""
    home = tmp_path_factory.mktemp("home")
    record = busy_weeks(home / "record.db", days=8)

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        environment = {"HOME": str(home), "STENO_RECORD": str(record), "LANG": "C.UTF-8", "COLUMNS": "100"}
        return steno_process.run(["costs", *words], cwd=home, env=environment)

    return call


def said(costs: Call, *words: str) -> dict[str, Any]:
    """The JSON of a command that succeeds."""
    done = costs(*words, "--json")
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def rows(costs: Call, *words: str) -> list[dict[str, str]]:
    """The rows of its CSV."""
    done = costs(*words, "--csv")
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def dollars(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


@pytest.mark.parametrize("by", ["line", "gpu", "user"])
def test_the_days_drawn_sum_to_the_bill(costs: Call, by: str) -> None:
    """A line a day, the longest bar on the dearest day, a key with the sum of each part of the stacks."""
    words = ("--chart", "spend", *RANGE, *(() if by == "line" else ("--by", by)))
    answer = said(costs, *words)["spend"]
    assert answer["total_usd"] == said(costs)["total"]["total_usd"]
    text = costs(*words).stdout
    days = re.findall(r"^(\d{4}-\d\d-\d\d) +(\$[\d.,]+) *(\S*)$", text, re.M)
    assert [day for day, _, _ in days] == answer["days"]
    assert [dollars(amount) for _, amount, _ in days] == [
        round(Decimal(amount_usd), 4) for amount_usd in answer["daily"]
    ]
    bars = [len(bar) for _, _, bar in days]
    assert bars.index(max(bars)) == max(range(len(days)), key=lambda place: Decimal(answer["daily"][place]))
    assert [bar for (_, amount, bar) in days if not dollars(amount)] == [""] * answer["daily"].count("0.000000")
    assert all(f"{series['key']} $" in text for series in answer["series"])
    keys = {series["key"] for series in answer["series"]}
    assert keys >= {"line": {"busy", "idle"}, "gpu": GPU_KEYS, "user": {*USERS}}[by]


def test_the_csv_of_a_chart_has_its_figures(costs: Call) -> None:
    """A row a day and the total. A user's name that a spreadsheet would compute is text."""
    answer = said(costs, "--chart", "spend", "--by", "user", *RANGE)["spend"]
    table = rows(costs, "--chart", "spend", "--by", "user", *RANGE)
    assert table == rows(costs, "--chart", "--by", "user", *RANGE)
    assert [row["day"] for row in table] == [*answer["days"], "total"]
    for series in answer["series"]:
        (column,) = {key for key in table[0] if key.lstrip("'") == series["key"]}
        assert [Decimal(row[column]) for row in table] == [*map(Decimal, series["daily"]), Decimal(series["total_usd"])]
        assert not column.startswith("=")


def test_use_and_start_up_times_are_drawn_and_given_as_rows(costs: Call) -> None:
    """A strip for each GPU, or machine; a row for each day of each. Cold and warm starts with their counts."""
    both = said(costs, "--chart", *RANGE)
    assert set(both) == {"spend", "utilisation", "position"}
    strips = both["utilisation"]["strips"]
    text = costs("--chart", "utilisation", *RANGE).stdout
    assert {strip["label"] for strip in strips} == GPU_KEYS
    assert all(re.search(rf"^{strip['label']} +│.*│ +\d+ % of ", text, re.M) for strip in strips)
    machines = said(costs, "--chart", "utilisation", "--by", "vm", *RANGE)["utilisation"]["strips"]
    assert len(machines) == len(said(costs)["rows"]) > len(strips)

    starts = said(costs, "--chart", "starts", *RANGE)["starts"]
    buckets = rows(costs, "--chart", "starts", *RANGE)
    assert [int(row["cold"]) for row in buckets] == [bucket["cold"] for bucket in starts["buckets"]]
    assert sum(int(row["cold"]) for row in buckets) == starts["cold"]["count"] > 0
    assert f"cold: {starts['cold']['count']} runs, median" in costs("--chart", "starts", *RANGE).stdout


@pytest.mark.parametrize("by", ["vm", "run", "day", "user", "gpu"])
def test_the_csv_of_the_costs_has_the_rows_of_the_table(costs: Call, by: str) -> None:
    """With their totals; the last row is their sum."""
    table = rows(costs, "--by", by)
    answer = said(costs, "--by", by)
    answers = [*answer["rows"], answer["total"]]
    assert [Decimal(row["total_usd"]) for row in table] == [Decimal(row["total_usd"]) for row in answers]


@pytest.mark.parametrize("by", ["vm", "run", "day", "user", "gpu"])
def test_a_range_moves_the_table_as_it_moves_the_chart(costs: Call, by: str) -> None:
    """The rows of some days sum to the chart of these days, as JSON and as CSV, and to less than everything."""
    days = said(costs, "--chart", "spend", *RANGE)["spend"]["days"]
    of = ("--since", days[1], "--until", days[2])
    drawn = Decimal(said(costs, "--chart", "spend", *of)["spend"]["total_usd"])
    answer = said(costs, "--by", by, *of)
    assert Decimal(answer["total"]["total_usd"]) == sum(Decimal(row["total_usd"]) for row in answer["rows"]) == drawn
    assert [Decimal(row["total_usd"]) for row in rows(costs, "--by", by, *of)][-1] == drawn
    assert 0 < drawn < Decimal(said(costs)["total"]["total_usd"])
    assert by != "day" or [row["key"] for row in answer["rows"]] == days[1:3]


def test_a_range_without_days_says_so_and_a_wrong_one_is_refused(costs: Call) -> None:
    empty = costs("--chart", "--since", "2020-01-01", "--until", "2020-01-05")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "nothing to draw in this range" in empty.stderr
    assert "later than the end" in refused(costs("--chart", "--since", "2025-12-01", "--until", "2025-11-01"), 2)
    empty = costs("--since", "2020-01-01", "--until", "2020-01-05")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "nothing in this range" in empty.stderr
    assert "later than the end" in refused(costs("--since", "2025-12-01", "--until", "2025-11-01"), 2)
    assert "are of everything" in refused(costs("--since", "7d", "--reconcile"), 2)
    assert "are of everything" in refused(costs("--until", "7d", "--format", "csv"), 2)
    assert "--chart goes with" in refused(costs("--chart", "--by", "run"), 2)
    assert "leave --reconcile" in refused(costs("--csv", "--reconcile"), 2)
