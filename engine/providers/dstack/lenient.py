"""JSON whose shape may not be the one we know: each value that fits is taken, each other one of an item is named.

Doubt never ends a run: a job or submission that is no object stays in the list as one that says nothing, and a retry
policy we cannot read counts as covering everything.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
Kind = type[msgspec.Struct]

_NAMES: Final = {str: "text", int: "whole number", float: "number", bool: "true or false", list: "list"}
_SAFE: Final = 2**53


def at(value: object, *path: str) -> Any:
    """The value under these keys, one in the other; None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Lenient:
    """Fits values of any shape into structures."""

    blank: dict[Kind, msgspec.Struct] = field(default_factory=dict)
    """What stands in a list for an item that is no object; an item of any other structure is left out."""
    instead: dict[Kind, msgspec.Struct] = field(default_factory=dict)
    """What stands for one that must be there and is not."""
    special: dict[type[msgspec.Struct], Callable[[object, str, list[str]], msgspec.Struct]] = field(
        default_factory=dict
    )
    """How a value of another shape is read; it gets the value and its path, and notes what it could not use."""

    def read(self, item: bytes, kind: type[T], what: str) -> tuple[T, tuple[str, ...]]:
        """The structure, and the paths of what did not fit.

        Raises:
            ValueError: the item is not a JSON object with an id; `what` names it.
        """
        try:
            value = msgspec.json.decode(item)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ValueError(f"{what} is not valid JSON") from error
        if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
            raise ValueError(f"{what} is not a JSON object with an id")
        drift: list[str] = []
        return self._fit(value, kind, "", drift), tuple(dict.fromkeys(drift))

    def _fit(self, value: dict[str, Any], kind: type[T], where: str, drift: list[str]) -> T:
        found: dict[str, Any] = {}
        for part in msgspec.structs.fields(kind):
            wanted, given = _wanted(part.type), value.get(part.encode_name)
            path = f"{where}{part.encode_name}"
            if part.default is msgspec.UNSET and part.encode_name in value:
                found[part.name] = None
            with suppress(msgspec.ValidationError):
                if given is not None:
                    found[part.name] = msgspec.convert(given, part.type)
                    continue
            if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
                if given is None and not part.required:
                    continue
                found[part.name] = self._inner(given, wanted, path, drift)
            elif get_origin(wanted) is list and (given is not None or part.required):
                found[part.name] = self._items(given, get_args(wanted)[0], path, drift)
            elif given is not None:
                drift.append(f"{path}: {_problem(given, wanted, part.encode_name)}")
        return kind(**found)

    def _inner(self, given: object, kind: type[msgspec.Struct], path: str, drift: list[str]) -> msgspec.Struct | None:
        if kind in self.special:
            return self.special[kind](given, path, drift)
        if isinstance(given, dict):
            return self._fit(given, kind, f"{path}.", drift)
        if given is not None:
            drift.append(f"{path}: no object")
        return self.instead.get(kind)

    def _items(self, given: object, kind: type[msgspec.Struct], path: str, drift: list[str]) -> list[msgspec.Struct]:
        if not isinstance(given, list):
            drift.append(f"{path}: no list")
            return []
        found: list[msgspec.Struct] = []
        for item in given:
            if isinstance(item, dict):
                found.append(self._fit(item, kind, f"{path}[].", drift))
                continue
            drift.append(f"{path}[]: no object")
            if kind in self.blank:
                found.append(self.blank[kind])
        return found


@cache
def _wanted(kind: Any) -> Any:
    """The type of a field without None, bounds and what is not set."""
    if get_origin(kind) is Annotated:
        return _wanted(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return next(_wanted(one) for one in get_args(kind) if one not in (NoneType, msgspec.UnsetType))
    return kind


def _problem(given: object, wanted: Any, key: str) -> str:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if wanted is float and number:
        return f"no {key} {given!r}"
    if wanted is int and number and isinstance(given, int) and -_SAFE <= given < 0:
        return "below zero"
    return f"no {_NAMES[wanted]}"
