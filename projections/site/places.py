"""A place in each of several records as one text: `a:12,b:30`. Positions, cursors and stream ids are written so."""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

from projections.api.parameters import MOST_POSITION, Moment, Parameter, read_position, read_time
from projections.api.problems import Problem

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
LONGEST: Final = 4000  # characters of a cursor; one by name has up to 1,600 for each record
_PLACES: Final = re.compile(r"[A-Za-z0-9_-]+:[^,:]*(,[A-Za-z0-9_-]+:[^,:]*)*")


def text_of(places: Mapping[str, object]) -> str:
    """`{"a": 12, "b": 30}` as `a:12,b:30`."""
    return ",".join(f"{name}:{place}" for name, place in places.items())


def is_places(text: str) -> bool:
    """Whether a text is a place in each of some records, and not a time."""
    return _PLACES.fullmatch(text) is not None and read_time(text) is None


def places_of(text: str, names: Iterable[str], field: str, *, needed: Container[str] | None = None) -> dict[str, str]:
    """The places in a text, by record; those not `needed` (None: all are) may be left out. Raises `Problem` 400: not
    such a text, or of another set of records.
    """
    known = tuple(names)
    example = text_of(dict.fromkeys(known, 12))
    if _PLACES.fullmatch(text) is None:
        detail = f"{text[:60]!r} names no record: this service has several, so a place is written as {example}"
        raise Problem(400, detail, field=field)
    pairs = [(name, place) for name, _, place in (one.partition(":") for one in text.split(","))]
    found = dict(pairs)
    strange = [name for name in found if name not in known]
    lacking = [name for name in known if name not in found and (needed is None or name in needed)]
    if strange or lacking or len(found) < len(pairs):
        detail = f"{field} is of another set of records ({', '.join(found)}): this service has {', '.join(known)}"
        raise Problem(400, detail, field=field)
    return found


def positions_of(
    text: str, names: Iterable[str], field: str, *, needed: Container[str] | None = None
) -> dict[str, int]:
    """As `places_of`, of positions."""
    found = places_of(text, names, field, needed=needed)
    positions = {name: read_position(place) for name, place in found.items()}
    wrong = next((name for name, position in positions.items() if position is None), None)
    if wrong is not None:
        raise Problem(400, f"{found[wrong][:60]!r} of {wrong} is not a position; use a whole number", field=field)
    return {name: position or 0 for name, position in positions.items()}


def moments_of(text: str, names: Iterable[str], needed: Container[str]) -> dict[str, Moment]:
    """The moment `at` in each record: one time for all, or a position of each that is `needed`."""
    known = tuple(names)
    if (time := read_time(text)) is not None and not text.isdigit():
        return dict.fromkeys(known, Moment(None, time))
    return {name: Moment(position, None) for name, position in positions_of(text, known, "at", needed=needed).items()}


def text_parameter(name: str, help_: str, expected: str) -> Parameter:
    """A query parameter whose text the caller parses."""
    schema = {"type": "string", "maxLength": LONGEST}
    read: Callable[[str], Any] = lambda given: given if 0 < len(given) <= LONGEST else None  # noqa: E731 - an argument
    return Parameter(name=name, help=help_, schema=schema, expected=expected, read=read)


AT: Final = text_parameter(
    "at",
    "Show the state at a time (ISO 8601; UTC without an offset), or at a position of each record: `a:12,b:30`.",
    "a time, or a position of each record",
)
MIN_POSITION: Final = text_parameter(
    "min_position",
    "Wait up to two seconds until the answer includes these positions: `a:12`, or of several records `a:12,b:30`.",
    f"positions of records up to {MOST_POSITION}",
)
CURSOR: Final = text_parameter("cursor", "The `next` value of the previous page, unchanged.", "the previous `next`")
AFTER: Final = text_parameter(
    "after",
    "Start after these positions, `a:12,b:30`; 0: at the start of each. Last-Event-ID takes precedence. Without "
    "either: from now on.",
    "a position of each record, or 0",
)
