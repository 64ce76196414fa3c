"""Incidents: anomalies and gaps, newest first, and marks on the record's timeline."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from steno.engine.fold.record_time import record_time
from steno.engine.objects import BlindObject
from steno.engine.state.changes import Anomaly
from steno.engine.wire import Position, Shape, Time
from steno.projections.answers.dwells import Dwell, dwells, more_about
from steno.projections.read_models.notes import Mark
from steno.projections.read_models.projector import Lag
from steno.projections.read_models.reader_pool import Look

_BLIND: Final = 200  # gaps shown at most
_HISTORY: Final = 100  # runs or machines of a provider after which a move that is new is unusual
_NEW: Final = 20  # such moves shown at most
_anomaly: Final = msgspec.json.Decoder(Anomaly)
_blind: Final = msgspec.json.Decoder(BlindObject)


class DatedAnomaly(Shape, frozen=True, kw_only=True):
    """Something the provider said or did that it should not, and when."""

    kind: str
    subject: str
    position: Position
    at: Time | None
    detail: str
    more: Annotated[str, Meta(description="The command that shows more.")] = ""


class Incidents(msgspec.Struct, frozen=True, kw_only=True):
    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]  # those that last first; on the first page only
    dwells: tuple[Dwell, ...]  # as `blind`: those that are stuck first
    unusual: tuple[DatedAnomaly, ...]  # as `blind`: moves that nothing had made before, newest first
    next: tuple[int, int] | None  # the place of the last anomaly, where there are more


def incidents(look: Look, *, behind: tuple[int, int] | None = None, limit: int = 50) -> Incidents:
    """Anomalies behind a place (`Incidents.next` of the previous page), newest first."""
    rows = look.view.store.newest_anomalies(limit + 1, behind, hidden=look.view.hidden())
    page = rows[:limit]
    return Incidents(
        anomalies=tuple(_decoded(look, text) for _, text in page),
        blind=blind(look) if behind is None else (),
        dwells=dwells(look.view) if behind is None else (),
        unusual=unusual(look) if behind is None else (),
        next=page[-1][0] if len(rows) > limit else None,
    )


def newest(look: Look, count: int) -> tuple[DatedAnomaly, ...]:
    """At most `count` anomalies of live sources, newest first."""
    return tuple(_decoded(look, text) for _, text in look.view.store.newest_anomalies(count, hidden=None))


def blind(look: Look) -> tuple[BlindObject, ...]:
    """Gaps: those open now, then those that ended last."""
    over = (_blind.decode(gap) for gap in look.view.store.newest_blind(_BLIND, hidden=look.view.hidden()))
    return (*look.view.open_gaps(look.now), *over)


def unusual(look: Look) -> tuple[DatedAnomaly, ...]:
    """The moves from state to state that a provider's runs or machines made for the first time after `_HISTORY` others
    had come: the catalogue of moves is this record's own.
    """
    first: dict[tuple[str, str], int] = {}
    notes: list[DatedAnomaly] = []
    for move in look.view.store.moves():
        table = look.view.store.runs if move.kind == "run" else look.view.store.vms
        (place,) = table.columns(move.subject.partition("/")[2], "ordinal") or (0,)
        before = place - first.setdefault((move.kind, move.provider), place)
        if before >= _HISTORY:
            things = "runs" if move.kind == "run" else "machines"
            detail = f"{move.before} → {move.after}: none of {before:,} {things} of {move.provider} had done so before"
            notes.append(_dated(look, "new_transition", move.subject, move.position, detail))
    return tuple(reversed(notes[-_NEW:]))


def _decoded(look: Look, text: bytes) -> DatedAnomaly:
    return _dated(look, **msgspec.structs.asdict(_anomaly.decode(text)))


def _dated(look: Look, kind: str, subject: str, position: int, detail: str) -> DatedAnomaly:
    stored = next(iter(look.record.read(after=position - 1, limit=1)), None)
    at = None if stored is None else record_time(look.view.state, stored)
    more = more_about(subject, position)
    return DatedAnomaly(kind=kind, subject=subject, position=position, at=at, detail=detail, more=more)


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
    marks = look.view.store.marks(MARKS, since, until)
    return RecordObject(
        record_id=record.id,
        position=head,
        hash=newest.hash if last is None or head == newest.position else last.hash,
        first_at=None if first is None else first.observed_at,
        last_at=None if last is None else max(last.observed_at, look.view.last_at or 0),
        checkpoint=look.position,
        lag=lag,
        marks=marks.marks,
        thinned=marks.thinned,
    )
