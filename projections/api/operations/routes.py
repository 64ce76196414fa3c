"""`/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from anyio import to_thread
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from projections.api.operations.collector import ServiceCollector
from projections.api.operations.ready import Readiness, readiness
from projections.api.parameters import asked_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from projections.api.service import Service

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"
_FRESH: Final = {"Cache-Control": "no-store"}


def routes(service: Service) -> list[BaseRoute]:
    """What an operator's tools ask."""
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
        return Response(b'{"status":"ok"}', media_type=_JSON, headers=_FRESH)

    async def readyz(request: Request) -> Response:
        asked_of(request, ())
        found = await to_thread.run_sync(readiness, service)
        status = 503 if found.reasons else 200
        return Response(msgspec.json.encode(found), status_code=status, media_type=_JSON, headers=_FRESH)

    return [
        Route("/metrics", metrics, methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
    ]


def _described(summary: str, answers: dict[str, object]) -> dict[str, object]:
    return {"get": {"summary": summary, "tags": ["operations"], "parameters": [], "responses": answers}}


_readiness: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/Readiness"}}}
_healthy: Final = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"const": "ok"}},
    "additionalProperties": False,
}
_, _schemas = msgspec.json.schema_components((Readiness,), ref_template="#/components/schemas/{name}")
OPENAPI: Final[dict[str, object]] = {
    "paths": {
        "/metrics": _described(
            "Everything that is counted, as Prometheus reads it",
            {"200": {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
        ),
        "/healthz": _described(
            "Whether the process lives",
            {"200": {"description": "It does.", "content": {"application/json": {"schema": _healthy}}}},
        ),
        "/readyz": _described(
            "Whether it can be relied on",
            {
                "200": {"description": "It can.", "content": _readiness},
                "503": {"description": "It cannot, and why.", "content": _readiness},
            },
        ),
    },
    "components": {"schemas": _schemas},
}
