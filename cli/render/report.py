"""The report of a month as Markdown, and as one HTML file without scripts. Money is exact."""

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Final

from steno.cli.render.paint import plain
from steno.cli.render.words import lasted
from steno.engine.wire import usd
from steno.projections.answers.report import MonthReport, ReportRow

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: auto }
table { border-collapse: collapse; width: 100% } h2 { break-after: avoid } tr { break-inside: avoid }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
"""
_HEADS: Final = ("", "", "Runs", "Time", "Cost")


def markdown(report: MonthReport) -> str:
    lines = [f"# GPU costs in {report.month}"]
    for title, (head, *rows) in _tables(report):
        table = [head, ["---", *["---:"] * (len(head) - 1)], *([_literal(cell) for cell in row] for row in rows)]
        lines += ["", f"## {title}", "", *(f"| {' | '.join(row)} |" for row in table)]
    return "\n".join(lines) + "\n"


def html(report: MonthReport) -> str:
    title = f"GPU costs in {report.month}"
    parts = [f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>']
    parts.append(f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>")
    for name, (head, *rows) in _tables(report):
        cells = [_cells("th", head), *(_cells("td", row) for row in rows)]
        parts.append(f"<h2>{escape(name)}</h2>\n<table>{''.join(cells)}</table>")
    return "\n".join([*parts, "</body></html>\n"])


def _tables(report: MonthReport) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Each section: the head and the rows, of the columns that have any value."""
    for title, rows in groupby(report.rows, lambda row: row.section):
        texts = [_HEADS, *map(_texts, rows)]
        places = [place for place in range(len(_HEADS)) if any(row[place] for row in texts[1:])]
        yield title, [tuple(row[place] for place in places) for row in texts]


def _texts(row: ReportRow) -> tuple[str, ...]:
    runs, time = ("" if row.runs is None else f"{row.runs:,}"), "" if row.seconds is None else lasted(row.seconds)
    return row.name, row.detail.replace("_", " "), runs, time, "" if row.usd is None else usd(row.usd)


def _cells(tag: str, row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(plain(cell))}</{tag}>" for cell in row) + "</tr>"


def _literal(text: str) -> str:
    """A text without signs of Markdown."""
    return "".join(f"\\{sign}" if sign in "\\|`*_<>[]#" else sign for sign in plain(text))
