"""Durations in microseconds: read from text, written as text, and doubled for back-off."""

import re
from decimal import Decimal
from typing import Final

from events.clock import SECOND

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""Seconds of each unit."""
_TEXT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|w)?")
_LONGEST: Final = 366 * UNITS["d"] * SECOND


def parse_duration(text: str) -> int:
    """`600` (seconds), `200ms`, `90s`, `10m`, `2h`, `1d`, `1w`; 0 is one.

    Raises:
        ValueError: it is not a duration, or longer than a year.
    """
    found = _TEXT.fullmatch(text.strip().lower())
    if found is not None:
        unit = SECOND // 1000 if found[2] == "ms" else UNITS[found[2] or "s"] * SECOND
        duration = Decimal(found[1]) * unit
        if duration == int(duration) and duration <= _LONGEST:
            return int(duration)
    raise ValueError("a duration up to a year: 600 (seconds), 90s, 10m, 2h")


def span(duration: int) -> str:
    """`24h`, `1h30m` or `12.5s`: exact below a minute, else to the second."""
    if duration < 0:
        return f"-{span(-duration)}"
    if duration % SECOND and duration < 60 * SECOND:
        return f"{duration / SECOND:g}s"
    seconds, parts = round(duration / SECOND), []
    for unit in ("h", "m", "s"):
        count, seconds = divmod(seconds, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def backoff(failures: int, *, first: int, most: int) -> int:
    """The pause after so many failures in a row (1 or more): doubles from `first` up to `most`."""
    return min(most, first << min(failures - 1, 20))
