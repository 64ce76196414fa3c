"""The whole application: the access checks in front, which answer hot reads, and behind them a router of all parts."""

from projections.api import commands, openapi, operations, reads, streams
from projections.api.access import session
from projections.api.access.middleware import AccessMiddleware
from projections.api.amd import routes as amd
from projections.api.hot import HotReads
from projections.api.problems import Routes
from projections.api.service import Service
from projections.dashboard import routes as dashboard

PARTS = (reads, commands, session, streams, operations, amd, dashboard)
"""Each has `routes(service)` and `OPERATIONS`, what the document says of them; the first match answers."""


def build_app(service: Service) -> AccessMiddleware:
    """The application that a server serves; `service.closing` is closed when it does not any more."""
    routes = [route for part in PARTS for route in part.routes(service)]
    router = Routes([*routes, *openapi.routes(PARTS)], redirect_slashes=False)
    return AccessMiddleware(service, router, HotReads(service).ready)
