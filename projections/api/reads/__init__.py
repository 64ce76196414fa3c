"""Reads over HTTP: what is there, now and at any earlier moment."""

from typing import Any

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from projections.api.openapi import components
from projections.api.reads import logs, money, record, runs
from projections.api.reads.read import AT_ONCE
from projections.api.service import Service

READS = (*runs.READS, *money.READS, *record.READS)
OPENAPI: dict[str, Any] = {
    "paths": {read.path: {"get": read.operation()} for read in READS} | logs.PATHS,
    "components": components(*(read.shape for read in READS)),
}


def routes(service: Service) -> list[BaseRoute]:
    """One route a read."""
    at_once = CapacityLimiter(AT_ONCE)
    return [*(read.route(service, at_once) for read in READS), logs.route(service)]
