"""The whole application: access checks in front of a router of all parts."""

from steno.projections.api import budget_moves, commands, levers, openapi, operations, reads, streams
from steno.projections.api.access import routes as access
from steno.projections.api.access.middleware import AccessMiddleware
from steno.projections.api.amd import routes as amd
from steno.projections.api.problems import Routes
from steno.projections.api.service import Service
from steno.projections.dashboard import routes as dashboard

PARTS = (reads, commands, levers, budget_moves, access, streams, operations, amd, dashboard)
"""Each has `routes(service)` and `OPERATIONS`; the first match wins."""


def build_app(service: Service) -> AccessMiddleware:
    """The application to serve; close `service.closing` after the server ended."""
    routes = [route for part in PARTS for route in part.routes(service)]
    router = Routes([*routes, *openapi.routes(PARTS)], redirect_slashes=False, default=dashboard.missing)
    return AccessMiddleware(service, router)
