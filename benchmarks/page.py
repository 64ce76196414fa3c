"""A report as text: rows of cells, the generated part of `docs/performance.md`, and its picture.

    python benchmarks/page.py

writes both from `docs/performance.json`.
"""

import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.suite import Report, Row, read
from benchmarks.support import ROOT

DOCS = ROOT / "docs"
REPORT, PAGE, PICTURE = DOCS / "performance.json", DOCS / "performance.md", DOCS / "pictures" / "performance.svg"
BEGIN, END = "<!-- generated from performance.json: `make bench-docs` -->\n", "<!-- end -->\n"
HEAD = ("WHAT", "TARGET", "MEASURED", "OURS : THEIRS", "", "NOISE", "ON")
VERDICTS = {True: "met", False: "misses", None: ""}


def cells(row: Row) -> tuple[str, ...]:
    """Name, target, measured, both sides of a ratio, met or misses, half the spread over the median, on what."""
    if row.measured is None:
        return row.what, row.target, "not measured", "", "", "", ""
    sides = "" if row.ours is None or row.theirs is None else f"{_number(row.ours)} : {_number(row.theirs)} {row.sides}"
    return (
        row.what,
        row.target,
        f"{_number(row.measured)} {row.unit}".rstrip(),
        sides,
        VERDICTS[row.met],
        _noise(row),
        row.of or "",
    )


def machine_line(report: Report) -> str:
    """Where, when and beside how much other work it was measured."""
    machine, rows = report.machine, report.rows
    loads, days = [load for row in rows for load in row.load], sorted({row.at[:10] for row in rows})
    sizes = ", ".join(dict.fromkeys(row.size for row in rows))
    return (
        f"{machine.cores} cores of {machine.model}, Python {machine.python}, SQLite {machine.sqlite}, "
        f"PostgreSQL {machine.postgresql or 'not installed'}; load {min(loads):g} to {max(loads):g}; "
        f"sizes: {sizes}; {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    )


def markdown(report: Report) -> str:
    """The generated part of the page: the machine, and the table."""
    lines = [
        f"{machine_line(report)}.",
        "",
        f"| {' | '.join(name.lower() for name in HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join((*cells(row)[:-1], row.problem or row.of or ''))} |" for row in report.rows),
    ]
    return "\n".join(lines) + "\n"


def picture(report: Report) -> str:
    """An SVG: each target's measured value over the target, on a scale of powers of ten, with the spread as a bar."""
    rows = [row for row in report.rows if row.share is not None]
    height = TOP + STEP * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{TITLE}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="16">{TITLE}: left of 1 meets it</text>',
    ]
    for tick in (0.01, 0.1, 1, 10):
        kind = "target" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{_x(tick)}" x2="{_x(tick)}" y1="{TOP - 8}" y2="{height - 24}"/>')
        parts.append(f'<text class="tick" x="{_x(tick)}" y="{height - 8}">{tick:g}</text>')
    for number, row in enumerate(rows):
        assert row.share is not None and row.share_low is not None and row.share_high is not None  # noqa: PT018
        y, kind = TOP + STEP * number + STEP / 2, "met" if row.met else "missed"
        what, target, value = cells(row)[:3]
        low, high = _x(row.share_low), _x(row.share_high)
        parts += [
            f'<text class="what" x="{LEFT - 12}" y="{y + 4:g}">{escape(what)}</text>',
            f'<line class="spread {kind}" x1="{low}" x2="{max(high, low + 1)}" y1="{y:g}" y2="{y:g}"/>',
            f'<circle class="{kind}" cx="{_x(row.share)}" cy="{y:g}" r="4"/>',
            f'<text x="{RIGHT + 12}" y="{y + 4:g}">{escape(value)} ({escape(target)})</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


WIDTH, LEFT, RIGHT, TOP, STEP = 1180, 430, 780, 36, 18
TITLE = "measured over target (target over measured where it is a minimum)"
LEAST, MOST = 0.005, 20.0
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.what{text-anchor:end;fill:#24292f}.tick{text-anchor:middle}"
    ".grid{stroke:#8c959f;stroke-opacity:.35}.target{stroke:#57606a;stroke-width:1.5}.spread{stroke-width:5;stroke-opacity:.4}"
    "circle.met{fill:#1a7f37}line.met{stroke:#1a7f37}circle.missed{fill:#cf222e}line.missed{stroke:#cf222e}"
    "@media (prefers-color-scheme:dark){text{fill:#9198a1}.what{fill:#f0f6fc}.target{stroke:#9198a1}"
    "circle.met{fill:#3fb950}line.met{stroke:#3fb950}circle.missed{fill:#f85149}line.missed{stroke:#f85149}}"
)


def _x(share: float) -> float:
    """Where a share is; what is off the scale is at its end."""
    part = math.log(min(max(share, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return round(LEFT + part * (RIGHT - LEFT), 1)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _noise(row: Row) -> str:
    if row.low is None or row.high is None or not row.measured or (row.rounds or 0) < 2:
        return "–"
    return f"±{50 * (row.high - row.low) / abs(row.measured):.0f} % of {row.rounds}"


def generated(page: str, report: Report) -> str:
    """The page with the report in place of its generated part."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{markdown(report)}{END}{after}"


def main(page: Path = PAGE) -> None:
    """Write the page and the picture."""
    report = read(REPORT)
    if report is None:
        sys.exit("there is no docs/performance.json; run: make bench-docs")
    page.write_text(generated(page.read_text(), report))
    PICTURE.write_text(picture(report))


if __name__ == "__main__":
    main()
