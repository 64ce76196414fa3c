"""Query parameters: each reads its text or says what it should have been, and describes itself for the OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request

from events.clock import parse_time
from projections.api.problems import Problem

KEY: Final = "Idempotency-Key"
_KEY: Final = re.compile("[!-~]{1,255}")
KEY_HEADER: Final = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "The same key with the same body always means the same run; with another body: 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
"""The header as the OpenAPI document describes it."""
_SHOWN = 60
"""Characters of a wrong value that an answer repeats."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9:]{2,6})?)?"
)
_A_TIME = "a time as 2026-11-20T15:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One query parameter; given once, or left out."""

    name: str
    help: str
    schema: Mapping[str, object]
    read: Callable[[str], object]
    """Raises ValueError, whose text says what the value must be."""
    default: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request names: the parts of its path, and its parameters with their defaults."""

    path: Mapping[str, str]
    given: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """A parameter that is a number and has a default."""
        value = self.given[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a number")
        return value

    def text(self, name: str) -> str | None:
        """A parameter that is a text; None where it was left out."""
        value = self.given[name]
        return value if isinstance(value, str) else None

    def time(self, name: str) -> int | None:
        """A parameter that is a time (microseconds, UTC); None where it was left out."""
        value = self.given[name]
        return value if isinstance(value, int) else None

    def flag(self, name: str) -> bool:
        """A parameter that is a switch."""
        return self.given[name] is True


def asked_of(request: Request, parameters: Iterable[Parameter]) -> Asked:
    """What a request asks for, checked.

    Raises:
        Problem: 400, with the parameter that is unknown, repeated or no value of its kind.
    """
    known = {one.name: one for one in parameters}
    found: dict[str, object] = {one.name: one.default for one in known.values()}
    seen: set[str] = set()
    for name, text in request.query_params.multi_items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise Problem(400, f"unknown parameter {_cut(name)}; known: {there}", field=_cut(name))
        if name in seen:
            raise Problem(400, f"{name} is given more than once", field=name)
        seen.add(name)
        try:
            found[name] = known[name].read(text)
        except ValueError as error:
            raise Problem(400, f"{name} is {_cut(text)!r}; it must be {error}", field=name) from None
    return Asked(path=request.path_params, given=found)


def idempotency_key(request: Request) -> str | None:
    """The request's idempotency key; None: it has none.

    Raises:
        Problem: 400, it is given twice, or is not 1 to 255 visible ASCII characters.
    """
    given = request.headers.getlist(KEY)
    if len(given) > 1:
        raise Problem(400, f"{KEY} is given more than once", field=KEY)
    if given and _KEY.fullmatch(given[0]) is None:
        raise Problem(400, f"{KEY} must be 1 to 255 visible ASCII characters", field=KEY)
    return given[0] if given else None


def integer(name: str, help_: str, *, low: int, high: int, default: int | None = None) -> Parameter:
    """A whole number within bounds."""
    said = f"a whole number from {low} to {high}"

    def read(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
            raise ValueError(said)
        return int(text)

    schema: dict[str, object] = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name=name, help=help_, schema=schema, read=read, default=default)


def choice(name: str, help_: str, among: Iterable[str], default: str | None = None) -> Parameter:
    """One of a few words."""
    words = tuple(among)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    schema: dict[str, object] = {"type": "string", "enum": list(words)}
    if default is not None:
        schema["default"] = default
    return Parameter(name=name, help=help_, schema=schema, read=read, default=default)


def flag(name: str, help_: str) -> Parameter:
    """`true` or `false`; left out, false."""
    words = {"true": True, "false": False}

    def read(text: str) -> bool:
        if text not in words:
            raise ValueError("true or false")
        return words[text]

    return Parameter(name=name, help=help_, schema={"type": "boolean", "default": False}, read=read, default=False)


HIDDEN = flag("hidden", "Include hidden archives (`steno sources hide`).")


def text(name: str, help_: str, *, longest: int = 200) -> Parameter:
    """Any text up to a length."""

    def read(given: str) -> str:
        if len(given) > longest:
            raise ValueError(f"at most {longest} characters long")
        return given

    return Parameter(name=name, help=help_, schema={"type": "string", "maxLength": longest}, read=read)


def time(name: str, help_: str) -> Parameter:
    """A time, read as microseconds, UTC."""
    return Parameter(name=name, help=help_, schema={"type": "string", "format": "date-time"}, read=read_time)


def read_time(text: str) -> int:
    """Microseconds, UTC, of a time as people and programs write it.

    Raises:
        ValueError: it is none; the text says what it must be.
    """
    if _TIME.fullmatch(text) is None:
        raise ValueError(_A_TIME)
    try:
        return parse_time(text.upper())
    except (ValueError, OverflowError):
        raise ValueError(_A_TIME) from None


def _cut(given: str) -> str:
    return given if len(given) <= _SHOWN else given[:_SHOWN] + "…"


# -- pages of long lists: a cursor names the last row shown, so new rows do not move a page ----------------------------

MOST = 500
LIMIT = integer("limit", "Maximum number of rows.", low=1, high=MOST, default=50)
_Row = TypeVar("_Row")
_PAGE_POSITION = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


class PagePosition(NamedTuple):
    """Where a page ended: what rows are sorted by, and what tells equal ones apart."""

    first: int
    second: int


def _single(text: str) -> int:
    if _PAGE_POSITION.fullmatch(text) is None or "." in text:
        raise ValueError("the `next` value of the previous page")
    return int(text)


def _double(text: str) -> PagePosition:
    first, dot, second = text.partition(".")
    if _PAGE_POSITION.fullmatch(text) is None or not dot:
        raise ValueError("the `next` value of the previous page")
    return PagePosition(int(first), int(second))


_HELP = "The `next` value of the previous page, unchanged."
CURSOR = Parameter(name="cursor", help=_HELP, schema={"type": "string", "pattern": "^[0-9]{1,18}$"}, read=_single)
"""Of lists sorted by one number."""
SORTED_CURSOR = Parameter(
    name="cursor", help=_HELP, schema={"type": "string", "pattern": r"^[0-9]{1,18}\.[0-9]{1,18}$"}, read=_double
)
"""Of lists sorted by a time, in which two rows may share one."""


def cursor_of(place: int | PagePosition) -> str:
    """The text of a cursor."""
    return ".".join(str(part) for part in place) if isinstance(place, PagePosition) else str(place)


def cut(rows: Sequence[_Row], limit: int) -> tuple[Sequence[_Row], bool]:
    """(the rows of a page, whether there are more) of up to one row more than a page has."""
    return rows[:limit], len(rows) > limit
