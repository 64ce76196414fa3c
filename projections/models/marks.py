"""The record as a line in time: where it begins and ends, and what a person looks for on it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from projections.models.live_projector import Lag
from projections.models.wire import Position, Shape, Time
from projections.store.reader_pool import Look

MARKS: Final = 400
"""Shown at most; of a shorter stretch they are closer to each other."""


class MarkObject(Shape, frozen=True, kw_only=True):
    """Something to look for in time."""

    position: Position
    at: Time
    kind: str
    subject: str


class RecordObject(Shape, frozen=True, kw_only=True):
    """Where the record stands, or stood at the moment looked at."""

    record_id: str
    position: Position
    hash: str
    """Of a past moment: the part of the hash that its event carries."""
    first_at: Time | None
    last_at: Time | None
    checkpoint: Annotated[Position, Meta(description="The position the read models show.")]
    lag: Lag
    marks: tuple[MarkObject, ...]
    thinned: Annotated[bool, Meta(description="More marks exist: use `since` and `until` for a shorter range.")]


def record_object(look: Look, lag: Lag, *, since: int | None = None, until: int | None = None) -> RecordObject:
    """The record's head, and the marks of a stretch of time (microseconds, UTC)."""
    record = look.record
    newest = record.head()
    head = look.position if look.past else newest.position
    first = next(iter(record.read(limit=1)), None)
    last = next(iter(record.read(after=head - 1, limit=1)), None) if head else None
    found = look.view.store.marks(MARKS, since, until)
    return RecordObject(
        record_id=record.id,
        position=head,
        hash=newest.hash if last is None or head == newest.position else last.hash,
        first_at=None if first is None else first.observed_at,
        last_at=None if last is None else max(last.observed_at, look.view.last_at or 0),
        checkpoint=look.position,
        lag=lag,
        marks=msgspec.convert(found.marks, tuple[MarkObject, ...], from_attributes=True),
        thinned=found.thinned,
    )
