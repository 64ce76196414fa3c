"""`steno report`: its sums, its forms, what it refuses; the forecast in `steno budget`."""

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest import steno_process
from stenotest.busy_weeks import busy_weeks
from stenotest.command_line import refused
from stenotest.in_process import InProcess
from stenotest.recorded_trace import recorded_trace

from steno.cli.render.report import html, markdown
from steno.engine.money.daily import day_text, month_days
from steno.projections.answers.report import MonthReport, ReportRow

MONTHS = ("2025-12", "2026-01")
TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a record of twenty days in two months."""
    home = tmp_path_factory.mktemp("home")
    busy_weeks(home / "record.db", days=20)
    return home


@pytest.fixture(scope="module")
def here(weeks: Path) -> InProcess:
    return InProcess(weeks)


def summed(rows: list[dict[str, Any]], section: str) -> Decimal:
    return sum((Decimal(row["usd"]) for row in rows if row["section"] == section), Decimal())


@pytest.mark.parametrize("month", MONTHS)
def test_every_table_sums_to_the_costs_of_the_month(here: InProcess, month: str) -> None:
    """To the micro-dollar: JSON, CSV and FOCUS beside `steno costs` of the same days."""
    days = month_days(month)
    costs = here.json("costs", "--since", day_text(days.first), "--until", day_text(days.last))["total"]["total_usd"]
    report = here.json("report", "--month", month)
    table = list(csv.DictReader(io.StringIO(here.page("report", "--month", month, "--format", "csv"))))
    focus = csv.DictReader(io.StringIO(here.page("report", "--month", month, "--format", "focus")))
    assert report["total_usd"] == costs != "0.000000"
    for section in ("By purpose", "By user", "By GPU", "By day", "By machine"):
        assert summed(report["rows"], section) == summed(table, section) == Decimal(costs)
    assert sum(Decimal(row["BilledCost"]) for row in focus) == Decimal(costs)
    assert f"${Decimal(costs).normalize()}" in here.page("report", "--month", month)


def test_the_report_has_waits_and_the_providers_figures(here: InProcess) -> None:
    """The differences sum to the difference; the runs of both months are all runs."""
    rows = [here.json("report", "--month", month)["rows"] for month in MONTHS]
    for of_month in rows:
        beside = [row for row in of_month if row["section"].startswith("Beside")]
        ours, theirs, *parts = (Decimal(row["usd"]) for row in beside)
        assert ours - theirs == sum(parts)
    ended = [row["runs"] for of_month in rows for row in of_month if row["section"] == "Ended runs"]
    assert sum(ended) == len(here.json("ps", "--all")["runs"])
    assert {row["name"] for row in rows[0] if row["section"].startswith("Waits")} == {"cold", "warm"}


def test_failures_are_listed_with_their_reason(tmp_path: Path) -> None:
    failing = InProcess(recorded_trace(tmp_path, TRACES / "dstack-0.22.5/failure.jsonl.zst"))
    finished = next(run for run in failing.json("ps", "--all")["runs"] if run["state"] == "failed")
    rows = failing.json("report", "--month", finished["finished_at"][:7])["rows"]
    failures = [row for row in rows if row["section"] == "Failures by cause"]
    assert [(row["name"], row["detail"], row["runs"]) for row in failures] == [
        (f"failed: {finished['reason']}", "unknown", 1)
    ]


def test_html_is_one_page_without_scripts_and_foreign_files(here: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "month.html"
    assert here.page("report", "--month", "2025-12", "--format", "html", "-o", file) == ""
    page = file.read_text()
    assert page.count("<h2>") == page.count("<table>") == page.count("</table>") >= 7
    assert not [word for word in ("<script", "http", "src=", "@import") if word in page]


def test_names_of_others_stay_text() -> None:
    """In HTML and in Markdown, whatever the name of a machine or a user is."""
    name = "<script>x</script>|[a](http://x)`\x1b[31m"
    report = MonthReport("2026-11", None, None, 0, 0, 0, 0, None, (ReportRow("By user", name, usd=1),))
    assert "<script>" not in html(report)
    row = next(line for line in markdown(report).splitlines() if "script" in line)
    assert row.startswith(r"| \<script\>x\</script\>\|\[a\](http://x)\`\\x1b\[31m | ")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--month", "2026-13"), 2, "'2026-13' is not a month; write 2026-11"),
        (("--month", "soon"), 2, "'soon' is not a month"),
        (("--month", ""), 2, "'' is not a month"),
        (("--month", "2999-01"), 4, "2999-01 has not begun"),
        (("--month", "2024-02"), 4, "no cost and no ended run in 2024-02"),
        (("--month", "2025-12", "--json", "--format", "csv"), 2, "leave --format out"),
        (("--month", "2025-12", "-o", "/nowhere/report.md"), 2, "/nowhere/report.md"),
        (("--month", "2025-12", "-o", "/"), 2, "/ is a folder"),
    ],
)
def test_a_month_that_cannot_be_reported_is_one_line(weeks: Path, words: tuple[str, ...], code: int, says: str) -> None:
    environment = {"HOME": str(weeks), "STENO_RECORD": str(weeks / "record.db"), "LANG": "C.UTF-8"}
    assert says in refused(steno_process.run(["report", *words], cwd=weeks, env=environment), code)


def test_a_file_stays_as_it_is_if_there_is_no_report(here: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "kept.md"
    file.write_text("kept")
    assert here("report", "--month", "2024-02", "-o", file).exit_code != 0
    assert file.read_text() == "kept"


def test_the_budget_has_the_forecast_of_the_month(here: InProcess) -> None:
    """Within the month figures, after it the reason why there are none."""
    within = ("budget", "--at", "2025-12-28T12:00:00Z")
    month = here.json(*within, STENO_BUDGET="2000")["month"]
    low, best, high = (Decimal(month[name]) for name in ("low_usd", "best_usd", "high_usd"))
    true = Decimal(here.json("report", "--month", "2025-12")["total_usd"])
    assert Decimal(month["spent_usd"]) <= low <= true <= high
    assert low <= best <= high
    assert month["used_up"][0] <= month["used_up"][1]
    page = here.page(*within, STENO_BUDGET="2000")
    assert f"80 % between ${low:.2f}" in page
    assert f"held on {month['held']} of {month['checked']} earlier days" in page
    for budget, times in (("500", 2), ("1", 1), ("", 0)):  # dated by both forecasts; used up now; no budget
        assert here.page(*within, STENO_BUDGET=budget).count("\nused up") == times
    later = here.json("budget")["month"]
    assert (later["best_usd"], later["unknown"]) == (None, "the newest poll is of 2026-01-04; `steno up` polls")
    assert msgspec.json.decode(here.page("report", "--month", "2025-12", "--json"))["forecast"] is None
