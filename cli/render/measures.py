"""What was measured beside its target, as a table and as JSON values."""

from collections.abc import Sequence

import click

from cli.render import paint, words
from engine.money.performance import Measure
from engine.money.words import money
from events.clock import SECOND


def measures(figures: Sequence[Measure], columns: int) -> str:
    """One row a figure; `–` where nothing was measured."""
    head = ("FIGURE", "TARGET", "MEDIAN", "MEAN", "95 %", "WORST", "OF", "MET", "WHAT")
    rows = [
        (
            one.name,
            one.target,
            *(_shown(one, value) for value in (one.median, one.mean, one.p95, one.worst)),
            str(one.count),
            _met(one),
            paint.dim(one.what),
        )
        for one in figures
    ]
    return paint.fitted(head, rows, columns, right=(2, 3, 4, 5, 6), spare=(8, 2, 5, 6))


def measure_object(one: Measure) -> dict[str, object]:
    """One figure as JSON values: times in seconds, money as decimal strings of US dollars."""

    def value(amount: int | None) -> float | str | None:
        if amount is None or one.unit == "money":
            return money(amount)
        return amount / SECOND

    return {
        "name": one.name,
        "what": one.what,
        "unit": "seconds" if one.unit == "time" else "usd",
        "count": one.count,
        "median": value(one.median),
        "mean": value(one.mean),
        "p95": value(one.p95),
        "worst": value(one.worst),
        "target": one.target,
        "limit": value(one.limit),
        "met": one.met,
    }


def _shown(one: Measure, value: int | None) -> str:
    if value is None:
        return "–"
    return words.duration(value) if one.unit == "time" else words.short(money(value))


def _met(one: Measure) -> str:
    if one.met is None:
        return "–"
    return click.style("yes", fg="green") if one.met else click.style("no", fg="red")
