"""JSON whose shape may not be the one we know: takes each value that fits, names each other one.

Doubt never ends a run: a job or submission that is not an object stays in the list as one without values.
"""

from contextlib import suppress
from functools import cache
from sys import intern
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

_NAMES: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}
_SAFE: Final = 2**53


def at(value: object, *path: str) -> Any:
    """The value under these keys, each in the one before; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def decoded(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def mapping(text: bytes) -> dict[str, Any]:
    """The JSON object; empty for anything else."""
    value = decoded(text)
    return value if isinstance(value, dict) else {}


def shared(word: str | None) -> str | None:
    """The word, interned: the facts of every run and machine are kept in memory."""
    return None if word is None else intern(word)


class Identified(msgspec.Struct):
    """Any item: dstack gives each an id."""

    id: str


T = TypeVar("T", bound=Identified)


class LenientDecoder(Generic[T]):
    """Decodes items: a well-formed one in one typed step, any other value by value, to the same structure.

    Of its fields only the id and lists have no default, and those that the class variable `unread` has a value for:
    it stands where they cannot be read. A structure with `unread` is never left out.
    """

    def __init__(self, kind: type[T], what: str) -> None:
        """`what`: the item's name for the error message."""
        self._kind = kind
        self._what = what
        self._typed = msgspec.json.Decoder(kind)

    def decode(self, item: bytes) -> tuple[T, tuple[str, ...]]:
        """The structure, and the paths of what did not fit. Items that differ only in unread values give equal
        structures.

        Raises ValueError if the item is not a JSON object with an id.
        """
        try:
            value = self._typed.decode(item)
        except msgspec.DecodeError:
            return self.decode_by_value(item)
        return (value, ()) if value.id else self.decode_by_value(item)

    def decode_by_value(self, item: bytes) -> tuple[T, tuple[str, ...]]:
        value, drift = mapping(item), list[str]()
        if not isinstance(value.get("id"), str) or not value["id"]:
            raise ValueError(f"{self._what} is not a JSON object with an id")
        fitted: T = _fit(value, self._kind, "", drift)
        return fitted, tuple(dict.fromkeys(drift))


def _fit(value: dict[str, Any], kind: Any, where: str, drift: list[str]) -> Any:
    fields: dict[str, Any] = dict(getattr(kind, "unread", {}))
    for part in msgspec.structs.fields(kind):
        wanted, given, path = _wanted(part.type), value.get(part.encode_name), f"{where}{part.encode_name}"
        if part.default is msgspec.UNSET and part.encode_name in value:
            fields[part.name] = None
        if given is None and not part.required:
            continue
        with suppress(msgspec.ValidationError):
            fields[part.name] = msgspec.convert(given, part.type)
            continue
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            if made := _objects([given], wanted, path, drift):
                fields[part.name] = made[0]
        elif get_origin(wanted) is not list:
            drift.append(f"{path}: {_problem(given, wanted, part.encode_name)}")
        elif isinstance(given, list):
            fields[part.name] = _objects(given, get_args(wanted)[0], f"{path}[]", drift)
        else:
            drift.append(f"{path}: not a list")
            fields[part.name] = []
    return kind(**fields)


def _objects(given: list[object], kind: Any, path: str, drift: list[str]) -> list[Any]:
    """Leaves out non-objects; for a kind with `unread`, an empty object replaces them."""
    fitted = []
    for item in given:
        if isinstance(item, dict):
            fitted.append(_fit(item, kind, f"{path}.", drift))
            continue
        drift.append(f"{path}: not an object")
        if hasattr(kind, "unread"):
            fitted.append(_fit({}, kind, "", []))
    return fitted


@cache
def _wanted(kind: Any) -> Any:
    """The type of a field without None, bounds and `UNSET`."""
    if get_origin(kind) is Annotated:
        return _wanted(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return next(_wanted(part) for part in get_args(kind) if part not in (NoneType, msgspec.UnsetType))
    return kind


def _problem(given: object, wanted: Any, key: str) -> str:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if wanted is float and number:
        return f"not a {key}: {given!r}"
    if wanted is int and number and isinstance(given, int) and -_SAFE <= given < 0:
        return "below zero"
    return f"not {_NAMES[wanted]}"
