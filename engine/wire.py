"""The public JSON of models: a `Shape` holds microseconds and micro-dollars, its JSON has times and dollars as text."""

from collections.abc import Callable
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from engine.amounts import money
from events.clock import format_time

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
    found = dict(zip(keys, msgspec.structs.astuple(shape), strict=True))
    for key, text in texts:
        value = found[key]
        if value is msgspec.UNSET:
            del found[key]
        elif value is not None:
            found[key] = text(value)
    return found


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
        return lambda value: {key: None if one is None else inner(one) for key, one in value.items()}
    if kind in (dict, Literal) or (isinstance(hint, type) and issubclass(hint, _AS_IS)):
        return None
    if kind in (None, list, tuple):
        return _plain
    found = [text for one in get_args(hint) if not isinstance(one, Meta) and (text := _text(one)) is not None]
    return next((text for text in found if text is not _plain), found[0] if found else None)


_AS_IS: Final = (str, int, float, NoneType, Enum, msgspec.Raw)


def _plain(value: Any) -> Any:
    if isinstance(value, Shape):
        return wire(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
