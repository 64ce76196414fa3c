"""The application of a site: access checks in front of a router that knows every record."""

import re
from functools import partial
from typing import Any

from anyio import CapacityLimiter
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from projections.api.access.middleware import AccessMiddleware
from projections.api.openapi import Operation
from projections.api.problems import Routes
from projections.api.reads import READS
from projections.api.reads.read import AT_ONCE
from projections.api.service import Service
from projections.api.tally import Tally
from projections.app import PARTS
from projections.dashboard import routes as dashboard
from projections.site import health, reads
from projections.site import openapi as site_openapi
from projections.site.routing import by_id, by_name, by_source, of_first
from projections.site.site import Member, RecordSet
from projections.site.stream import stream

_KIND = re.compile(r"/api/(?:amd/)?(runs|vms|kernels)/")
_POSITION = "a position is of one record"


def build_site(services: dict[str, Service]) -> AccessMiddleware:
    """The application to serve these records, by name; the first has the tokens, and its settings are the site's. Close
    each `service.closing` after the server ended.
    """
    site = RecordSet(tuple(Member(name=name, service=one, app=_router(one)) for name, one in services.items()))
    tally = Tally()
    operations = [one for part in PARTS for one in part.OPERATIONS]
    endpoints = [Route(one.path, _endpoint(site, tally, one), methods=[one.method]) for one in operations]
    own = Route("/openapi.json", site_openapi.endpoint_of(PARTS, site.names), methods=["GET"])
    routes: list[BaseRoute] = [*endpoints, own, *dashboard.routes(site.first.service, records=site.names)]
    missing = partial(dashboard.missing, records=site.names)
    router = Routes(routes, redirect_slashes=False, default=missing)
    return AccessMiddleware(site.first.service, router, lambda _: None, tally)


def _router(service: Service) -> ASGIApp:
    """Every route for one record alone."""
    return Routes([route for part in PARTS for route in part.routes(service)], redirect_slashes=False)


def _endpoint(site: RecordSet, tally: Tally, one: Operation) -> Any:
    """What answers an operation over all records."""
    found = _of_all(site, tally, one.route)
    if found is None and "{id}" in one.path and (kind := _KIND.match(one.path)) is not None:
        found = by_id(site, kind[1])
    if found is None and "{position}" in one.path:
        found = by_name(site, _POSITION)
    return of_first(site) if found is None else found


def _of_all(site: RecordSet, tally: Tally, route: str) -> Any:
    """The endpoint of what has a meaning of its own over all records; None: one record answers."""
    merged = {f"GET {read.path}": read for read in READS if read.path in reads.MERGED}
    match route:
        case _ if route in merged:
            return reads.endpoint_of(site, merged[route], CapacityLimiter(AT_ONCE))
        case "GET /api/stream":
            return partial(stream, site)
        case "GET /metrics":
            return health.metrics(site, tally)
        case "GET /readyz":
            return health.readyz(site)
        case "POST /api/runs":
            return by_source(site, lambda service: service.outside)
        case "POST /api/amd/submit" | "GET /api/amd/metrics":
            return by_source(site, lambda service: service.kernels)
        case _:
            return None
