"""Values of answers as JSON and CSV have them. Exact numbers that JSON readers would round are texts."""

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from engine.money.tables import Cell, csv_cells
from events.clock import format_time, parse_time

_INTEGER: Final = 1 << 63


def plain(value: Any) -> Any:
    """A value of JSON: times as ISO 8601 (UTC), intervals as seconds, decimals as text, bytes as hex."""
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return value if -_INTEGER <= value < _INTEGER else str(value)
        case datetime():
            return value.isoformat() if value.tzinfo is None else format_time(parse_time(value.isoformat()))
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case dict():
            return {str(plain(key)): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    return str(value)


def cells(row: Iterable[Any]) -> list[Cell]:
    """A row of CSV: lists and objects as JSON text, null as an empty cell."""
    found = (plain(value) for value in row)
    return csv_cells(msgspec.json.encode(one).decode() if isinstance(one, list | dict | bool) else one for one in found)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns as keys of an object: a repeated one gets a number."""
    found: dict[str, None] = {}
    for name in names:
        key, number = name, 2
        while key in found:
            key, number = f"{name}_{number}", number + 1
        found[key] = None
    return tuple(found)
