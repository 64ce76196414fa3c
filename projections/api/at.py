"""`?at=` and `?min_position=`: which moment of the record a read shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from projections.api.parameters import Asked, Parameter, read_time
from projections.api.problems import Problem
from projections.models.position_at import NOTHING, Beyond, moment_at
from projections.store.reader_pool import Look

if TYPE_CHECKING:
    from projections.api.service import Service

_POSITION = re.compile("[0-9]{1,18}")
_PAST = "a position, or a time as 2026-11-20T15:00:00Z"


@dataclass(frozen=True, slots=True)
class When:
    """A moment as somebody asks for it: a position, or a time (microseconds, UTC)."""

    position: int | None
    time: int | None


def _read_at(text: str) -> When:
    if _POSITION.fullmatch(text) is not None:
        if int(text) < 1:
            raise ValueError(f"{_PAST}; positions start at 1")
        return When(int(text), None)
    try:
        return When(None, read_time(text))
    except ValueError:
        raise ValueError(_PAST) from None


def _read_position(text: str) -> int:
    if _POSITION.fullmatch(text) is None:
        raise ValueError("a position: a whole number")
    return int(text)


AT = Parameter(
    name="at",
    help="Show the state at a position or at a time (ISO 8601; UTC without an offset).",
    schema={
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
            {"type": "string", "format": "date-time"},
        ]
    },
    read=_read_at,
)
MIN_POSITION = Parameter(
    name="min_position",
    help="Wait up to two seconds until the answer includes this position, for example the one a command returned.",
    schema={"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    read=_read_position,
)
MOMENT = (AT, MIN_POSITION)
"""What every read takes."""


@contextmanager
def look(service: Service, asked: Asked) -> Iterator[Look]:
    """The record and its read models at the moment asked for; blocks, so it is for worker threads.

    Raises:
        Problem: 400, the moment has not been; 409, `min_position` lies beyond the record.
        Behind: the read models did not come so far in time.
    """
    moment, least = asked.given["at"], asked.given["min_position"]
    if not isinstance(moment, When):
        with _now(service, least if isinstance(least, int) else None) as found:
            yield found
        return
    with _now(service, least if isinstance(least, int) else None) as found:
        there = _moment_of(moment, found, service.clock.now())
    with service.pool.at(*there) as found:
        yield found


@contextmanager
def _now(service: Service, least: int | None) -> Iterator[Look]:
    if least is None:
        with service.pool.now() as found:
            yield found
        return
    with service.pool.now() as found:
        head = found.record.head().position
        if found.position >= least:
            yield found
            return
    if head < least:
        raise Problem(
            409, f"the record ends at position {head}; position {least} does not exist yet", field="min_position"
        )
    with service.pool.now(min_position=least) as found:
        yield found


def _moment_of(moment: When, found: Look, now: int) -> tuple[int, Beyond]:
    head = found.record.head().position
    if moment.position is not None:
        if moment.position > head:
            raise Problem(400, f"the record ends at position {head}; {moment.position} is beyond it", field="at")
        return moment.position, NOTHING
    assert moment.time is not None  # noqa: S101 - one of the two is set
    if moment.time > now:
        raise Problem(400, "this time is in the future", field="at")
    return moment_at(found.record, moment.time, head, found.view.imported_at())
