"""The pages about money: costs, budget, targets, reconciliation with the provider, projection."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from cli.render import paint, words
from cli.render.words import short
from engine.amounts import money
from engine.decide.budget import Account, BudgetAlert, Forecast
from engine.money.reconcile import Reconciliation
from engine.money.report import Measure
from events.clock import SECOND
from projections.models.costs import LINES, CostReport, CostRow

_HEADS = {"vm": "MACHINE", "run": "RUN", "day": "DAY", "user": "USER", "gpu": "GPU"}
_BAR = 40


def costs_table(report: CostReport, columns: int) -> str:
    """One line per row, then the sum; leaves out columns that are zero everywhere."""
    shown = [line.value for line in LINES if report.total.lines[line.value]]
    spot = report.total.spot_usd > 0
    head = (_HEADS[report.by], *map(str.upper, shown), *(("SPOT",) if spot else ()), "TIME", "TOTAL")
    rows = [_row(row, shown, spot=spot) for row in (*report.rows, report.total)]
    rows[-1] = tuple(paint.bold(cell) for cell in rows[-1])
    last = len(head) - 1
    spare = [last - 1, *([last - 2] if spot else []), *reversed(range(1, 1 + len(shown)))]
    drawn = [paint.fitted(head, rows, columns, right=range(1, last + 1), spare=spare)]
    if report.archived_usd:
        drawn.append(paint.dim(f"{short(report.archived_usd)} of the total is from archives; no budget counts it"))
    if report.clock_jumps:
        drawn.append(paint.dim("The wall clock was set meanwhile, which changed no bill: see `steno incidents`."))
    least, most = short(report.low_usd), short(report.high_usd)
    if least != most:
        drawn.append(paint.dim(f"The true cost is {least}–{most}; exact start and end times are unknown."))
    return "\n\n".join(drawn)


def _row(row: CostRow, shown: list[str], *, spot: bool) -> tuple[str, ...]:
    return (
        paint.cut(row.label, 36) + (paint.dim(" (archive)") if row.archive else ""),
        *(short(row.lines[line] or None) for line in shown),
        *((short(row.spot_usd),) if spot else ()),
        words.duration(round(row.machine_seconds * SECOND)),
        short(row.total_usd),
    )


def budget_page(account: Account, now: int, columns: int) -> str:
    total = account.total
    gone = ("spent", short(account.spent) + ("" if total is None else paint.dim(f"  {_share(account)} of the budget")))
    committed = f"{short(account.committed)}  {paint.dim('the worst-case cost of live runs and machines')}"
    rates = [
        ("now", f"{short(account.rate_now)} an hour"),
        ("last 24 hours", f"{short(account.spent_day)}, {short(account.burn_rate_hourly)} an hour on average"),
    ]
    if total is None:
        none = ("budget", f"none  {paint.dim('budget.total sets one')}")
        return "\n".join(paint.facts([none, gone, ("committed", committed), *rates]))
    lines = paint.facts(
        [
            ("budget", short(total)),
            gone,
            ("committed", committed),
            ("remaining", f"{short(account.remaining)}  {paint.dim('budget − spent')}"),
            ("for new runs", f"{short(account.available)}  {paint.dim('remaining − committed')}"),
            *rates,
            ("used up", _exhausted(account, now)),
            *(_alert(one, total) for one in account.alerts),
        ]
    )
    if total:
        width = min(_BAR, columns - 2)
        spent = min(width, round(account.spent * width / total))
        behind = min(width - spent, round(account.committed * width / total))
        lines += ["", "█" * spent + "▒" * behind + "░" * (width - spent - behind)]
    return "\n".join(lines)


def _alert(one: BudgetAlert, total: int) -> tuple[str, str]:
    said = "reached; `steno up` sends it" if one.reached else "not reached"
    if one.told_at_position is not None:
        said = f"sent at position {one.told_at_position}"
    return f"alert at {one.threshold * 100:g} %", f"{short(total * round(one.threshold * 1000) // 1000)}, {said}"


def _share(account: Account) -> str:
    """`8.3 %`; `< 0.1 %` where a little was spent."""
    return "< 0.1 %" if account.spent > 0 and not account.used_pct else f"{account.used_pct} %"


def _exhausted(account: Account, now: int) -> str:
    match account.forecast:
        case Forecast.USED_UP:
            return paint.bold("now")
        case Forecast.TOO_EARLY:
            return "unknown: a forecast needs 24 hours since the first machine"
        case Forecast.DATED if account.exhausted_at is not None:
            left = words.duration(account.exhausted_at - now)
            return f"{words.moment(account.exhausted_at)}, in {left} at the average of the last 24 hours"
        case _:
            return "never: nothing was spent in the last 24 hours"


def measures(figures: Sequence[Measure], columns: int) -> str:
    """One row per figure; `–` if nothing was measured."""
    head = ("FIGURE", "TARGET", "MEDIAN", "MEAN", "95 %", "WORST", "OF", "MET", "WHAT")
    met = {None: "–", True: click.style("yes", fg="green"), False: click.style("no", fg="red")}
    rows = [
        (
            one.name,
            one.target,
            *(_measured(one, value) for value in (one.median, one.mean, one.p95, one.worst)),
            str(one.count),
            met[one.met],
            paint.dim(one.what),
        )
        for one in figures
    ]
    return paint.fitted(head, rows, columns, right=(2, 3, 4, 5, 6), spare=(8, 2, 5, 6))


def _measured(one: Measure, value: int | None) -> str:
    return words.duration(value) if one.unit == "time" and value is not None else short(value)


def measure_object(one: Measure) -> dict[str, Any]:
    """Times in seconds, money as decimal strings of US dollars."""
    found = msgspec.structs.asdict(one) | {"unit": "seconds" if one.unit == "time" else "usd"}
    for name in ("median", "mean", "p95", "worst", "limit"):
        if found[name] is not None:
            found[name] = money(found[name]) if one.unit == "money" else found[name] / SECOND
    return found


def reconciliation_page(runs: Sequence[Reconciliation], everything: Reconciliation, columns: int) -> str:
    """One row per run, then the total; the causes sum to the difference exactly."""
    head = ("RUN", "OURS", "THEIRS", "DIFFERENCE", "BECAUSE OF")
    rows = []
    for one in runs:
        ordered = sorted(one.lines, key=lambda line: -abs(line.amount))
        causes = ", ".join(f"{line.cause.value} {_signed(line.amount)}" for line in ordered)
        rows.append((*_figures(one.name or "–", one), causes))
    drawn = paint.table(head, [*rows, (*_figures("everything", everything), "")], right=(1, 2, 3)).splitlines()
    lines = [line if paint.width(line) <= columns else paint.cut(line, columns) for line in drawn]
    summed = [(line.cause.value, line.amount) for line in everything.lines]
    difference = 0 if everything.theirs is None else everything.ours - everything.theirs
    width = max((len(name) for name, _ in summed), default=0)
    lines += ["", paint.bold("Ours minus theirs")]
    lines += [f"  {name.ljust(width)}  {_signed(amount):>12}" for name, amount in (*summed, ("total", difference))]
    if any(one.divergence for one in runs):
        lines += ["", "unexplained: the provider's figure does not follow from its own submissions"]
    return "\n".join(lines)


def _figures(name: str, one: Reconciliation) -> tuple[str, str, str, str]:
    difference = "–" if one.theirs is None else _signed(one.ours - one.theirs)
    return paint.cut(name, 32), short(one.ours), short(one.theirs), difference


def _signed(amount: int) -> str:
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{short(abs(amount))}"
