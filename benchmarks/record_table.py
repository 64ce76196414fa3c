"""Prints one benchmark's rows: what was measured, the target, and whether it was met."""

from collections.abc import Sequence
from typing import NamedTuple


class Measured(NamedTuple):
    """One row."""

    what: str
    value: float
    unit: str
    target: str
    met: bool


def show(title: str, rows: Sequence[Measured]) -> None:
    """Print the rows as a table."""
    width = max(len(row.what) for row in rows)
    print(f"\n{title}")
    for row in rows:
        print(f"  {row.what:<{width}}  {row.value:>9.2f} {row.unit:<10} {'ok  ' if row.met else 'MISS'} ({row.target})")
