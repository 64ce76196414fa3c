"""The pages about money: costs, budget, targets, reconciliation with the provider, projection."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from cli.render import paint, words
from engine.money.projection import ClaimVerdict
from engine.money.words import money, rate, usd
from events.clock import SECOND, span
from projections.models.money_objects import LINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.decide.budget import Account
    from engine.fold.world_codec import WorldState
    from engine.money.costs import Line
    from engine.money.projection import Claim, Inputs
    from engine.money.reconcile import Difference, Reconciliation
    from engine.money.report import Measure, Report, ReportRow
    from engine.policy import Policy

_HEADS = {"vm": "MACHINE", "run": "RUN", "day": "DAY", "user": "USER", "gpu": "GPU"}


def costs_table(report: Report, columns: int) -> str:
    """One row each and the sum; a column that is zero everywhere is left out."""
    shown = [line for line in LINES if report.total.lines.get(line)]
    spot = report.total.spot > 0
    head = (_HEADS[report.by], *(line.value.upper() for line in shown), *(("SPOT",) if spot else ()), "TIME", "TOTAL")
    rows = [_row(row, shown, spot=spot) for row in (*report.rows, report.total)]
    rows[-1] = tuple(paint.bold(cell) for cell in rows[-1])
    last = len(head) - 1
    spare = [last - 1, *([last - 2] if spot else []), *reversed(range(1, 1 + len(shown)))]
    drawn = paint.fitted(head, rows, columns, right=range(1, last + 1), spare=spare)
    if report.archived:
        imported = f"{words.short(money(report.archived))} of the total is from archives; no budget counts it"
        drawn = f"{drawn}\n\n{paint.dim(imported)}"
    least, most = words.short(money(report.low)), words.short(money(report.high))
    if least == most:
        return drawn
    bounds = f"The true cost is {least}–{most}; exact start and end times are unknown."
    return f"{drawn}\n\n{paint.dim(bounds)}"


def _row(row: ReportRow, shown: list[Line], *, spot: bool) -> tuple[str, ...]:
    return (
        paint.cut(row.label, 36) + (paint.dim(" (archive)") if row.archive else ""),
        *(words.short(money(row.lines[line])) if row.lines.get(line) else "–" for line in shown),
        *((words.short(money(row.spot)),) if spot else ()),
        words.duration(row.time),
        words.short(money(row.total)),
    )


_BAR = 40


def budget_page(account: Account, state: WorldState, policy: Policy, now: int, columns: int) -> str:
    """The figures, a bar of what is used, and the alerts."""
    rows = [
        ("budget", "none" if account.total is None else _usd(account.total)),
        ("spent", _usd(account.spent) + _percent(account.spent, account.total)),
        ("committed", f"{_usd(account.committed)}  {paint.dim('the worst-case cost of live runs and machines')}"),
        ("remaining", _usd(account.remaining)),
        ("for new runs", _usd(account.available)),
        ("now", f"{_usd(account.rate_now)} an hour"),
        ("last 24 hours", f"{_usd(account.spent_day)}, {_usd(account.burn_rate_hourly)} an hour on average"),
        ("used up", _exhausted(account, now)),
        *_alerts(account, state, policy),
    ]
    width = max(len(label) for label, _ in rows)
    lines = [f"{paint.dim(label.ljust(width))}  {value}" for label, value in rows]
    if account.total:
        lines += ["", _bar(account, min(_BAR, columns - 2))]
    return "\n".join(lines)


def _alerts(account: Account, state: WorldState, policy: Policy) -> list[tuple[str, str]]:
    if account.total is None:
        return []
    found = []
    for threshold in policy.thresholds:
        amount = words.short(money(account.total * threshold // 1000))
        told = state.crossed.get(f"{threshold}/{account.total}")
        if told is not None:
            said = f"sent at position {told}"
        elif threshold in account.crossed:
            said = "reached; `steno up` sends it"
        else:
            said = "not reached"
        found.append((f"alert at {threshold / 10:g} %", f"{amount}, {said}"))
    return found


def _exhausted(account: Account, now: int) -> str:
    if account.remaining is not None and account.remaining <= 0:
        return paint.bold("now")
    if account.exhausted_at is None:
        return "never at this rate"
    wait = words.duration(account.exhausted_at - now)
    return f"{words.moment(account.exhausted_at)}, in {wait} at this rate"


def _bar(account: Account, columns: int) -> str:
    """Spent, committed, and left."""
    total = account.total or 1
    spent = min(columns, round(account.spent * columns / total))
    behind = min(columns - spent, round(account.committed * columns / total))
    return "█" * spent + "▒" * behind + "░" * (columns - spent - behind)


def _percent(part: int, whole: int | None) -> str:
    return "" if not whole else paint.dim(f"  {part * 100 / whole:.1f} %")


def _usd(amount: int | None) -> str:
    return "–" if amount is None else words.short(money(amount))


def measures(figures: Sequence[Measure], columns: int) -> str:
    """One row per figure; `–` if nothing was measured."""
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


def reconciliation_page(
    runs: Sequence[Reconciliation], everything: Reconciliation, state: WorldState, columns: int
) -> str:
    """One row per run, then the total; the causes sum to the difference exactly."""
    head = ("RUN", "OURS", "THEIRS", "DIFFERENCE", "BECAUSE OF")
    rows = [(*_figures(_run_name(one, state), one), _causes(one.lines)) for one in runs]
    total = _figures("everything", everything)
    drawn = paint.fitted(head, [*rows, (*total, "")], columns + 60, right=(1, 2, 3), spare=())
    lines = ["\n".join(_cut_line(line, columns) for line in drawn.splitlines()), "", paint.bold("Ours minus theirs")]
    width = max((len(line.cause.value) for line in everything.lines), default=0)
    lines += [f"  {line.cause.value.ljust(width)}  {_signed(line.amount):>12}" for line in everything.lines]
    lines.append(f"  {'total'.ljust(width)}  {_signed(_difference(everything) or 0):>12}")
    if any(one.divergence for one in runs):
        lines += ["", "unexplained: the provider's figure does not follow from its own submissions"]
    return "\n".join(lines)


def _figures(name: str, one: Reconciliation) -> tuple[str, str, str, str]:
    difference = _difference(one)
    return (
        paint.cut(name, 32),
        words.short(money(one.ours)),
        words.short(money(one.theirs)),
        "–" if difference is None else _signed(difference),
    )


def _causes(lines: Sequence[Difference]) -> str:
    ordered = sorted(lines, key=lambda line: -abs(line.amount))
    return ", ".join(f"{line.cause.value} {_signed(line.amount)}" for line in ordered)


def _cut_line(line: str, columns: int) -> str:
    return line if paint.width(line) <= columns else paint.cut(line, columns)


def _difference(one: Reconciliation) -> int | None:
    return None if one.theirs is None else one.ours - one.theirs


def _signed(amount: int) -> str:
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{words.short(money(abs(amount)))}"


def _run_name(one: Reconciliation, state: WorldState) -> str:
    run = state.runs.get(one.run_id or "")
    return (None if run is None else run.name) or one.run_id or "–"


_COLOURS = {
    ClaimVerdict.HOLDS: "green",
    ClaimVerdict.PARTLY: "yellow",
    ClaimVerdict.WRONG: "red",
    ClaimVerdict.ADDED: "bright_black",
}


def projection_page(inputs: Inputs, claims: Sequence[Claim], columns: int) -> str:
    """The inputs, then for each figure: the claim, the result, the calculation, and the reason for a difference."""
    width = min(columns, 100)
    lines = [paint.bold("From"), *_wrapped(_inputs_text(inputs), width, "  "), ""]
    for one in claims:
        verdict = click.style(one.verdict.value, fg=_COLOURS[one.verdict])
        lines.append(f"{paint.bold(one.topic)}  {verdict}")
        for label, text in (("said", one.said), ("is", one.result), ("by", one.formula), ("but", one.why)):
            if text:
                lines += _labelled(label, text, width)
        lines.append("")
    return "\n".join(lines).rstrip()


def inputs_object(inputs: Inputs) -> dict[str, object]:
    """The inputs as JSON values."""
    return {
        "usd_per_hour": money(inputs.hourly),
        "provisioning_seconds": inputs.provisioning / SECOND,
        "provisioning_longest_seconds": inputs.provisioning_longest / SECOND,
        "run_seconds": inputs.run / SECOND,
        "warm_start_seconds": inputs.warm_start / SECOND,
        "idle_timeout_seconds": inputs.idle_timeout / SECOND,
        "idle_timeout_configured_seconds": inputs.idle_timeout_configured / SECOND,
        "runs": inputs.runs,
        "tasks_a_day": inputs.tasks_a_day,
        "days": inputs.days,
        "budget_usd": money(inputs.grant),
    }


def claim_object(one: Claim) -> dict[str, object]:
    """One figure as JSON values."""
    return {
        "topic": one.topic,
        "said": one.said,
        "formula": one.formula,
        "result": one.result,
        "amount_usd": money(one.amount),
        "verdict": one.verdict.value,
        "why": one.why,
    }


def _inputs_text(inputs: Inputs) -> str:
    return (
        f"{rate(inputs.hourly)}; making a machine takes {span(inputs.provisioning)} to "
        f"{span(inputs.provisioning_longest)}, a run {span(inputs.run)}, a warm start {span(inputs.warm_start)}; idle "
        f"timeout {span(inputs.idle_timeout)} in the worked example, {span(inputs.idle_timeout_configured)} as "
        f"configured; {inputs.days} days a month; budget {usd(inputs.grant)}"
    )


def _labelled(label: str, text: str, width: int) -> list[str]:
    rows = textwrap.wrap(text, width - 8, break_long_words=False) or [""]
    return [f"  {paint.dim(label.ljust(4))}  {rows[0]}", *(" " * 8 + row for row in rows[1:])]


def _wrapped(text: str, width: int, margin: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin)
