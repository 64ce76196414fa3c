"""What went wrong: anomalies and blind times, newest first."""

from typing import TYPE_CHECKING, Final

import msgspec

from engine.objects import AnomalyObject, BlindObject
from events.clock import format_time
from projections.store.reader_pool import Look

if TYPE_CHECKING:
    from events.store.record import Record

_BLIND: Final = 200
"""Gaps shown at most."""
_anomaly: Final = msgspec.json.Decoder(AnomalyObject)
_blind: Final = msgspec.json.Decoder(BlindObject)


class Incidents(msgspec.Struct, frozen=True, kw_only=True):
    """One page of them."""

    anomalies: list[dict[str, object]]
    """`{"kind", "subject", "position", "at", "detail"}`."""
    blind: tuple[BlindObject, ...]
    """Those that last first; on the first page only."""
    next: tuple[int, int] | None
    """The place of the last anomaly, where there are more."""


def incidents(look: Look, *, behind: tuple[int, int] | None = None, limit: int = 50) -> Incidents:
    """Anomalies behind a place (`Incidents.next` of the page before), newest first."""
    found = look.view.store.newest_anomalies(limit + 1, behind, but=look.view.hidden())
    shown = found[:limit]
    return Incidents(
        anomalies=[_object(look.record, _anomaly.decode(one)) for _, one in shown],
        blind=blind(look) if behind is None else (),
        next=shown[-1][0] if len(found) > limit else None,
    )


def newest(look: Look, count: int) -> list[dict[str, object]]:
    """So many anomalies of live sources, newest first."""
    return [_object(look.record, _anomaly.decode(one)) for _, one in look.view.store.newest_anomalies(count)]


def blind(look: Look) -> tuple[BlindObject, ...]:
    """Gaps in which a source told us nothing: those that last, and then those that ended last."""
    over = (_blind.decode(one) for one in look.view.store.newest_blind(_BLIND, but=look.view.hidden()))
    return (*look.view.open_gaps(), *over)


def _object(record: "Record", one: AnomalyObject) -> dict[str, object]:
    stored = next(iter(record.read(after=one.position - 1, limit=1)), None)
    return {
        "kind": one.kind,
        "subject": one.subject,
        "position": one.position,
        "at": None if stored is None else format_time(stored.observed_at),
        "detail": one.detail,
    }
