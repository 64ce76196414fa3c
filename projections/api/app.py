"""The whole application: the gate in front, the hot reads behind it, and behind them one router of all parts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.routing import BaseRoute

from projections.api import openapi
from projections.api.failures import Failures, handlers

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from projections.api.service import Service

PARTS = (
    "projections.api.reads.routes",
    "projections.api.commands",
    "projections.api.access.session",
    "projections.api.streams",
    "projections.api.operations.routes",
    "projections.api.amd.routes",
    "projections.api.dashboard.routes",
)
"""Each has `routes(service)`, and `OPENAPI` for routes that FastAPI does not describe; the first match answers."""


def build_app(service: Service) -> ASGIApp:
    """The application that a server serves; `service.closing` is closed when it does not any more."""
    router = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=handlers(),
    )
    parts = _parts()
    routes = router.router.routes
    for part in parts:
        routes.extend(_routes(part, service))
    routes.append(openapi.route(parts))
    app: ASGIApp = Failures(router)
    for front in ("projections.api.hot", "projections.api.access.gate"):
        found = _imported(front)
        if found is not None:
            app = found.in_front(service, app)
    return app


def _routes(part: Any, service: Service) -> list[BaseRoute]:
    return list(part.routes(service))


def _parts() -> tuple[Any, ...]:
    return tuple(part for name in PARTS if (part := _imported(name)) is not None)


def _imported(name: str) -> Any:
    """The part of that name; None where it is not there yet."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
