"""Charts and timelines on a terminal: spend by day, use of machines, start-up times, the life of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from steno.cli.render import paint, words
from steno.cli.render.runs import called, figures, identity, verdict
from steno.cli.render.words import short
from steno.engine.objects import RunObject
from steno.engine.state.changes import GapKind
from steno.events.clock import SECOND, duration
from steno.projections.answers.gpu_curve import RunUse
from steno.projections.answers.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steno.engine.money.daily import Spend, Utilisation
    from steno.engine.money.starts import StartFigures, Starts

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
    marks = [_fill(place, series.key) for place, series in enumerate(report.series)]
    lines = [paint.bold(f"Spend by day, {_BY[report.by]}")]
    for place, day in enumerate(report.days):
        bar, drawn, total = "", 0, 0
        for mark, stack in zip(marks, report.series, strict=True):
            total += _micros(stack.daily[place])
            end = round(room * total / top)
            bar += click.style(mark[0] * (end - drawn), fg=mark[1])
            drawn = end
        lines.append(f"{day}  {amounts[place].rjust(widest)}  {bar}".rstrip())
    lines.append(f"{'total'.ljust(10)}  {short(report.total_usd).rjust(widest)}")
    key = [
        f"{click.style(mark[0] * 2, fg=mark[1])} {paint.visible(series.key)} {short(series.total_usd)}"
        for mark, series in zip(marks, report.series, strict=True)
    ]
    return "\n".join([*lines, "", *_packed(key, columns, "   ")])


def utilisation_chart(report: Utilisation, columns: int) -> str:
    """A strip for every GPU or machine, a cell for every day; empty without any."""
    if not report.days:
        return ""
    strips = [*report.strips, report.total] if len(report.strips) > 1 else list(report.strips)
    names = [paint.cut(paint.visible(strip.label), 20) for strip in strips]
    widest = max(map(paint.width, names))
    room = max(5, columns - widest - 30)
    days = slice(max(0, len(report.days) - room), None)
    lines = [paint.bold(f"Busy of billed time, {report.days[days][0]} to {report.days[-1]}")]
    for name, row in zip(names, strips, strict=True):
        cells = "".join(_share(busy / billed if billed else None) for billed, busy in row.days[days])
        share = f"{100 * row.busy_seconds / row.billed_seconds:.0f} %" if row.billed_seconds else "–"
        billed = words.lasted(row.billed_seconds)
        lines.append(f"{paint.pad(name, widest)}  │{cells}│  {share.rjust(5)} of {billed}")
    return "\n".join(
        [*lines, "", paint.dim("░ below 25 %  ▒ below 50 %  ▓ below 75 %  █ 75 % or more  blank: not billed")]
    )


def starts_chart(report: Starts, columns: int) -> str:
    """Two bars for every bucket; empty without any run."""
    if not report.buckets:
        return ""
    most = max(max(bucket.cold, bucket.warm) for bucket in report.buckets)
    room = max(10, min(50, columns - 34))
    rows = []
    for group in report.buckets:
        low = duration(group.from_seconds * SECOND) if group.from_seconds else "0 s"
        name = f"{low} or more" if group.to_seconds is None else f"{low} – {duration(group.to_seconds * SECOND)}"
        for kind, count, colour in (("cold", group.cold, "blue"), ("warm", group.warm, "yellow")):
            bar = click.style(_FILLS[kind == "warm"] * round(room * count / most), fg=colour)
            rows.append((name if kind == "cold" else "", kind, str(count), bar))
    figures = [_figures("cold", report.cold), _figures("warm", report.warm)]
    table = paint.table(("FROM SUBMISSION TO RUNNING", "START", "RUNS", ""), rows, right=(2,))
    return "\n".join([paint.bold("Start-up times"), table, "", *figures])


def _figures(kind: str, of: StartFigures) -> str:
    if not of.count:
        return f"{kind}: none"
    median, p95, worst = map(words.lasted, (of.median_seconds, of.p95_seconds, of.worst_seconds))
    return f"{kind}: {of.count} run{'s' * (of.count != 1)}, median {median}, 95 % within {p95}, longest {worst}"


_BY: Final = {"line": "by purpose", "gpu": "by GPU", "user": "by user"}


def _fill(place: int, key: str) -> tuple[str, str]:
    """(fill, colour) of a series."""
    return _PURPOSES.get(key.strip("()"), (_FILLS[place % len(_FILLS)], _COLOURS[place % len(_COLOURS)]))


def _micros(amount: str) -> int:
    return int(amount.replace(".", ""))


def _share(share: float | None) -> str:
    return _SHADES[0] if share is None else _SHADES[1 + min(3, int(share * 4))]


def _packed(parts: Iterable[str], columns: int, gap: str) -> list[str]:
    """The parts, as many in a line as fit."""
    lines: list[str] = []
    for part in parts:
        if lines and paint.width(lines[-1] + gap + part) <= columns:
            lines[-1] += gap + part
        else:
            lines.append(part)
    return lines


def gpu_curve(use: RunUse) -> str:
    """The use of a run's GPUs: shares of its time, their mean as a curve (blank: unknown), and their peaks."""
    whole = (use.end - use.start) / SECOND
    shares = ", ".join(f"{kind} {100 * seconds / whole:.0f} %" for kind, seconds in use.seconds.items())
    points = [
        [mean for mean in point if mean is not None] for point in zip(*(gpu.mean for gpu in use.gpus), strict=True)
    ]
    curve = "".join("▁▂▃▄▅▆▇█"[min(7, int(sum(uses) / len(uses) / 12.5))] if uses else " " for uses in points)
    memory, power = (
        max((getattr(gpu, name) or 0 for gpu in use.gpus), default=0) for name in ("memory_mib", "power_watts")
    )
    peaks = [*([f"memory {memory / 1024:.1f} GB"] if memory else []), *([f"power {power} W"] if power else [])]
    lines = [f"{paint.bold('GPUs')}  {shares} of {duration(use.end - use.start)}", click.style(curve, fg="cyan")]
    return "\n      ".join([*lines, *([f"highest of a GPU: {', '.join(peaks)}"] if peaks else [])])


_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
_LABEL = 13
_TIME = 11
_OPEN = " …"
_GAPS = {GapKind.NO_ANSWER: ("magenta", "░"), GapKind.NOT_POLLED: ("bright_black", "╱")}


def draw(run: RunObject, life: Timeline, columns: int) -> str:
    """The timeline, at most `columns` wide but not below 48."""
    bar = max(20, min(columns, 140) - _LABEL - _TIME - len(_OPEN) - 2)
    scale = _Scale(life.start, max(life.until - life.start, 1), bar)
    lines = [f"{paint.bold(called(run))}  {verdict(run)}", *_facts(run, max(columns, 48)), ""]
    if life.unwatched is not None:
        lines.append(_row("not yet seen", "bright_black", scale, life.start, life.unwatched, fill="·"))
    attempt = 1
    for span in life.spans:
        if span.attempt != attempt:
            attempt = span.attempt
            mark = " " * scale.column(span.start) + f"↻ attempt {attempt}"
            lines.append(" " * (_LABEL + 2) + paint.dim(mark if len(mark) <= bar + _TIME else mark.strip().rjust(bar)))
        end = life.until if span.end is None else span.end
        row = _row(span.state, paint.STATE_COLOURS.get(span.state), scale, span.start, end, fill="█")
        lines.append(row + (_OPEN if span.end is None else ""))
    lines += _axis(scale)
    if life.phases:
        lines.append(paint.dim("its task"))
        lines += [_row(phase.phase, "cyan", scale, phase.start, phase.end, fill="▒") for phase in life.phases]
    if life.machine.phases:
        lines.append(paint.dim("its machine"))
        lines += [
            _row(phase.phase, "bright_black", scale, phase.start, phase.end, fill="▒") for phase in life.machine.phases
        ]
    for gap in life.gaps:
        colour, fill = _GAPS[gap.kind]
        lines.append(_row(gap.kind.words, colour, scale, gap.start, gap.end, fill=fill))
    return "\n".join(line.rstrip() for line in lines)


def _facts(run: RunObject, columns: int) -> list[str]:
    """Identity, times and cost, packed into lines."""
    parts = [
        "" if run.attempts == 1 else f"{run.attempts} attempts",
        "" if run.submitted_at is None else f"submitted {words.moment(run.submitted_at)}",
        "" if run.provider_submitted_at is None else f"at {run.provider} {words.moment(run.provider_submitted_at)}",
        *figures(run),
    ]
    return [*identity(run), *map(paint.dim, _packed(filter(None, parts), columns, "  "))]


class _Scale(NamedTuple):
    start: int
    length: int
    columns: int

    def eighth(self, at: int) -> int:
        return round((at - self.start) * self.columns * 8 / self.length)

    def column(self, at: int) -> int:
        return min(self.columns - 1, self.eighth(at) // 8)


def _row(label: str, colour: str | None, scale: _Scale, start: int, end: int, *, fill: str) -> str:
    bar = _blocks(scale, start, end) if fill == "█" else _shade(scale, start, end, fill)
    name, drawn = (click.style(text, fg=colour) if text.strip() else text for text in (label, bar))
    lasted = duration(end - start)
    return f"{paint.pad(name, _LABEL)}  {paint.pad(drawn, scale.columns)} {lasted:>{_TIME - 1}}"


def _blocks(scale: _Scale, start: int, end: int) -> str:
    """A bar with a resolution of an eighth of a column; never empty."""
    first, last = scale.eighth(start), scale.eighth(end)
    left = min(first // 8, scale.columns - 1)
    width = max(1, last - left * 8 if first % 8 < 4 else last - left * 8 - 4)
    full, rest = divmod(width, 8)
    return " " * left + "█" * full + (_EIGHTHS[rest] if rest else "")


def _shade(scale: _Scale, start: int, end: int, fill: str) -> str:
    left = scale.column(start)
    return " " * left + fill * max(1, scale.column(end - 1) - left + 1)


def _axis(scale: _Scale) -> list[str]:
    """A ruler with three to seven round marks, counted from the submission."""
    seconds = scale.length / SECOND
    step = next((step for step in _STEPS if seconds / step <= 6), _STEPS[-1])
    ruler = ["─"] * scale.columns
    labels = [" "] * (scale.columns + _TIME)
    for at in range(0, int(seconds) + 1, step):
        column = scale.column(scale.start + at * SECOND)
        text = _mark(at, step)
        if column + len(text) <= scale.columns + 4:
            ruler[column] = "┴"
            labels[column : column + len(text)] = text
    ruler[0] = "└"
    indent = " " * (_LABEL + 2)
    total = f"{duration(scale.length):>{_TIME - 1}}"
    return [paint.dim(f"{indent}{''.join(ruler)} {total}"), paint.dim(f"{indent}{''.join(labels)}")]


def _mark(at: int, step: int) -> str:
    if at == 0:
        return "0"
    if step < 60:
        return f"{at} s" if at < 60 else f"{at // 60}:{at % 60:02}"
    if step < 3600:
        return f"{at // 60} m" if at < 3600 else f"{at // 3600}:{at % 3600 // 60:02} h"
    return f"{at // 3600} h" if step < 86400 else f"{at // 86400} d"
