"""`/metrics` and `/readyz` of a site: those of every record, by name."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from anyio import to_thread
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from engine.wire import wire
from projections.api.bodies import JSON
from projections.api.operations import ServiceCollector, readiness
from projections.api.parameters import asked_of
from projections.api.tally import Tally
from projections.site.site import RECORD, UNAVAILABLE, RecordSet

_FRESH: Final = {"Cache-Control": "no-store"}
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_HTTP: Final = "steno_http_"  # metrics of the service, not of a record
_BUILD: Final = "steno_build"


class _SiteCollector(Collector):
    """The metrics of all records, each sample with the label `record`; those of requests are the site's."""

    def __init__(self, site: RecordSet, tally: Tally) -> None:
        self._site = site
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """The current metrics; blocks: call it in a worker thread."""
        families: dict[str, Metric] = {}
        for member in self._site.members:
            service = member.service
            for metric in (*ServiceCollector(service).collect(), *service.feed.tally.registry.collect()):
                if metric.name.startswith(_HTTP):
                    continue
                same = metric.name.startswith(_BUILD)
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                if same and family.samples:
                    continue
                named = {} if same else {RECORD: member.name}
                family.samples += [one._replace(labels={**one.labels, **named}) for one in metric.samples]
        yield from families.values()
        yield from (metric for metric in self._tally.registry.collect() if metric.name.startswith(_HTTP))


def metrics(site: RecordSet, tally: Tally) -> Any:
    """The endpoint of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)

    class Described(_SiteCollector):
        def describe(self) -> Iterator[Metric]:
            """Nothing: a registration must not wait for a record."""
            return iter(())

    registry.register(Described(site, tally))

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        text = await to_thread.run_sync(generate_latest, registry)
        return Response(text, headers={**_FRESH, "Content-Type": _TEXT})

    return endpoint


def readyz(site: RecordSet) -> Any:
    """The endpoint of `/readyz`: ready if every record is."""

    def found() -> tuple[list[str], dict[str, Any]]:
        each = {one.name: readiness(one.service) for one in site.members}
        reasons = [f"record {name}: {reason}" for name, one in each.items() for reason in one.reasons]
        return reasons, {name: wire(one) for name, one in each.items()}

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        reasons, records = await to_thread.run_sync(found)
        answer = {"status": "not_ready" if reasons else "ready", "reasons": reasons, "records": records}
        status = UNAVAILABLE if reasons else 200
        return Response(msgspec.json.encode(answer), status_code=status, media_type=JSON, headers=_FRESH)

    return endpoint
