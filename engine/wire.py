"""The public JSON of models: a `Shape` holds microseconds and micro-dollars, its JSON has times and dollars as text."""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

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
    values = ((key, text, getattr(shape, name)) for name, key, text in _fields(type(shape)))
    return {key: text(value) for key, text, value in values if value is not msgspec.UNSET}


@cache
def _fields(shape: type[Shape]) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    """(name, JSON key, what makes the JSON value) of each field."""
    return tuple((field.name, field.encode_name, _text(field.type)) for field in msgspec.structs.fields(shape))


def _text(hint: Any) -> Callable[[Any], Any]:
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra is not None:
            return partial(_known, meta.extra["text"])
    if get_origin(hint) is dict:
        inner = _text(get_args(hint)[1])
        return lambda value: {key: inner(one) for key, one in value.items()}
    return next((text for one in get_args(hint) if (text := _text(one)) is not _plain), _plain)


def _known(text: Callable[[int], str], value: int | None) -> str | None:
    return None if value is None else text(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Shape):
        return wire(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
