"""`/metrics`, `/healthz` and `/readyz`."""

from typing import Any, Final

import msgspec
from anyio import to_thread
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.fold.sources import observability
from engine.wire import Shape, wire
from events.errors import StenoError
from projections.api.bodies import JSON
from projections.api.operations.collector import ServiceCollector, watched
from projections.api.parameters import asked_of
from projections.api.problems import Problem
from projections.api.service import Service
from projections.models.projector import Building, Lag
from projections.models.view import SourceView

MOST_LAG: Final = 15.0
"""Seconds that read models may be behind."""
MOST_SILENCE: Final = 30.0
"""Seconds since the record was last read by the feed."""


class Readiness(Shape, frozen=True, kw_only=True):
    """What `/readyz` answers."""

    status: str
    """`ready` or `not_ready`."""
    reasons: tuple[str, ...]
    position: int
    """The last position sent to listeners."""
    head: int | None
    """Where the record ends; None where it cannot be read."""
    lag: Lag | None
    building: Building | None
    """How far read models are that have to be built first."""
    sources: tuple[SourceView, ...]


def readiness(service: Service) -> Readiness:
    """How things stand; blocks, so it is for worker threads."""
    feed, now, reasons = service.feed, service.clock.now(), list[str]()
    head: int | None = None
    lag: Lag | None = None
    sources: tuple[SourceView, ...] = ()
    if not feed.alive:
        reasons.append("the thread that follows the record has stopped: restart the server")
    elif feed.trouble is not None:
        reasons.append(feed.trouble)
    elif feed.live.silence > MOST_SILENCE:
        reasons.append(f"the record was last read {feed.live.silence:.0f} s ago")
    try:
        head = feed.head()
        lag = service.projector.lag
    except StenoError as error:
        reasons.append(str(error))
    building = service.projector.building
    if building is not None:
        reasons.append(f"the read models are being built: {building}")
    elif lag is not None and lag.seconds > MOST_LAG:
        reasons.append(f"the read models are {lag.positions} positions and {lag.seconds:.0f} s behind the record")
    if feed.trouble is None:
        try:
            with feed.state() as state:
                sources = tuple(
                    SourceView(name=name, observability=observability(one, now), last_answered=one.last_answered)
                    for name, one in watched(state).items()
                )
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


_FRESH: Final = {"Cache-Control": "no-store"}
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def routes(service: Service) -> list[BaseRoute]:
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(ServiceCollector(service))

    async def metrics(request: Request) -> Response:
        asked_of(request, ())
        text = await to_thread.run_sync(generate_latest, registry)
        return Response(text, headers={**_FRESH, "Content-Type": _TEXT})

    async def healthz(request: Request) -> Response:
        asked_of(request, ())
        return Response(b'{"status":"ok"}', media_type=JSON, headers=_FRESH)

    async def readyz(request: Request) -> Response:
        asked_of(request, ())
        found = await to_thread.run_sync(readiness, service)
        status = 503 if found.reasons else 200
        return Response(msgspec.json.encode(wire(found)), status_code=status, media_type=JSON, headers=_FRESH)

    return [Route(f"/{one.__name__}", one, methods=["GET"]) for one in (metrics, healthz, readyz)]


def _described(summary: str, media: str, answers: dict[str, str], schema: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": schema}}
    said = {status: {"description": text, "content": content} for status, text in answers.items()}
    return {"get": {"summary": summary, "tags": ["operations"], "parameters": [], "responses": said}}


_HEALTHY: Final = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"const": "ok"}},
    "additionalProperties": False,
}
_READY: Final = {"200": "It is ready.", "503": "It is not ready; `reasons` says why."}
(_READINESS,), _SCHEMAS = msgspec.json.schema_components((Readiness,), ref_template="#/components/schemas/{name}")
OPENAPI: Final[dict[str, Any]] = {
    "paths": {
        "/metrics": _described(
            "Metrics in the Prometheus text format", "text/plain", {"200": "Metrics."}, {"type": "string"}
        ),
        "/healthz": _described("Whether the process is alive", JSON, {"200": "It is alive."}, _HEALTHY),
        "/readyz": _described("Whether the service is ready", JSON, _READY, _READINESS),
    },
    "components": {"schemas": _SCHEMAS},
}
