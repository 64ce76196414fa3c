"""The OTLP/HTTP collector that gets a trace of each run, and what is posted to it: spans of OpenTelemetry, in protobuf.

A run is one trace: its id is the run's own. The root span is the run from submission to end; its children are the
states it was in, each linked to the poll that caused it, and the root to the polls that the verdict rests on. All ids
follow from the run's id, so that what is sent twice is the same trace. A poll is not a span: a link names its
position, for `steno poll`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from uuid import UUID

from steno.engine.errors import NotConfigured
from steno.engine.money.costs import Costs
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.wire import money
from steno.events.installation import installing

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from steno.engine.state.world import World

HEADERS: Final = {"Content-Type": "application/x-protobuf", "User-Agent": "steno"}
_PATH: Final = "/v1/traces"
_NANO: Final = 1_000  # nanoseconds in a microsecond
_Value = str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where traces go. The address may hold a password: it is never recorded or shown."""

    url: str = field(repr=False)


def collector_at(endpoint: str | None) -> Collector | None:
    """The collector at an OTLP endpoint, as OpenTelemetry's own exporters read it: without the path of a signal. None:
    no endpoint. NotConfigured: the library is missing.
    """
    if not endpoint:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
        raise NotConfigured(f"otlp.endpoint needs opentelemetry-proto: `{installing('otlp')}`")
    base = endpoint.rstrip("/")
    return Collector(url=base if base.endswith(_PATH) else base + _PATH)


def traces_of(run_ids: Iterable[str], state: "World", record_id: str) -> bytes:
    """An ExportTraceServiceRequest with the traces of these runs as the world knows them; of none that it does not."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

    costs = Costs(state)
    runs = [run for run_id in run_ids if (run := state.runs.get(run_id)) is not None]
    spans = [span for run in runs for span in _spans(run, costs.of_run(run.run_id))]
    resource = Resource(attributes=_attributes({"service.name": "steno", "steno.record": record_id}))
    scope = ScopeSpans(scope=InstrumentationScope(name="steno"), spans=spans)
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])
    return bytes(request.SerializeToString())


def _spans(run: Run, cost: int | None) -> "list[Span]":
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    trace, root = UUID(run.run_id).bytes, _span_id(run, "run")
    steps = run.transitions
    begun = min(moment for moment in (run.waiting_since, run.first_at) if moment is not None)
    ended = max(begun, run.finished_at or (steps[-1].at if steps else begun))
    edges = [min(max(moment, begun), ended) for moment in (begun, *(step.at for step in steps))]
    states = [steps[0].before, *(step.after for step in steps)] if steps else []
    causes = [None, *(step.position for step in steps)]
    phases = [
        Span(
            trace_id=trace,
            span_id=_span_id(run, f"{number}/{state.value}"),
            parent_span_id=root,
            name=state.value,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start * _NANO,
            end_time_unix_nano=end * _NANO,
            links=[] if cause is None else [_link(run, cause)],
        )
        for number, (state, cause, (start, end)) in enumerate(zip(states, causes, pairwise(edges), strict=False))
    ]
    code = {State.SUCCEEDED: Status.STATUS_CODE_OK, State.FAILED: Status.STATUS_CODE_ERROR}
    reason = None if run.reason is None else run.reason.value
    whole = Span(
        trace_id=trace,
        span_id=root,
        name=run.name or run.run_id,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=begun * _NANO,
        end_time_unix_nano=ended * _NANO,
        attributes=_attributes(_said(run, cost, reason)),
        links=[_link(run, position) for position in dict.fromkeys(run.evidence)],
        status=Status(
            code=code.get(run.state, Status.STATUS_CODE_UNSET),
            message=reason or "" if run.state is State.FAILED else "",
        ),
    )
    return [whole, *phases]


def _said(run: Run, cost: int | None, reason: str | None) -> dict[str, _Value]:
    return {
        "steno.run_id": run.run_id,
        "steno.provider": run.provider,
        "steno.provider_id": run.provider_id,
        "steno.project": run.project,
        "steno.state": run.state.value,
        "steno.reason": reason,
        "steno.exit_status": run.exit_status,
        "steno.rule": run.rule,
        "steno.vm_id": run.vm_id,
        "steno.start": run.start,
        "steno.attempts": run.attempts,
        "steno.cost_usd": money(cost),
    }


def _link(run: Run, position: int) -> "Span.Link":
    """To a poll, by its position in the record."""
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    return Span.Link(
        trace_id=UUID(run.run_id).bytes,
        span_id=_span_id(run, f"poll/{position}"),
        attributes=_attributes({"steno.position": position}),
    )


def _span_id(run: Run, what: str) -> bytes:
    return sha256(f"{run.run_id}/{what}".encode()).digest()[:8]


def _attributes(values: dict[str, _Value]) -> "list[KeyValue]":
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    return [
        KeyValue(
            key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=str(value))
        )
        for key, value in values.items()
        if value is not None
    ]
