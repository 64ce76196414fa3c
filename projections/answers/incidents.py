"""Incidents: anomalies and gaps, newest first, and marks on the record's timeline."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from steno.engine.money.costs import runs_on
from steno.engine.objects import BlindObject
from steno.engine.state.changes import Anomaly
from steno.engine.wire import Position, Shape, Time
from steno.events.clock import parse_time
from steno.projections.answers.dwells import Dwell, dwells, more_about
from steno.projections.read_models.notes import Mark
from steno.projections.read_models.past_worlds import moment_at
from steno.projections.read_models.projector import Lag
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.run_query import RunQuery, check_known

_BLIND: Final = 200  # gaps shown at most
_PAGE: Final = 100  # anomalies read at once
_HISTORY: Final = 100  # runs or machines of a provider after which a move that is new is unusual
_NEW: Final = 20  # such moves shown at most


class DatedAnomaly(Shape, frozen=True, kw_only=True):
    """Something the provider said or did that it should not, and when."""

    kind: str
    subject: str
    position: Position
    at: Time | None
    detail: str
    more: Annotated[str, Meta(description="The command that shows more.")] = ""


class AnomalyKindObject(Shape, frozen=True, kw_only=True):
    """All anomalies of a kind."""

    kind: str
    count: int
    first_at: Time | None
    last_at: Time | None


class Incidents(msgspec.Struct, frozen=True, kw_only=True):
    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]  # those that last first; on the first page only
    dwells: tuple[Dwell, ...]  # as `blind`: those that are stuck first
    unusual: tuple[DatedAnomaly, ...]  # as `blind`: moves that nothing had made before, newest first
    kinds: tuple[AnomalyKindObject, ...]  # as `blind`: of all pages, that with the newest anomaly first
    next: tuple[int, int] | None  # the place of the last anomaly, where there are more


def incidents(
    look: Look,
    *,
    behind: tuple[int, int] | None = None,
    limit: int = 50,
    since: int | None = None,
    user: str | None = None,
    kind: str | None = None,
) -> Incidents:
    """Anomalies behind a place (`Incidents.next` of the previous page), newest first; with the moves and gaps, since a
    time, about a user's runs and their machines (and gaps), of one kind. Raises `UnknownValue`: no run is of that user.
    """
    check_known(look.view.store, RunQuery(user=user))
    rows = list(islice(_anomalies(look, behind, since, user, kind), limit + 1))
    page = rows[:limit]
    first = behind is None
    moves = (move for move in unusual(look) if (move.at or 0) >= (since or 0)) if first else ()
    return Incidents(
        anomalies=tuple(anomaly for _, anomaly in page),
        blind=blind(look, since) if first else (),
        dwells=tuple(dwell for dwell in dwells(look.view) if is_of(look, dwell.subject, user)) if first else (),
        unusual=tuple(move for move in moves if is_of(look, move.subject, user)),
        kinds=kinds(look) if first else (),
        next=page[-1][0] if len(rows) > limit else None,
    )


def position_before(look: Look, since: int) -> int:
    """The last position before a time."""
    return moment_at(look.record, since - 1, look.view.position, look.view.state)[0]


def is_of(look: Look, subject: str, user: str | None) -> bool:
    """True if `run/<run_id>` is a run of this user, or one was on `vm/<vm_id>`; of None, always."""
    if user is None:
        return True
    kind, _, name = subject.partition("/")
    vm = look.view.state.vms.get(name) if kind == "vm" else None
    runs = (name,) if kind == "run" else () if vm is None else runs_on(vm)
    return any(look.view.store.runs.columns(run_id, "user") == (user,) for run_id in runs)


def _anomalies(
    look: Look, behind: tuple[int, int] | None, since: int | None, user: str | None, kind: str | None
) -> Iterator[tuple[tuple[int, int], DatedAnomaly]]:
    """(place, anomaly), newest first."""
    first = 0 if since is None else position_before(look, since)
    while rows := look.view.store.newest_anomalies(_PAGE, behind, hidden=look.view.hidden(), kind=kind):
        for place, anomaly in rows:
            if place[0] <= first:
                return
            if is_of(look, anomaly.subject, user):
                dated = _dated_anomaly(look, anomaly)
                if since is None or (dated.at or 0) >= since:
                    yield place, dated
        behind = rows[-1][0]


def kinds(look: Look) -> tuple[AnomalyKindObject, ...]:
    """How many anomalies there are of each kind, and when the first and the newest were."""
    rows, time_of = look.view.store.anomaly_kinds(look.view.hidden()), partial(look.view.time_of, look.record)
    return tuple(
        AnomalyKindObject(kind=kind, count=count, first_at=time_of(first), last_at=time_of(last))
        for kind, count, first, last in rows
    )


def newest(look: Look, count: int) -> tuple[DatedAnomaly, ...]:
    """At most `count` anomalies of live sources, newest first."""
    return tuple(_dated_anomaly(look, note) for _, note in look.view.store.newest_anomalies(count, hidden=None))


def blind(look: Look, since: int | None = None) -> tuple[BlindObject, ...]:
    """Gaps: those open now, then those that ended last; `since`: not before that time."""
    over = look.view.store.newest_blind(_BLIND, hidden=look.view.hidden())
    known = (gap for gap in over if since is None or parse_time(gap.end or "") >= since)
    return (*look.view.open_gaps(look.now), *known)


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


def _dated_anomaly(look: Look, anomaly: Anomaly) -> DatedAnomaly:
    return _dated(look, **msgspec.structs.asdict(anomaly))


def _dated(look: Look, kind: str, subject: str, position: int, detail: str) -> DatedAnomaly:
    more = more_about(subject, position)
    at = look.view.time_of(look.record, position)
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
    last = record.at(head)
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
