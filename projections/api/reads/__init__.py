"""Reads over HTTP: the state now and at any earlier moment."""

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from projections.api.reads import audit, charts, kernels, logs, money, record, requests, runs
from projections.api.reads.read import AT_ONCE
from projections.api.service import Service

READS = (*runs.READS, *requests.READS, *money.READS, *charts.READS, *record.READS, *kernels.READS, *audit.READS)
OPERATIONS = (*(read.operation for read in READS), logs.OPERATION)


def routes(service: Service) -> list[BaseRoute]:
    at_once = CapacityLimiter(AT_ONCE)
    return [*(read.route(service, at_once) for read in READS), *logs.routes(service)]
