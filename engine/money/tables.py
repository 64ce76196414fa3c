"""Reports that are tables too, and their CSV."""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Final

from engine.amounts import money
from engine.wire import Shape
from events.clock import SECOND

Cell = str | int | float | None
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a text that begins so


class Tabled(Shape, frozen=True, kw_only=True):
    """A report that can be read as a table."""

    def table(self) -> Iterator[tuple[Cell, ...]]:
        """The header, then one row after another; money in dollars, times in seconds."""
        raise NotImplementedError


def csv_of(report: Tabled) -> str:
    """The table as CSV (RFC 4180); an unknown value is an empty cell. A text that a spreadsheet would compute gets a
    leading apostrophe.
    """
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(map(csv_cells, report.table()))
    return text.getvalue()


def dollars(amount: int) -> str:
    """Micro-dollars as text with six decimals."""
    return money(amount)


def seconds(span: int | None) -> float | None:
    """Microseconds as seconds."""
    return None if span is None else span / SECOND


def csv_cells(row: Iterable[Cell]) -> list[Cell]:
    """A row as `csv.writer` takes it."""
    return [csv_text(value) if isinstance(value, str) else value for value in row]


def csv_text(text: str) -> str:
    """A text that no spreadsheet computes."""
    return f"'{text}" if text.startswith(_FORMULA) and not text[1:].replace(".", "", 1).isdecimal() else text
