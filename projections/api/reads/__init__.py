"""Reads over HTTP: the state now and at any earlier moment."""

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from steno.projections.api.reads import cases, kernels, logs, money, output, record, runs, whatif
from steno.projections.api.reads.read import AT_ONCE
from steno.projections.api.service import Service

READS = (*runs.READS, *output.READS, *money.READS, *record.READS, *cases.READS, *kernels.READS, *whatif.READS)
OPERATIONS = (*(read.operation for read in READS), *logs.OPERATIONS)


def routes(service: Service) -> list[BaseRoute]:
    at_once = CapacityLimiter(AT_ONCE)
    return [*(read.route(service, at_once) for read in READS), *logs.routes(service)]
