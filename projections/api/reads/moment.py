"""`?at=` and `?min_position=`: which moment of the record a read shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from projections.api.parameters import (
    A_TIME,
    MOST_POSITION,
    Asked,
    Parameter,
    position,
    read_position,
    read_time,
)
from projections.api.problems import Problem
from projections.api.service import Service
from projections.models.position_at import NOTHING, Beyond, moment_at
from projections.models.reader_pool import Look


class Moment(NamedTuple):
    """A position, or a time (microseconds, UTC)."""

    position: int | None
    time: int | None


def _read_at(text: str) -> Moment | None:
    found = Moment(read_position(text), read_time(text))
    return found if found.position or found.time is not None else None


MOMENT = (
    Parameter(
        name="at",
        help="Show the state at a position or at a time (ISO 8601; UTC without an offset).",
        schema={
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_POSITION},
                {"type": "string", "format": "date-time"},
            ]
        },
        expected=f"a position from 1, or a {A_TIME}",
        read=_read_at,
    ),
    position(
        "min_position",
        "Wait up to two seconds until the answer includes this position, for example the one a command returned.",
    ),
)
"""What every read takes."""


@contextmanager
def look(service: Service, asked: Asked) -> Iterator[Look]:
    """The record and its read models at the moment asked for; blocks, so it is for worker threads.

    Raises:
        Problem: 400, the moment is in the future; 409, `min_position` is beyond the end of the record.
        Behind: the read models did not reach the position in time.
    """
    with _now(service, asked["min_position"] or 0) as found:
        if asked["at"] is None:
            yield found
            return
        there = _place_of(asked["at"], found, service.clock.now())
    with service.pool.at(*there) as found:
        yield found


@contextmanager
def _now(service: Service, least: int) -> Iterator[Look]:
    with service.pool.now() as found:
        if found.position >= least:
            yield found
            return
        head = found.record.head().position
    if head < least:
        said = f"the record ends at position {head}; position {least} does not exist yet"
        raise Problem(409, said, field="min_position")
    with service.pool.now(min_position=least) as found:
        yield found


def _place_of(moment: Moment, found: Look, now: int) -> tuple[int, Beyond]:
    head = found.record.head().position
    if moment.time is None:
        there = moment.position or 0
        if there > head:
            raise Problem(400, f"the record ends at position {head}; {there} is beyond it", field="at")
        return there, NOTHING
    if moment.time > now:
        raise Problem(400, "this time is in the future", field="at")
    return moment_at(found.record, moment.time, head, found.view.state)
