"""Incidents: anomalies and gaps, newest first, and marks on the record's timeline."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engine.fold.change import Anomaly
from engine.fold.record_time import record_time
from engine.objects import BlindObject
from engine.wire import Position, Shape, Time
from projections.models.projector import Lag
from projections.models.reader_pool import Look
from projections.store.notes import Mark

_BLIND: Final = 200  # gaps shown at most
_anomaly: Final = msgspec.json.Decoder(Anomaly)
_blind: Final = msgspec.json.Decoder(BlindObject)


class DatedAnomaly(Shape, frozen=True, kw_only=True):
    """Something the provider said or did that it should not, and when."""

    kind: str
    subject: str
    position: Position
    at: Time | None
    detail: str


class Incidents(msgspec.Struct, frozen=True, kw_only=True):
    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]  # those that last first; on the first page only
    next: tuple[int, int] | None  # the place of the last anomaly, where there are more


def incidents(look: Look, *, behind: tuple[int, int] | None = None, limit: int = 50) -> Incidents:
    """Anomalies behind a place (`Incidents.next` of the previous page), newest first."""
    found = look.view.store.newest_anomalies(limit + 1, behind, hidden=look.view.hidden())
    shown = found[:limit]
    return Incidents(
        anomalies=tuple(_dated(look, one) for _, one in shown),
        blind=blind(look) if behind is None else (),
        next=shown[-1][0] if len(found) > limit else None,
    )


def newest(look: Look, count: int) -> tuple[DatedAnomaly, ...]:
    """At most `count` anomalies of live sources, newest first."""
    return tuple(_dated(look, one) for _, one in look.view.store.newest_anomalies(count, hidden=None))


def blind(look: Look) -> tuple[BlindObject, ...]:
    """Gaps: those open now, then those that ended last."""
    over = (_blind.decode(one) for one in look.view.store.newest_blind(_BLIND, hidden=look.view.hidden()))
    return (*look.view.open_gaps(look.now), *over)


def _dated(look: Look, text: bytes) -> DatedAnomaly:
    one = _anomaly.decode(text)
    stored = next(iter(look.record.read(after=one.position - 1, limit=1)), None)
    at = None if stored is None else record_time(look.view.state, stored)
    return DatedAnomaly(at=at, **msgspec.structs.asdict(one))


MARKS: Final = 400  # shown at most; of a shorter stretch they are closer to each other


class RecordObject(Shape, frozen=True, kw_only=True):
    """Where the record stands, or stood at the moment looked at."""

    record_id: str
    position: Position
    hash: str  # of a past moment: the part of the hash that its event carries
    first_at: Time | None
    last_at: Time | None
    checkpoint: Annotated[Position, Meta(description="The position the read models show.")]
    lag: Lag
    marks: tuple[Mark, ...]
    thinned: Annotated[bool, Meta(description="More marks exist: use `since` and `until` for a shorter range.")]


def record_object(look: Look, lag: Lag, *, since: int | None = None, until: int | None = None) -> RecordObject:
    """The record's head, and the marks of a period (microseconds UTC)."""
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
        marks=found.marks,
        thinned=found.thinned,
    )
