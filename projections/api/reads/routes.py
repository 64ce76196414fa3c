"""The routes of all reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from projections.api.reads import logs, money, record, runs
from projections.api.reads.read import Read, described, limiter

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from projections.api.service import Service


READS: tuple[Read, ...] = (*runs.READS, *money.READS, *record.READS)


def routes(service: Service) -> list[BaseRoute]:
    """One route a read."""
    at_once = limiter()
    return [*(read.route(service, at_once) for read in READS), logs.route(service)]


def _described() -> dict[str, Any]:
    found = described(READS)
    found["paths"] |= logs.OPENAPI["paths"]
    return found


OPENAPI: dict[str, Any] = _described()
