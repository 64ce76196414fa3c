"""Money and durations as people read them; exact, never rounded silently."""

from typing import overload

from engine.policy import DOLLAR
from events.clock import SECOND

_UNITS = ((24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s"))


@overload
def money(amount: int) -> str: ...
@overload
def money(amount: int | None) -> str | None: ...
def money(amount: int | None) -> str | None:
    """Micro-dollars as dollars with six decimals, as JSON objects have them: `1.990000`."""
    if amount is None:
        return None
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // DOLLAR}.{abs(amount) % DOLLAR:06d}"


def usd(amount: int) -> str:
    """Micro-dollars as `$1.99` or `$0.000012`: at least cents, no more digits than it has."""
    sign = "-" if amount < 0 else ""
    whole, part = divmod(abs(amount), DOLLAR)
    digits = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole}.{digits}"


def rate(hourly: int) -> str:
    """Micro-dollars an hour as `$1.99/h`."""
    return f"{usd(hourly)}/h"


def span(duration: int) -> str:
    """Microseconds as `24h`, `1h30m` or `12.5s`."""
    if duration < 0:
        return f"-{span(-duration)}"
    seconds, rest = divmod(duration, SECOND)
    if rest:
        return f"{duration / SECOND:g}s" if seconds < 60 else span(round(duration / SECOND) * SECOND)
    parts = []
    for size, unit in _UNITS[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
