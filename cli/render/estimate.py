"""The page of an estimate."""

import textwrap
from collections.abc import Sequence
from typing import Any

from cli.render import paint, words
from cli.render.money import measure_object, measures
from cli.render.words import short
from engine.amounts import money, rate
from engine.money.estimate import Estimate, Month, Workload
from engine.money.report import Measure
from engine.policy import CENT
from events.clock import SECOND, span


def estimate_page(
    given: Workload, found: Estimate, gpu: str, how: str, measured: Sequence[Measure], columns: int
) -> str:
    """`how`: where the time of a start comes from."""
    idle = "are never ended" if given.idle_timeout is None else f"end after {span(given.idle_timeout)}"
    lines = [
        f"{words.count(given.runs_per_day, 'run')} a day of {span(given.run)} each, on {gpu} at {rate(given.hourly)}.",
        f"A machine starts in {words.duration(given.provisioning)} ({how}).",
        f"Idle machines {idle}.",
    ]
    cold, warm = given.provisioning + given.run, given.warm_start + given.run
    runs = [("on a new machine", words.duration(cold), short(found.cold))]
    runs.append(("on a warm machine", words.duration(warm), short(found.warm)))
    months = [(one.pattern, words.duration(one.machine_time), _cents(one.cost), _against(one)) for one in found.months]
    pays = "Reuse never pays: set an idle timeout." if given.idle_timeout is None else "Reuse costs nothing."
    if found.pays_from is not None:
        pays = f"Reuse pays from {found.pays_from} runs in a row; each gap between two runs counts against it."
    lasting = ", ".join(f"{one.budget_months} ({one.pattern})" for one in found.months if one.budget_months is not None)
    if lasting:
        lasts = f"Months that the budget of {short(given.budget)} lasts: {lasting}."
        pays += "\n" + textwrap.fill(lasts, min(columns, 100))
    parts = [
        "\n".join(lines),
        paint.table(("A RUN", "TIME", "COST"), runs, right=(1, 2)),
        paint.table(("A MONTH", "MACHINE TIME", "COST", "AGAINST A NEW MACHINE EACH"), months, right=(1, 2)),
        pays,
    ]
    if measured:
        parts += [paint.bold("Measured in this record"), measures(measured, columns)]
    return "\n\n".join(parts)


def _against(one: Month) -> str:
    before = one.cost + one.saved
    if not one.saved or not before:
        return "–"
    share = f"{abs(one.saved) / before:.1%}".replace("%", " %")
    return f"saves {_cents(one.saved)}, {share}" if one.saved > 0 else f"costs {_cents(-one.saved)} more, {share}"


def _cents(amount: int) -> str:
    return short((amount + CENT // 2) // CENT * CENT)


def estimate_object(given: Workload, found: Estimate, gpu: str, measured: Sequence[Measure]) -> dict[str, Any]:
    times = ("idle_timeout", "run", "provisioning", "warm_start")
    seconds = {f"{name}_seconds": getattr(given, name) for name in times}
    return {
        "inputs": {
            "gpu": gpu,
            "usd_per_hour": money(given.hourly),
            "runs_per_day": given.runs_per_day,
            "days": given.days,
            **{name: None if value is None else value / SECOND for name, value in seconds.items()},
        },
        "cold_usd": money(found.cold),
        "warm_usd": money(found.warm),
        "months": [
            {
                "pattern": one.pattern,
                "machine_seconds": one.machine_time / SECOND,
                "cost_usd": money(one.cost),
                "saved_usd": money(one.saved),
                "budget_months": one.budget_months,
            }
            for one in found.months
        ],
        "reuse_pays_from_runs": found.pays_from,
        "measures": [measure_object(one) for one in measured],
    }
