"""Whether the service can be relied on now, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from engine.fold.sources import observability
from events.clock import format_time
from events.errors import StenoError
from projections.api.problems import Problem
from projections.models.build_progress import Building

if TYPE_CHECKING:
    from projections.api.service import Service

MOST_LAG: Final = 15.0
"""Seconds that read models may be behind."""
MOST_SILENCE: Final = 30.0
"""How long the feed may not have looked at the record."""


class LagObject(msgspec.Struct, frozen=True, kw_only=True):
    """How far the read models are behind the record."""

    positions: int
    seconds: float


class SourceObject(msgspec.Struct, frozen=True, kw_only=True):
    """Whether we see a source."""

    name: str
    observability: str
    last_answered: str | None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What `/readyz` answers."""

    status: str
    """`ready` or `not_ready`."""
    reasons: tuple[str, ...]
    position: int
    """What listeners have been told of."""
    head: int | None
    """Where the record ends; None where it cannot be read."""
    lag: LagObject | None
    building: Building | None
    """How far read models are that have to be built first."""
    sources: tuple[SourceObject, ...]


def readiness(service: Service) -> Readiness:
    """How things stand; blocks, so it is for worker threads."""
    feed, now = service.feed, service.clock.now()
    reasons: list[str] = []
    head: int | None = None
    lag: LagObject | None = None
    sources: tuple[SourceObject, ...] = ()
    if not feed.alive:
        reasons.append("the thread that follows the record has ended: restart the server")
    elif feed.trouble is not None:
        reasons.append(feed.trouble)
    elif feed.live.silence > MOST_SILENCE:
        reasons.append(f"the record was last looked at {feed.live.silence:.0f} s ago")
    try:
        head = feed.head()
        behind = service.projector.lag
        lag = LagObject(positions=behind.positions, seconds=behind.seconds)
    except StenoError as error:
        reasons.append(str(error))
    building = service.projector.building
    if building is not None:
        reasons.append(f"the read models are being built: {building}")
    elif lag is not None and lag.seconds > MOST_LAG:
        reasons.append(f"the read models are {lag.positions} positions and {lag.seconds:.0f} s behind the record")
    if feed.trouble is None:
        try:
            sources = _sources(service, now)
        except Problem as problem:
            reasons.append(problem.detail)
    return Readiness(
        status="not_ready" if reasons else "ready",
        reasons=tuple(dict.fromkeys(reasons)),
        position=feed.position,
        head=head,
        lag=lag,
        building=building,
        sources=sources,
    )


def _sources(service: Service, now: int) -> tuple[SourceObject, ...]:
    with service.feed.state() as state:
        return tuple(
            SourceObject(
                name=name,
                observability=observability(one, now).value,
                last_answered=None if one.last_answered is None else format_time(one.last_answered),
            )
            for name, one in state.sources.items()
            if not one.archive and (one.failed or one.last_answered is not None)
        )
