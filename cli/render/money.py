"""The pages about money: costs, budget, targets, reconciliation with the provider, projection."""

import textwrap
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from steno.cli.render import paint, words
from steno.cli.render.words import short
from steno.engine.decide.budget import Account, BudgetAlert, Forecast
from steno.engine.money.bill import Line
from steno.engine.money.estimate import Estimate, Month, Workload
from steno.engine.money.reconcile import Reconciliation
from steno.engine.money.report import Measure
from steno.engine.state.policy import CENT
from steno.engine.wire import money, rate
from steno.events.clock import SECOND, duration
from steno.projections.answers.costs import LINES, CostReport, CostRow
from steno.projections.answers.owners import OwnerStanding
from steno.projections.answers.waste import WASTED, WasteReport

_HEADS = {"vm": "MACHINE", "run": "RUN", "day": "DAY", "user": "USER", "gpu": "GPU"}
_BUSY = Line.BUSY.value
_PARTS = ("working", "idle inside", "unknown")  # of busy
_BAR = 40


def costs_table(report: CostReport, columns: int) -> str:
    """A line per row, then the sum; leaves out columns that are zero everywhere, and the parts of busy time where no
    sample says anything.
    """
    lines = [line.value for line in LINES if report.total.lines[line.value]]
    busy = report.total.busy
    if (busy.working_seconds or busy.idle_inside_seconds) and _BUSY in lines:
        place = lines.index(_BUSY) + 1
        lines[place:place] = _PARTS
    spot = report.total.spot_usd > 0
    head = (_HEADS[report.by], *map(str.upper, lines), *(("SPOT",) if spot else ()), "TIME", "TOTAL")
    rows = [_row(row, lines, spot=spot) for row in (*report.rows, report.total)]
    rows[-1] = tuple(paint.bold(cell) for cell in rows[-1])
    last = len(head) - 1
    spare = [last - 1, *([last - 2] if spot else []), *reversed(range(1, 1 + len(lines)))]
    drawn = [paint.fitted(head, rows, columns, right=range(1, last + 1), spare=spare)]
    if _PARTS[0] in lines:
        drawn.append(paint.dim("Working, idle inside and unknown are the parts of busy, by samples of the GPUs."))
    if report.archived_usd:
        drawn.append(paint.dim(f"{short(report.archived_usd)} of the total is from archives; no budget counts it"))
    if report.clock_jumps:
        drawn.append(paint.dim("The wall clock was set meanwhile, which changed no bill: see `steno incidents`."))
    least, most = short(report.low_usd), short(report.high_usd)
    if least != most:
        drawn.append(paint.dim(f"The true cost is {least}–{most}; exact start and end times are unknown."))
    return "\n\n".join(drawn)


def _row(row: CostRow, lines: list[str], *, spot: bool) -> tuple[str, ...]:
    amounts = row.lines | dict(
        zip(_PARTS, (row.busy.working_usd, row.busy.idle_inside_usd, row.busy.unknown_usd), strict=True)
    )
    return (
        paint.cut(row.label, 36) + (paint.dim(" (archive)") if row.archive else ""),
        *(short(amounts[line] or None) for line in lines),
        *((short(row.spot_usd),) if spot else ()),
        words.lasted(row.machine_seconds),
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
            *(_alert(alert, total) for alert in account.alerts),
        ]
    )
    if total:
        width = min(_BAR, columns - 2)
        spent = min(width, round(account.spent * width / total))
        behind = min(width - spent, round(account.committed * width / total))
        lines += ["", "█" * spent + "▒" * behind + "░" * (width - spent - behind)]
    return "\n".join(lines)


def owners_table(owners: Sequence[OwnerStanding], columns: int) -> str:
    """A row per owner; leaves out what nobody has and no limit names."""
    head = ("OWNER", "SPENT", "COMMITTED", "LEFT", "TODAY", "GPU-HOURS", "MACHINES", "RUNS", "WAITING")
    rows = [
        (
            paint.cut(owner.owner, 36),
            _of(short(owner.spent), None if owner.budget is None else short(owner.budget)),
            short(owner.committed),
            "–" if owner.left is None else short(owner.left) if owner.left >= 0 else f"−{short(-owner.left)}",
            _of(short(owner.today), None if owner.daily is None else short(owner.daily)),
            _of(f"{owner.gpu_hours:,.4g}", None if owner.gpu_hours_limit is None else f"{owner.gpu_hours_limit:,g}"),
            _of(str(owner.machines), None if owner.machines_limit is None else str(owner.machines_limit)),
            _of(str(owner.runs), None if owner.runs_limit is None else str(owner.runs_limit)),
            str(owner.waiting),
        )
        for owner in owners
    ]
    note = paint.dim("Spent and today are the high bounds of bills, with the idle time after an owner's runs.")
    notes = (note for owner in owners for note in owner.notes)
    return "\n".join((paint.fitted(head, rows, columns, right=range(1, len(head)), spare=(8, 5, 2)), "", note, *notes))


def _of(has: str, most: str | None) -> str:
    return has if most is None else f"{has} of {most}"


def _alert(alert: BudgetAlert, total: int) -> tuple[str, str]:
    state = "reached; `steno up` sends it" if alert.reached else "not reached"
    if alert.told_at_position is not None:
        state = f"sent at position {alert.told_at_position}"
    return f"alert at {alert.threshold * 100:g} %", f"{short(total * round(alert.threshold * 1000) // 1000)}, {state}"


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
            left = duration(account.exhausted_at - now)
            return f"{words.moment(account.exhausted_at)}, in {left} at the average of the last 24 hours"
        case _:
            return "never at the average of the last 24 hours: nothing was spent"


def measures(figures: Sequence[Measure], columns: int) -> str:
    """A row per figure; `–` if nothing was measured."""
    head = ("FIGURE", "TARGET", "MEDIAN", "MEAN", "95 %", "WORST", "OF", "MET", "WHAT")
    met = {None: "–", True: click.style("yes", fg="green"), False: click.style("no", fg="red")}

    def text(measure: Measure, value: int | None) -> str:
        return duration(value) if measure.unit == "time" and value is not None else short(value)

    rows = [
        (
            measure.name,
            measure.target,
            *(text(measure, value) for value in (measure.median, measure.mean, measure.p95, measure.worst)),
            str(measure.count),
            met[measure.met],
            paint.dim(measure.what),
        )
        for measure in figures
    ]
    return paint.fitted(head, rows, columns, right=(2, 3, 4, 5, 6), spare=(8, 2, 5, 6))


def measure_object(measure: Measure) -> dict[str, Any]:
    """Times in seconds, money as decimal strings of US dollars."""
    value = msgspec.structs.asdict(measure) | {"unit": "seconds" if measure.unit == "time" else "usd"}
    for name in ("median", "mean", "p95", "worst", "limit"):
        if value[name] is not None:
            value[name] = money(value[name]) if measure.unit == "money" else value[name] / SECOND
    return value


def reconciliation_page(runs: Sequence[Reconciliation], everything: Reconciliation, columns: int) -> str:
    """A row per run, then the total; the causes sum to the difference exactly."""
    head = ("RUN", "OURS", "THEIRS", "DIFFERENCE", "BECAUSE OF")
    rows = []
    for run in runs:
        ordered = sorted(run.lines, key=lambda line: -abs(line.amount))
        causes = ", ".join(f"{line.cause.value} {_signed(line.amount)}" for line in ordered)
        rows.append((*_figures(run.name or "–", run), causes))
    drawn = paint.table(head, [*rows, (*_figures("everything", everything), "")], right=(1, 2, 3)).splitlines()
    lines = [line if paint.width(line) <= columns else paint.cut(line, columns) for line in drawn]
    summed = [(line.cause.value, line.amount) for line in everything.lines]
    difference = 0 if everything.theirs is None else everything.ours - everything.theirs
    width = max((len(name) for name, _ in summed), default=0)
    lines += ["", paint.bold("Ours minus theirs")]
    lines += [f"  {name.ljust(width)}  {_signed(amount):>12}" for name, amount in (*summed, ("total", difference))]
    if any(run.divergence for run in runs):
        lines += ["", "unexplained: the provider's figure does not follow from its own submissions"]
    return "\n".join(lines)


def _figures(name: str, entry: Reconciliation) -> tuple[str, str, str, str]:
    difference = "–" if entry.theirs is None else _signed(entry.ours - entry.theirs)
    return paint.cut(name, 32), short(entry.ours), short(entry.theirs), difference


def _signed(amount: int) -> str:
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{short(abs(amount))}"


def estimate_page(
    given: Workload, result: Estimate, gpu: str, how: str, measured: Sequence[Measure], columns: int
) -> str:
    """`how`: where the time of a start comes from."""
    idle = "are never ended" if given.idle_timeout is None else f"end after {duration(given.idle_timeout)}"
    runs_a_day = words.count(given.runs_per_day, "run")
    lines = [
        f"{runs_a_day} a day of {duration(given.run)} each, on {gpu} at {rate(given.hourly)}.",
        f"A machine starts in {duration(given.provisioning)} ({how}).",
        f"Idle machines {idle}.",
    ]
    cold, warm = given.provisioning + given.run, given.warm_start + given.run
    runs = [("on a new machine", duration(cold), short(result.cold))]
    runs.append(("on a warm machine", duration(warm), short(result.warm)))
    months = [
        (month.pattern, duration(month.machine_time), _cents(month.cost), _against(month)) for month in result.months
    ]
    pays = "Reuse never pays: set an idle timeout." if given.idle_timeout is None else "Reuse costs nothing."
    if result.pays_from is not None:
        pays = f"Reuse pays from {result.pays_from} runs in a row; each gap between two runs counts against it."
    lasting = ", ".join(
        f"{month.budget_months} ({month.pattern})" for month in result.months if month.budget_months is not None
    )
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


def _against(month: Month) -> str:
    before = month.cost + month.saved
    if not month.saved or not before:
        return "–"
    share = f"{abs(month.saved) / before:.1%}".replace("%", " %")
    return f"saves {_cents(month.saved)}, {share}" if month.saved > 0 else f"costs {_cents(-month.saved)} more, {share}"


def _cents(amount: int) -> str:
    return short((amount + CENT // 2) // CENT * CENT)


def estimate_object(given: Workload, result: Estimate, gpu: str, measured: Sequence[Measure]) -> dict[str, Any]:
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
        "cold_usd": money(result.cold),
        "warm_usd": money(result.warm),
        "months": [
            {
                "pattern": month.pattern,
                "machine_seconds": month.machine_time / SECOND,
                "cost_usd": money(month.cost),
                "saved_usd": money(month.saved),
                "budget_months": month.budget_months,
            }
            for month in result.months
        ],
        "reuse_pays_from_runs": result.pays_from,
        "measures": [measure_object(measure) for measure in measured],
    }


def waste_page(report: WasteReport, columns: int) -> str:
    """The waste of each row, and what to ask for next time."""
    kinds = (*WASTED, "unknown", "busy")
    head = (_HEADS[report.by], "WASTED", *(kind.replace("_", " ").upper() for kind in kinds))
    rows = [
        (paint.cut(row.label, 36), short(row.wasted_usd), *(_spent(row.usd[kind], row.seconds[kind]) for kind in kinds))
        for row in (*report.rows, report.total)
    ]
    page = paint.fitted(head, rows, columns, right=range(1, len(head)), spare=(6, 5))
    if blind := report.total.unknown_runs:
        page += f"\n{paint.dim(words.count(blind, 'run') + ' without samples of GPUs: unknown, not waste')}"
    fields = map(msgspec.structs.astuple, report.advice)
    asks = [(*line[:3], *map("{:g}".format, line[3:7]), short(line[7])) for line in fields]
    heads = ("RUN", "USER", "RESOURCE", "ASKED", "RUNS", "USED", "NEXT TIME", "BUSY")
    return f"{page}\n\n{paint.table(heads, asks, right=range(3, 8))}" if asks else page


def _spent(usd: int, seconds: float) -> str:
    return f"{short(usd)} {words.lasted(seconds)}" if seconds else "–"
