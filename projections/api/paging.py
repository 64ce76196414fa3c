"""Pages of long lists: a cursor names the last row that was given, so a page does not move when new rows come."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from projections.api.parameters import Parameter, integer

MOST = 500
LIMIT = integer("limit", "How many to give at most.", low=1, high=MOST, default=50)
_Row = TypeVar("_Row")
_PLACE = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


class PagePosition(NamedTuple):
    """Where a page ended: what rows are sorted by, and what tells equal ones apart."""

    first: int
    second: int


def _single(text: str) -> int:
    if _PLACE.fullmatch(text) is None or "." in text:
        raise ValueError("the `next` value of the previous page")
    return int(text)


def _double(text: str) -> PagePosition:
    first, dot, second = text.partition(".")
    if _PLACE.fullmatch(text) is None or not dot:
        raise ValueError("the `next` value of the previous page")
    return PagePosition(int(first), int(second))


_HELP = "Go on behind a page: its `next`, as it is."
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
