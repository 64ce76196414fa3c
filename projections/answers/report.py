"""The report of a month: spend, waste, waits, failures by cause, machines, and the provider's own figures. Its money is
that of `steno costs` of the same days.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from steno.engine.money.daily import month_days
from steno.engine.money.forecast import MonthForecast, month_forecast
from steno.engine.money.reconcile import Cause
from steno.engine.state.policy import DAY, Policy
from steno.engine.state.states import State
from steno.engine.wire import Cell, Shape, Tabled, Time, Usd, dollars, usd
from steno.events.store.read import Reader
from steno.projections.answers.costs import By, ChartRange, CostReport, costs, starts
from steno.projections.answers.output_cause import OutputCauses
from steno.projections.answers.waste import WASTED, waste
from steno.projections.read_models.cost_rows import decode_against
from steno.projections.read_models.view import View

_SECTIONS: Final[dict[By, str]] = {"user": "By user", "gpu": "By GPU", "day": "By day", "vm": "By machine"}
_THEIRS: Final = "Beside the provider's own figures: runs that ended, whole costs"


class ReportRow(Shape, frozen=True):
    """A line of a table; null: it has no such figure."""

    section: str
    name: str
    detail: str = ""
    runs: int | None = None
    seconds: float | None = None
    usd: Usd | None = None


class MonthReport(Tabled, frozen=True):
    """A month (UTC), up to the newest poll."""

    month: str
    known_to: Time | None
    unknown: Annotated[str | None, Meta(description="Why there are no figures.")]
    total_usd: Usd
    low_usd: Usd
    high_usd: Usd
    archived_usd: Usd  # the part of the total from archives; no budget counts it
    forecast: Annotated[MonthForecast | None, Meta(description="Null: it is not the present month.")]
    rows: tuple[ReportRow, ...]

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield ReportRow.__struct_fields__
        for row in self.rows:
            *cells, cost = msgspec.structs.astuple(row)
            yield *cells, None if cost is None else dollars(cost)


USED_UP: Final = "used up on"


def forecast(view: View, policy: Policy, now: int) -> MonthForecast:
    """The cost of the month of `now`, and the day on which the budget is used up; without archives."""
    spent = Counter[int]()
    for machine in view.store.vms.days(0, live=True):
        for part in machine.days.spend:
            spent[part.day] += part.cost
    return month_forecast(spent, view.last_at, now, view.account(policy, now).remaining)


def month_lines(forecast: MonthForecast) -> list[tuple[str, str]]:
    """The forecast: what the month costs, how often such bands held, when the budget is used up."""
    if forecast.unknown is not None:
        return [(f"cost of {forecast.month}", f"unknown: {forecast.unknown}")]
    low, best, high = (usd(round(cost or 0, -4)) for cost in (forecast.low_usd, forecast.best_usd, forecast.high_usd))
    held = f"such a band held on {forecast.held} of {forecast.checked} earlier days of this record"
    first, used, last = (day or "more than a year ahead" for day in forecast.used_up)
    dated = forecast.used_up[0] is not None
    return [
        (f"cost of {forecast.month}", f"about {best}, {forecast.level_percent} % between {low} and {high}"),
        ("hit rate", held if forecast.checked else "unknown: no earlier day had a forecast"),
        (USED_UP, f"{used}, between {first} and {last}" if dated else f"unknown: {forecast.used_up_unknown}"),
    ]


def month_report(record: Reader, view: View, month: str, policy: Policy, now: int, causes: OutputCauses) -> MonthReport:
    """Raises `ValueError`: `month` is not `YYYY-MM`."""
    first, last = month_days(month)
    of = ChartRange(since=first * DAY, until=last * DAY, now=max(now, first * DAY))
    tables = {by: costs(view.store, by, of).report for by in _SECTIONS}
    whole, of_runs = tables["user"], tuple(_of_runs(record, view, month, causes))
    unknown = f"{month} has not begun" if first > now // DAY else None
    if not (unknown or whole.rows or of_runs):
        unknown = f"the record has no cost and no ended run in {month}; `steno costs --by day` lists its days"
    sums = whole.total.total_usd, whole.low_usd, whole.high_usd, whole.archived_usd
    names = "total", "at least", "at most", "of it from archives, which no budget counts"
    summed = (ReportRow("Sum up to the newest poll", name, usd=cost) for name, cost in zip(names, sums, strict=True))
    ahead = forecast(view, policy, now) if first <= now // DAY <= last else None
    lines = (ReportRow("Forecast", *line) for line in ([] if ahead is None else month_lines(ahead)))
    rows = (*summed, *lines, *_of_costs(tables), *_of_use(view, of), *of_runs)
    return MonthReport(month, view.last_at, unknown, *sums, ahead, rows)


def _of_costs(tables: dict[By, CostReport]) -> Iterator[ReportRow]:
    lines = tables["user"].total.lines.items()
    yield from (ReportRow("By purpose", line, usd=cost) for line, cost in lines if cost)
    for by, report in tables.items():
        for row in report.rows:
            yield ReportRow(_SECTIONS[by], row.label, seconds=row.machine_seconds, usd=row.total_usd)


def _of_use(view: View, of: ChartRange) -> Iterator[ReportRow]:
    report, times = waste(view, "user", of), starts(view.store, of)
    for row in (*report.rows, report.total):
        for kind in (*WASTED, "unknown"):
            if row.seconds[kind]:
                yield ReportRow("Waste", row.label, kind, seconds=row.seconds[kind], usd=row.usd[kind])
    for name, each in (("cold", times.cold), ("warm", times.warm)):
        ranks = {"median": each.median_seconds, "95 %": each.p95_seconds, "longest": each.worst_seconds}
        for rank, length in ranks.items() if each.count else ():
            yield ReportRow("Waits from submission to running", name, rank, each.count, length)


def _of_runs(record: Reader, view: View, month: str, causes: OutputCauses) -> Iterator[ReportRow]:
    """The runs that ended in a month: their states, the machines they ended on, the failures, and all beside the
    provider's figures.
    """
    hosts, by_machine = dict[str, str](), defaultdict[str, Counter[bool]](Counter)
    ended, failed, spent = Counter[str](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    amounts, ours, theirs, compared = Counter[Cause](), 0, 0, 0
    for row in view.store.runs.all(hidden=False):
        run = row.public
        if not row.ended or not (run.finished_at or "").startswith(month) or run.tasks or run.kind is not None:
            continue
        ended[row.state] += 1
        if run.vm_id is not None:
            hosts[run.vm_id] = hosts.get(run.vm_id) or _host(view, run.vm_id)
            by_machine[hosts[run.vm_id]][row.state == State.SUCCEEDED.value] += 1
        if row.state != State.SUCCEEDED.value:
            output = causes.of(record, run, row.provider_id)
            key = f"{row.state}: {row.reason}", "unknown" if output is None else output.cause
            failed[key] += 1
            spent[key] += row.cost or 0
        if row.against is not None:
            against, compared = decode_against(row.against), compared + 1
            ours, theirs = ours + against.ours, theirs + (against.theirs or 0)
            amounts.update({Cause(name): amount for name, amount in against.causes})
    yield from (ReportRow("Ended runs", state, runs=ended[state]) for state in sorted(ended))
    for name, good in sorted(by_machine.items(), key=lambda item: (-item[1][False], item[0])):
        yield ReportRow(
            "Ended runs by machine", name, f"{good[False]} of {good.total()} without success", runs=good.total()
        )
    for key in sorted(failed, key=lambda key: (-failed[key], key)):
        yield ReportRow("Failures by cause", *key, runs=failed[key], usd=spent[key])
    if compared:
        yield ReportRow(_THEIRS, "Steno's figure", runs=compared, usd=ours)
        yield ReportRow(_THEIRS, "the provider's figure", runs=compared, usd=theirs)
    yield from (ReportRow(_THEIRS, "difference", cause.value, usd=amounts[cause]) for cause in Cause if amounts[cause])


def _host(view: View, vm_id: str) -> str:
    """A machine's name and its host, as names come again. A node of a cluster is one host, whichever job has it."""
    facts = view.machine(vm_id).facts
    name, host = facts.name or facts.hostname or vm_id, facts.hostname or vm_id
    return name if host.startswith(name) else f"{name} ({host})"
