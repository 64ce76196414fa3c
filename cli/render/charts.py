"""Charts on a terminal: spend by day, use of machines, start-up times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cli.render import paint
from cli.render.words import duration, short
from events.clock import SECOND

if TYPE_CHECKING:
    from engine.money.daily import Spend, Utilisation
    from engine.money.starts import StartFigures, Starts

_FILLS: Final = "█▓▒░▞◆●▲"  # told apart without colours too
_COLOURS: Final = ("cyan", "blue", "green", "magenta", "red", "white", "bright_blue", "bright_cyan")
_SHADES: Final = " ░▒▓█"  # a quarter each; blank: not billed
_PURPOSES: Final = {
    "busy": ("█", "cyan"),
    "provisioning": ("▓", "blue"),
    "idle": ("·", "yellow"),
    "terminating": ("=", "bright_black"),
    "unconfirmed": ("╳", "magenta"),
    "unattributed": ("?", "red"),
    "rounding": ("+", "white"),
    "other": ("-", "white"),
}


def spend_chart(report: Spend, columns: int) -> str:
    """A bar for every day, cut into its series; empty without any."""
    if not report.days:
        return ""
    amounts = [short(amount) for amount in report.daily]
    widest = max(map(len, amounts))
    room = max(10, min(60, columns - 14 - widest))
    top = max(*map(_micros, report.daily), 1)
    marks = [_mark(place, one.key) for place, one in enumerate(report.series)]
    lines = [paint.bold(f"Spend by day, {_BY[report.by]}")]
    for place, day in enumerate(report.days):
        bar, drawn, total = "", 0, 0
        for mark, one in zip(marks, report.series, strict=True):
            total += _micros(one.daily[place])
            end = round(room * total / top)
            bar += click.style(mark[0] * (end - drawn), fg=mark[1])
            drawn = end
        lines.append(f"{day}  {amounts[place].rjust(widest)}  {bar}".rstrip())
    lines.append(f"{'total'.ljust(10)}  {short(report.total_usd).rjust(widest)}")
    key = [
        f"{click.style(mark[0] * 2, fg=mark[1])} {paint.visible(one.key)} {short(one.total_usd)}"
        for mark, one in zip(marks, report.series, strict=True)
    ]
    return "\n".join([*lines, "", *_wrapped(key, columns)])


def utilisation_chart(report: Utilisation, columns: int) -> str:
    """A strip for every GPU or machine, a cell for every day; empty without any."""
    if not report.days:
        return ""
    strips = [*report.strips, report.total] if len(report.strips) > 1 else list(report.strips)
    names = [paint.cut(paint.visible(one.label), 20) for one in strips]
    widest = max(map(paint.width, names))
    room = max(5, columns - widest - 30)
    shown = slice(max(0, len(report.days) - room), None)
    lines = [paint.bold(f"Busy of billed time, {report.days[shown][0]} to {report.days[-1]}")]
    for name, one in zip(names, strips, strict=True):
        cells = "".join(_shade(busy / billed if billed else None) for billed, busy in one.days[shown])
        share = f"{100 * one.busy_seconds / one.billed_seconds:.0f} %" if one.billed_seconds else "–"
        billed = duration(round(one.billed_seconds * SECOND))
        lines.append(f"{paint.pad(name, widest)}  │{cells}│  {share.rjust(5)} of {billed}")
    return "\n".join(
        [*lines, "", paint.dim("░ below 25 %  ▒ below 50 %  ▓ below 75 %  █ 75 % or more  blank: not billed")]
    )


def starts_chart(report: Starts, columns: int) -> str:
    """Two bars for every bucket; empty without any run."""
    if not report.buckets:
        return ""
    most = max(max(one.cold, one.warm) for one in report.buckets)
    room = max(10, min(50, columns - 34))
    rows = []
    for one in report.buckets:
        low = duration(one.from_seconds * SECOND) if one.from_seconds else "0 s"
        name = f"{low} or more" if one.to_seconds is None else f"{low} – {duration(one.to_seconds * SECOND)}"
        for kind, count, colour in (("cold", one.cold, "blue"), ("warm", one.warm, "yellow")):
            bar = click.style(_FILLS[kind == "warm"] * round(room * count / most), fg=colour)
            rows.append((name if kind == "cold" else "", kind, str(count), bar))
    figures = [_figures("cold", report.cold), _figures("warm", report.warm)]
    table = paint.table(("FROM SUBMISSION TO RUNNING", "START", "RUNS", ""), rows, right=(2,))
    return "\n".join([paint.bold("Start-up times"), table, "", *figures])


def _figures(kind: str, of: StartFigures) -> str:
    if of.median_seconds is None or of.p95_seconds is None or of.worst_seconds is None:
        return f"{kind}: none"
    median, p95, worst = (
        duration(round(one * SECOND)) for one in (of.median_seconds, of.p95_seconds, of.worst_seconds)
    )
    runs = "1 run" if of.count == 1 else f"{of.count} runs"
    return f"{kind}: {runs}, median {median}, 95 % within {p95}, longest {worst}"


_BY: Final = {"line": "by purpose", "gpu": "by GPU", "user": "by user"}


def _mark(place: int, key: str) -> tuple[str, str]:
    """(fill, colour) of a series."""
    return _PURPOSES.get(key.strip("()"), (_FILLS[place % len(_FILLS)], _COLOURS[place % len(_COLOURS)]))


def _micros(amount: str) -> int:
    return int(amount.replace(".", ""))


def _shade(share: float | None) -> str:
    return _SHADES[0] if share is None else _SHADES[1 + min(3, int(share * 4))]


def _wrapped(parts: list[str], columns: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and paint.width(lines[-1]) + 3 + paint.width(part) <= columns:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines
