"""The public forms of models: a `Shape` holds microseconds and micro-dollars, its JSON has times and dollars as text; a
report that is `Tabled` is CSV too. Money is exact, never rounded silently.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from io import StringIO
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin, overload

import msgspec
from msgspec import Meta

from steno.events.clock import SECOND, format_time

DOLLAR: Final = 1_000_000


@overload
def money(amount: int) -> str: ...
@overload
def money(amount: int | None) -> str | None: ...
def money(amount: int | None) -> str | None:
    """Micro-dollars as dollars with six decimals, as JSON objects have them: `1.990000`."""
    if amount is None:
        return None
    if amount < 0:
        return f"-{money(-amount)}"
    return f"{amount // DOLLAR}.{amount % DOLLAR:06d}"


def usd(amount: int) -> str:
    """Micro-dollars as `$1.99` or `$0.000012`: at least cents, without trailing zeros."""
    sign = "-" if amount < 0 else ""
    whole, part = divmod(abs(amount), DOLLAR)
    digits = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole}.{digits}"


def rate(hourly: int) -> str:
    """Micro-dollars an hour as `$1.99/h`."""
    return f"{usd(hourly)}/h"


if TYPE_CHECKING:
    Time = int
    Usd = int

else:  # as `int`, msgspec's schema would call them integers
    Time = Annotated[
        Any,
        Meta(
            extra={"text": format_time},
            extra_json_schema={"type": "string", "description": "ISO 8601, UTC, microseconds."},
        ),
    ]
    """Microseconds, UTC."""
    Usd = Annotated[
        Any,
        Meta(
            extra={"text": money},
            extra_json_schema={
                "type": "string",
                "pattern": r"^-?[0-9]+\.[0-9]{6}$",
                "description": "US dollars, six decimals.",
            },
        ),
    ]
    """Micro-dollars."""
Position = Annotated[int, Meta(ge=0, description="A position of the record.")]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object with exactly these keys; a field whose JSON key differs names it."""


class Stretched(Shape, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """An object about a stretch of time."""


def wire(shape: Shape) -> dict[str, Any]:
    """The JSON values of an object; keys whose value is unset are left out."""
    keys, texts = _fields(type(shape))
    values = dict(zip(keys, msgspec.structs.astuple(shape), strict=True))
    for key, text in texts:
        value = values[key]
        if value is msgspec.UNSET:
            del values[key]
        elif value is not None:
            values[key] = text(value)
    return values


@cache
def _fields(shape: type[Shape]) -> tuple[tuple[str, ...], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """(all keys, (key, what makes the JSON value) of each field that is not its own JSON value)."""
    texts = ((field.encode_name, _text(field.type)) for field in msgspec.structs.fields(shape))
    return shape.__struct_encode_fields__, tuple((key, text) for key, text in texts if text is not None)


def _text(hint: Any) -> Callable[[Any], Any] | None:
    """None: values of this type are their own JSON values."""
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra is not None:
            known: Callable[[Any], Any] = meta.extra["text"]
            return known
    kind = get_origin(hint)
    inner = _text(get_args(hint)[1]) if kind is dict else None
    if inner is not None:
        return lambda value: {key: None if item is None else inner(item) for key, item in value.items()}
    if kind in (dict, Literal) or (isinstance(hint, type) and issubclass(hint, _AS_IS)):
        return None
    if kind in (None, list, tuple):
        return _plain
    texts = [text for part in get_args(hint) if not isinstance(part, Meta) and (text := _text(part)) is not None]
    return next((text for text in texts if text is not _plain), texts[0] if texts else None)


_AS_IS: Final = (str, int, float, NoneType, Enum, msgspec.Raw)


def _plain(value: Any) -> Any:
    if isinstance(value, Shape):
        return wire(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


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
