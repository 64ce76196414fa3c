"""Durations, times and money as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from steno.engine.wire import DOLLAR
from steno.engine.wire import usd as dollars
from steno.events.clock import SECOND, duration, format_second, parse_time

if TYPE_CHECKING:
    from steno.engine.objects import BusyObject

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: int | str | None) -> str:
    """A time (microseconds UTC, or ISO 8601) to the second, `2026-11-20 15:00:02Z`; `–` for None."""
    if at is None:
        return "–"
    return format_second(parse_time(at) if isinstance(at, str) else at).replace("T", " ")


def hour(at: int) -> str:
    """The time of day to the tenth of a second, UTC: `15:00:02.4Z`."""
    instant = _EPOCH + timedelta(microseconds=at)
    return f"{instant:%H:%M:%S}.{instant.microsecond // 100_000}Z"


def ago(at: int, now: int) -> str:
    """Age in one unit: `12 s ago`, `3 m ago`, `5 h ago`, `4 d ago`."""
    seconds = max(0, now - at) // SECOND
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size or (size == 60 and seconds >= 60):
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def lasted(seconds: float | None) -> str:
    """`3 m 20 s`; `–` if unknown."""
    return "–" if seconds is None else duration(round(seconds * SECOND))


def money(usd: str | None) -> str:
    """US dollars with as many places as are significant: `$0.0347`, `$12.50`; `–` if unknown."""
    return "–" if usd is None else dollars(int(Decimal(usd) * DOLLAR))


def short(usd: str | int | None) -> str:
    """Dollars (text) or micro-dollars (int), small amounts to more places: `$1,400.00`, `$0.0321`; `–` if unknown."""
    if usd is None:
        return "–"
    exact = Decimal(usd) / DOLLAR if isinstance(usd, int) else Decimal(usd)
    rounded = exact.quantize(Decimal("0.0001"))
    if not rounded and exact:
        return dollars(int(exact * DOLLAR))
    sign = "-" if rounded < 0 else ""
    places = 2 if rounded == rounded.quantize(Decimal("0.01")) else 4
    return f"{sign}${abs(rounded):,.{places}f}"


def idle(busy: BusyObject | None) -> str:
    """`, $0.50 of it idle inside`, behind a cost; empty if no sample shows that."""
    if busy is None or not busy.idle_inside_seconds:
        return ""
    return f", {short(busy.idle_inside_usd)} of it idle inside"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`, `61,024 polls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
