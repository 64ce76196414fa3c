"""The whole application: the gate in front, the hot reads behind it, and behind them one router of all parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

from projections.api import commands, hot, openapi, streams
from projections.api.access import gate, session
from projections.api.amd import routes as amd
from projections.api.failures import Failures, handlers
from projections.api.operations import routes as operations
from projections.api.reads import routes as reads
from projections.dashboard import routes as dashboard

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from projections.api.service import Service

PARTS = (reads, commands, session, streams, operations, amd, dashboard)
"""Each has `routes(service)`, and `OPENAPI` for routes that FastAPI does not describe; the first match answers."""


def build_app(service: Service) -> ASGIApp:
    """The application that a server serves; `service.closing` is closed when it does not any more."""
    router = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, exception_handlers=handlers()
    )
    for part in PARTS:
        router.router.routes.extend(part.routes(service))
    router.router.routes.append(openapi.route(PARTS))
    hot_reads = hot.in_front(service, Failures(router))
    return gate.in_front(service, hot_reads, hot_reads.ready)
