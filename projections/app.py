"""The whole application: access checks, which also answer hot reads, in front of a router of all parts."""

from projections.api import commands, openapi, operations, reads, streams, token_routes
from projections.api.access import session
from projections.api.access.middleware import AccessMiddleware
from projections.api.amd import routes as amd
from projections.api.hot import HotReads
from projections.api.problems import Routes
from projections.api.service import Service
from projections.dashboard import routes as dashboard

PARTS = (reads, commands, session, token_routes, streams, operations, amd, dashboard)
"""Each has `routes(service)` and `OPERATIONS`; the first match wins."""


def build_app(service: Service) -> AccessMiddleware:
    """The application to serve; close `service.closing` after the server ended."""
    routes = [route for part in PARTS for route in part.routes(service)]
    router = Routes([*routes, *openapi.routes(PARTS)], redirect_slashes=False, default=dashboard.missing)
    return AccessMiddleware(service, router, HotReads(service).ready)
