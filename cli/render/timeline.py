"""A run's timeline as text: one bar per state on a shared scale, its attempts, its machine, and gaps."""

from typing import NamedTuple

import click

from cli.render import paint, words
from cli.render.runs import called, figures, identity, verdict
from engine.fold.change import GapKind
from engine.objects import RunObject
from events.clock import SECOND
from projections.models.timeline import Timeline

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
        lines += [_row(one.phase, "cyan", scale, one.start, one.end, fill="▒") for one in life.phases]
    if life.machine.phases:
        lines.append(paint.dim("its machine"))
        lines += [_row(one.phase, "bright_black", scale, one.start, one.end, fill="▒") for one in life.machine.phases]
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
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and len(lines[-1]) + 2 + len(part) <= columns:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return [*identity(run), *map(paint.dim, lines)]


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
    lasted = words.duration(end - start)
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
    total = f"{words.duration(scale.length):>{_TIME - 1}}"
    return [paint.dim(f"{indent}{''.join(ruler)} {total}"), paint.dim(f"{indent}{''.join(labels)}")]


def _mark(at: int, step: int) -> str:
    if at == 0:
        return "0"
    if step < 60:
        return f"{at} s" if at < 60 else f"{at // 60}:{at % 60:02}"
    if step < 3600:
        return f"{at // 60} m" if at < 3600 else f"{at // 3600}:{at % 3600 // 60:02} h"
    return f"{at // 3600} h" if step < 86400 else f"{at // 86400} d"
