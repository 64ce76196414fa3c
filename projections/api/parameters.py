"""Parameters of requests: each parses its text, reports errors, and describes itself for OpenAPI."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from steno.events.clock import parse_time
from steno.projections.api.problems import Problem

KEY: Final = "Idempotency-Key"
_KEY: Final = "[!-~]+"
_LONGEST_KEY: Final = 255
KEY_HEADER: Final = {  # as in the OpenAPI document
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "The same key with the same body always means the same run; with another body: 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": _LONGEST_KEY, "pattern": f"^{_KEY}$"},
}
MAX_ID: Final = 100  # characters of an id or name; more would slow the search for similar names
NAMED: Final = (  # how every route finds a run or a machine (`View.row`, `View.vm_row`)
    "An id, the provider's id, a name (Steno's own active run of that name, else the newest), or a unique prefix of "
    "an id."
)
A_TIME: Final = "time as 2026-11-20T15:00:00Z"
MOST_POSITION: Final = 10**18 - 1
_SHOWN: Final = 60  # characters of a wrong value that an answer repeats
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9:]{2,6})?)?"
)

Asked = Mapping[str, Any]  # path parts as text, and parameter values or their defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A query parameter; may be left out unless it is required, not repeated."""

    name: str
    help: str
    schema: Mapping[str, object]
    expected: str  # what the value must be
    read: Callable[[str], Any]  # None: the text is not such a value
    default: object = None
    required: bool = False

    def described(self) -> dict[str, Any]:
        schema = dict(self.schema) if self.default is None else {**self.schema, "default": self.default}
        return {"name": self.name, "in": "query", "required": self.required, "description": self.help, "schema": schema}


def asked_of(request: Request, parameters: Iterable[Parameter]) -> Asked:
    """The checked parameters. Raises `Problem`: 400 with the unknown, repeated or invalid parameter; 404 a name is too
    long.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name not in known:
            there = ", ".join(known) or "none"
            raise Problem(400, f"unknown parameter {_cut(name)}; known: {there}", field=_cut(name))
        if name in values:
            raise Problem(400, f"{name} is given more than once", field=name)
        values[name] = known[name].read(text)
        if values[name] is None:
            raise Problem(400, f"{name} is {_cut(text)!r}; it must be {known[name].expected}", field=name)
    for name, wanted in known.items():
        if wanted.required and name not in values:
            raise Problem(400, f"{name} is missing; it is {wanted.expected}", field=name)
    for name, word in request.path_params.items():
        if len(word) > MAX_ID:
            raise Problem(404, f"no name is that long ({len(word)} characters)", field=name)
    return {**{parameter.name: parameter.default for parameter in known.values()}, **values, **request.path_params}


def path_parameters(path: str) -> list[dict[str, Any]]:
    word = {"type": "string", "minLength": 1, "maxLength": MAX_ID}
    number = {"type": "integer", "minimum": 1, "maximum": MOST_POSITION}
    known = {"id": (word, NAMED), "position": (number, "A position of the record.")}
    known["case"] = number, "The number of a case."
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": known[name][0], "description": known[name][1]}
        for name in names
    ]


def idempotency_key(request: Request) -> str | None:
    """The idempotency key, if any; raises `Problem` 400 if given twice, or not of 1 to 255 visible ASCII characters."""
    given = request.headers.getlist(KEY)
    if len(given) > 1:
        raise Problem(400, f"{KEY} is given more than once", field=KEY)
    if given and (len(given[0]) > _LONGEST_KEY or re.fullmatch(_KEY, given[0]) is None):
        raise Problem(400, f"{KEY} must be 1 to {_LONGEST_KEY} visible ASCII characters", field=KEY)
    return given[0] if given else None


def integer(name: str, help_: str, *, low: int, high: int, default: int | None = None) -> Parameter:
    def read(text: str) -> int | None:
        return int(text) if _INTEGER.fullmatch(text) is not None and low <= int(text) <= high else None

    schema, expected = {"type": "integer", "minimum": low, "maximum": high}, f"a whole number from {low} to {high}"
    return Parameter(name=name, help=help_, schema=schema, expected=expected, read=read, default=default)


def choice(name: str, help_: str, among: Iterable[str], default: str | None = None) -> Parameter:
    words = {word: word for word in among}
    schema, expected = {"type": "string", "enum": list(words)}, f"one of {', '.join(words)}"
    return Parameter(name=name, help=help_, schema=schema, expected=expected, read=words.get, default=default)


def flag(name: str, help_: str) -> Parameter:
    """`true` or `false`; the default is false."""
    read = {"true": True, "false": False}.get
    schema = {"type": "boolean"}
    return Parameter(name=name, help=help_, schema=schema, expected="true or false", read=read, default=False)


FORMAT = choice("format", "The form of the answer; default: as `Accept` says, else JSON.", ("json", "csv"))
HIDDEN = flag("hidden", "Include hidden archives (`steno sources hide`).")


def text(name: str, help_: str, *, longest: int = 200, required: bool = False) -> Parameter:
    def read(given: str) -> str | None:
        return given if required <= len(given) <= longest else None

    schema = {"type": "string", "maxLength": longest} | ({"minLength": 1} if required else {})
    expected = f"at most {longest} characters long"
    return Parameter(name=name, help=help_, schema=schema, expected=expected, read=read, required=required)


_MONTH: Final = "^[12][0-9]{3}-(0[1-9]|1[0-2])$"
MONTH: Final = Parameter(
    name="month",
    help="The month (UTC); default: that of the moment shown.",
    schema={"type": "string", "pattern": _MONTH},
    expected="a month as 2026-11",
    read=lambda given: given if re.fullmatch(_MONTH, given) else None,
)


def time(name: str, help_: str) -> Parameter:
    """A time, parsed to microseconds UTC."""
    schema = {"type": "string", "format": "date-time"}
    return Parameter(name=name, help=help_, schema=schema, expected=f"a {A_TIME}", read=read_time)


def read_time(text: str) -> int | None:
    """Microseconds UTC of a time in any usual notation; None: not a time."""
    with suppress(ValueError, OverflowError):
        if _TIME.fullmatch(text) is not None:
            return parse_time(text.upper())
    return None


def read_position(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _cut(given: str) -> str:
    return given if len(given) <= _SHOWN else given[:_SHOWN] + "…"


# -- the moment that a read shows --------------------------------------------------------------------------------------


class Moment(NamedTuple):
    position: int | None
    time: int | None


def _read_at(text: str) -> Moment | None:
    moment = Moment(read_position(text), read_time(text))
    return moment if moment.position or moment.time is not None else None


def _read_known(text: str) -> Moment | None:
    return Moment(None, None) if text == "now" else _read_at(text)


_PLACES: Final[list[dict[str, object]]] = [
    {"type": "integer", "minimum": 1, "maximum": MOST_POSITION},
    {"type": "string", "format": "date-time"},
]
MOMENT = (  # parameters of every read
    Parameter(
        name="at",
        help="Show the state at a position or at a time (ISO 8601; UTC without an offset).",
        schema={"anyOf": _PLACES},
        expected=f"a position from 1, or a {A_TIME}",
        read=_read_at,
    ),
    Parameter(
        name="known",
        help="With `at`: show that moment by what was known of it at this later position or time, or `now`. Default: "
        "by what was known at the moment itself.",
        schema={"anyOf": [*_PLACES, {"const": "now"}]},
        expected=f"a position from 1, a {A_TIME}, or `now`",
        read=_read_known,
    ),
    Parameter(
        name="min_position",
        help="Wait up to two seconds until the answer includes this position, for example the one a command returned.",
        schema={"type": "integer", "minimum": 0, "maximum": MOST_POSITION},
        expected="a position: a whole number",
        read=read_position,
    ),
)


# -- pages of long lists: a cursor names the last row shown, so new rows do not move a page ----------------------------

MOST = 500
LIMIT = integer("limit", "Maximum number of rows.", low=1, high=MOST, default=50)


Place = int | tuple[int, ...]  # a row's sort key, with a tie-breaker if it is not unique


def _cursor(pattern: str, made: Callable[[str], object]) -> Parameter:
    return Parameter(
        name="cursor",
        help="The `next` value of the previous page, unchanged.",
        schema={"type": "string", "pattern": f"^{pattern}$"},
        expected="the `next` value of the previous page",
        read=lambda text: made(text) if re.fullmatch(pattern, text) else None,
    )


CURSOR = _cursor("[0-9]{1,18}", int)  # of lists sorted by one number
SORTED_CURSOR = _cursor(r"[0-9]{1,18}\.[0-9]{1,18}", lambda text: tuple(map(int, text.split("."))))
"""For lists sorted by a time that rows may share."""
QUERY_CURSOR = _cursor(r"(-1|[0-9]{1,18}|[0-9a-f]{0,1600})\.[0-9]{1,18}\.[0-9a-f]{8}", str)
"""For lists with filters and orders: it belongs to one of them."""


def cursor_of(place: Place | None) -> str | None:
    """The cursor behind a row; None: no row follows."""
    if place is None:
        return None
    return ".".join(map(str, place)) if isinstance(place, tuple) else str(place)
