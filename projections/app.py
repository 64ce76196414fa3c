"""The whole application: the gate in front, the hot reads behind it, and behind them one router of all parts."""

from starlette.applications import Starlette

from projections.api import commands, openapi, reads, streams
from projections.api.access import session
from projections.api.access.middleware import AccessMiddleware
from projections.api.amd import routes as amd
from projections.api.hot import HotReads
from projections.api.operations import routes as operations
from projections.api.problems import HANDLERS, Failures
from projections.api.service import Service
from projections.dashboard import routes as dashboard

PARTS = (reads, commands, session, streams, operations, amd, dashboard)
"""Each has `routes(service)` and `OPENAPI`, what the document says of them; the first match answers."""


def build_app(service: Service) -> AccessMiddleware:
    """The application that a server serves; `service.closing` is closed when it does not any more."""
    routes = [route for part in PARTS for route in part.routes(service)]
    router = Starlette(routes=[*routes, openapi.route(PARTS)], exception_handlers=HANDLERS)
    router.router.redirect_slashes = False
    hot_reads = HotReads(service, Failures(router))
    return AccessMiddleware(service, hot_reads, hot_reads.ready)
