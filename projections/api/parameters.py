"""Parameters of requests: each reads its text or says what it must be, and describes itself for the OpenAPI."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request

from events.clock import parse_time
from projections.api.problems import Problem

KEY: Final = "Idempotency-Key"
KEY_HEADER: Final = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "The same key with the same body always means the same run; with another body: 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
"""The header as the OpenAPI document describes it."""
LONGEST: Final = 100
"""Characters of a run's or machine's id or name in a path: no name is longer, and each character of an unknown one
makes the search for similar names slower."""
NAMED: Final = (
    "An id, the provider's id, a name (Steno's own active run of that name, else the newest), or a unique prefix of "
    "an id."
)
"""How a path names a run or a machine: every route finds it alike (`View.row`, `View.vm_row`)."""
POSITION: Final = re.compile("[0-9]{1,18}")
MOST_POSITION: Final = 10**18 - 1
_KEY: Final = re.compile("[!-~]{1,255}")
_SHOWN: Final = 60
"""Characters of a wrong value that an answer repeats."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9:]{2,6})?)?"
)

Asked = Mapping[str, Any]
"""What a request names: the parts of its path as text, and its parameters' values; left out, their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One query parameter; given once, or left out."""

    name: str
    help: str
    schema: Mapping[str, object]
    read: Callable[[str], object]
    """Raises ValueError, whose text says what the value must be."""
    default: object = None

    def described(self) -> dict[str, Any]:
        """The parameter as OpenAPI has it."""
        schema = dict(self.schema) if self.default is None else {**self.schema, "default": self.default}
        return {"name": self.name, "in": "query", "required": False, "description": self.help, "schema": schema}


def asked_of(request: Request, parameters: Iterable[Parameter]) -> Asked:
    """What a request asks for, checked.

    Raises:
        Problem: 400, with the parameter that is unknown, repeated or invalid; 404, a path's name is too long.
    """
    known = {one.name: one for one in parameters}
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise Problem(400, f"unknown parameter {_cut(name)}; known: {there}", field=_cut(name))
        if name in found:
            raise Problem(400, f"{name} is given more than once", field=name)
        try:
            found[name] = known[name].read(text)
        except ValueError as error:
            raise Problem(400, f"{name} is {_cut(text)!r}; it must be {error}", field=name) from None
    for name, word in request.path_params.items():
        if len(word) > LONGEST:
            raise Problem(404, f"no name is that long ({len(word)} characters)", field=name)
    return {**{one.name: one.default for one in known.values()}, **found, **request.path_params}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """The parts of a path in braces, as OpenAPI has them."""
    word = {"type": "string", "minLength": 1, "maxLength": LONGEST}
    number = {"type": "integer", "minimum": 1, "maximum": MOST_POSITION}
    known = {"id": (word, NAMED), "position": (number, "A position of the record.")}
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": known[name][0], "description": known[name][1]}
        for name in names
    ]


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

    def read(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(name=name, help=help_, schema=schema, read=read, default=default)


def choice(name: str, help_: str, among: Iterable[str], default: str | None = None) -> Parameter:
    """One of a few words."""
    words = list(among)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return Parameter(name=name, help=help_, schema={"type": "string", "enum": words}, read=read, default=default)


def flag(name: str, help_: str) -> Parameter:
    """`true` or `false`; left out, false."""

    def read(text: str) -> bool:
        if text not in {"true", "false"}:
            raise ValueError("true or false")
        return text == "true"

    return Parameter(name=name, help=help_, schema={"type": "boolean"}, read=read, default=False)


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
        ValueError: it is not a time; the text says what it must be.
    """
    try:
        if _TIME.fullmatch(text) is not None:
            return parse_time(text.upper())
    except (ValueError, OverflowError):
        pass
    raise ValueError("a time as 2026-11-20T15:00:00Z")


def position(name: str, help_: str, default: int | None = None) -> Parameter:
    """A position of the record, from 0."""

    def read(text: str) -> int:
        if POSITION.fullmatch(text) is None:
            raise ValueError("a position: a whole number")
        return int(text)

    schema = {"type": "integer", "minimum": 0, "maximum": MOST_POSITION}
    return Parameter(name=name, help=help_, schema=schema, read=read, default=default)


def _cut(given: str) -> str:
    return given if len(given) <= _SHOWN else given[:_SHOWN] + "…"


# -- pages of long lists: a cursor names the last row shown, so new rows do not move a page ----------------------------

MOST = 500
LIMIT = integer("limit", "Maximum number of rows.", low=1, high=MOST, default=50)
_Row = TypeVar("_Row")


class PagePosition(NamedTuple):
    """Where a page ended: the value that rows are sorted by, and the one that tells equal rows apart."""

    first: int
    second: int


def _cursor(pattern: str, made: Callable[..., object]) -> Parameter:
    def read(text: str) -> object:
        if re.fullmatch(pattern, text) is None:
            raise ValueError("the `next` value of the previous page")
        return made(*map(int, text.split(".")))

    help_ = "The `next` value of the previous page, unchanged."
    return Parameter(name="cursor", help=help_, schema={"type": "string", "pattern": f"^{pattern}$"}, read=read)


CURSOR = _cursor("[0-9]{1,18}", int)
"""Of lists sorted by one number."""
SORTED_CURSOR = _cursor(r"[0-9]{1,18}\.[0-9]{1,18}", PagePosition)
"""Of lists sorted by a time, in which two rows may share one."""


def cursor_of(place: int | PagePosition) -> str:
    """The text of a cursor."""
    return ".".join(map(str, place)) if isinstance(place, PagePosition) else str(place)


def cut(rows: Sequence[_Row], limit: int) -> tuple[Sequence[_Row], bool]:
    """(the rows of a page, whether there are more) of up to one row more than a page has."""
    return rows[:limit], len(rows) > limit
