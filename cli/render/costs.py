"""Costs as tables."""

from cli.render import paint, words
from engine.money.costs import Line
from engine.money.report import Report, Row
from engine.money.words import money
from projections.models.money_objects import LINES

_HEADS = {"vm": "MACHINE", "run": "RUN", "day": "DAY", "user": "USER", "gpu": "GPU"}


def table(report: Report, columns: int) -> str:
    """One row each, what it was for, and the sum; lines that are zero everywhere are left out."""
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
    bounds = f"The true cost is {least}–{most}: starts and ends are not known to the moment."
    return f"{drawn}\n\n{paint.dim(bounds)}"


def _row(row: Row, shown: list[Line], *, spot: bool) -> tuple[str, ...]:
    return (
        paint.cut(row.label, 36) + (paint.dim(" (archive)") if row.archive else ""),
        *(words.short(money(row.lines[line])) if row.lines.get(line) else "–" for line in shown),
        *((words.short(money(row.spot)),) if spot else ()),
        words.duration(row.time),
        words.short(money(row.total)),
    )
