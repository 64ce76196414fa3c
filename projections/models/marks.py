"""The record as a line in time: where it begins and ends, and what a person looks for on it."""

from typing import Final

from events.clock import format_time
from projections.models.live_projector import Lag
from projections.store.reader_pool import Look

MARKS: Final = 400
"""Told at most; of a shorter stretch they are closer to each other."""


def record_object(look: Look, lag: Lag, *, since: int | None = None, until: int | None = None) -> dict[str, object]:
    """`{"record_id", "position", "hash", "first_at", "last_at", "checkpoint", "lag", "marks", "thinned"}`: the record's
    head, or where it stood at the moment looked at; `checkpoint` is how far the read models are. The hash of a moment
    past is the part of it that its event carries. `since` and `until` (microseconds, UTC) say of which stretch the
    marks are wanted; `thinned` that it has more of them.
    """
    record = look.record
    newest = record.head()
    head = look.position if look.past else newest.position
    first = next(iter(record.read(limit=1)), None)
    last = next(iter(record.read(after=head - 1, limit=1)), None) if head else None
    found = look.view.store.marks(MARKS, since, until)
    return {
        "record_id": record.id,
        "position": head,
        "hash": newest.hash if last is None or head == newest.position else last.hash,
        "first_at": None if first is None else format_time(first.observed_at),
        "last_at": None if last is None else format_time(max(last.observed_at, look.view.last_at or 0)),
        "checkpoint": look.position,
        "lag": {"positions": lag.positions, "seconds": lag.seconds},
        "marks": [
            {"position": mark.position, "at": format_time(mark.at), "kind": mark.kind, "subject": mark.subject}
            for mark in found.marks
        ],
        "thinned": found.thinned,
    }
