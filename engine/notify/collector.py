"""The OTLP/HTTP collector that gets a trace of each run and the metrics of each source, and what is posted to it: spans
and gauges of OpenTelemetry, in protobuf.

A run is one trace: its id is the run's own. The root span is the run from submission to end; its children are the
states it was in, as its timeline has them, each linked to the poll that caused it, and the root to the polls that the
verdict rests on. All ids follow from the run's id, so that what is sent twice is the same trace. A poll is not a span:
a link names its position, for `steno poll`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from uuid import UUID

from steno.engine.errors import NotConfigured
from steno.engine.money.bill import life_cost
from steno.engine.money.costs import Costs
from steno.engine.money.prices import Book, rung_at
from steno.engine.money.report import gpu_of
from steno.engine.objects import run_object
from steno.engine.rules.sets import CURRENT
from steno.engine.run_spans import state_spans
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, unpack
from steno.engine.state.states import State
from steno.engine.state.world import source_of, vms_of
from steno.engine.wire import DOLLAR, money
from steno.events.clock import SECOND
from steno.events.errors import UnreadableInput
from steno.events.installation import installing
from steno.events.types import SamplesRecorded

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from steno.engine.state.world import World
    from steno.events.store.record import Record

HEADERS: Final = {"Content-Type": "application/x-protobuf", "User-Agent": "steno"}
_PATH: Final = "/v1/traces"
EVERY: Final = 60 * SECOND  # metrics
MOST_SAMPLED: Final = 100  # runs whose GPUs are reported, with two series each
_FRESH: Final = 600 * SECOND  # an older sample says nothing about now
_NANO: Final = 1_000  # nanoseconds in a microsecond
_KNOWN: Final = (
    "run_id", "provider", "provider_id", "project", "state", "reason", "exit_status", "rule", "vm_id", "start",
    "attempts",
)  # fmt: skip
_Value = str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where traces go. The address may hold a password: it is never recorded or shown."""

    url: str = field(repr=False)

    @property
    def metrics(self) -> str:
        """Where metrics go."""
        return self.url.removesuffix(_PATH) + "/v1/metrics"


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

    costs, request = Costs(state), ExportTraceServiceRequest()
    runs = [run for run_id in run_ids if (run := state.runs.get(run_id)) is not None]
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(_attributes({"service.name": "steno", "steno.record": record_id}))
    spans = [span for run in runs for span in _spans(run, costs.of_run(run.run_id))]
    resource.scope_spans.add(spans=spans).scope.name = "steno"
    return bytes(request.SerializeToString())


def is_counted(run: Run) -> bool:
    """False for a run of an archive, for the machine of another run that lists show, and for a listener of kernels."""
    return run.archive is None and run.carries is None and gpu_kept(run) is None


def newest_samples(record: "Record", runs: Iterable[Run], now: int) -> Iterator[tuple[Run, list[Sample]]]:
    """The newest runs that run, with the newest sample of each GPU whose use is known; old samples are left out."""
    for run in [run for run in runs if run.state is State.RUNNING][-MOST_SAMPLED:]:
        for stored in record.read(stream=run.subject, types=("SamplesRecorded",), backwards=True, limit=1):
            with suppress(UnreadableInput):
                samples = unpack(stored.data.block) if isinstance(stored.data, SamplesRecorded) else []
                fresh = [sample for sample in samples if sample.device and now - sample.at <= _FRESH]
                if gpus := {sample.device: sample for sample in fresh if sample.use is not None}:
                    yield run, list(gpus.values())


def metrics_of(source: str, state: "World", record: "Record", now: int) -> bytes:
    """An ExportMetricsServiceRequest with gauges of a source's runs, machines, money, and GPUs of running runs."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    book, until, machines = Book.of(state), state.last_at or 0, vms_of(state, source)
    runs = state.runs.sums(
        "counted by source", lambda run: (f"{source_of(run)} {run.state.value}", 1) if is_counted(run) else None
    )
    paid = state.vms.sums(
        f"by source, {book.digest()}", lambda vm: (f"{vm.archive} {vm.source}", life_cost(vm, until=until, book=book))
    )
    hourly = sum(rung_at(book.tariff(vm), now).best for vm in machines if vm.billed)
    kinds = Counter((vm.state.value, gpu_of(vm)) for vm in machines)
    open_runs = [run for run in state.runs.open() if run.archive is None and source_of(run) == source]
    gpus = [({"steno.run_id": run.run_id}, there) for run, there in newest_samples(record, open_runs, now)]
    figures: dict[tuple[str, str], Sequence[tuple[Mapping[str, _Value], float]]] = {
        ("steno.runs", "{run}"): [({"steno.state": each.value}, runs[f"{source} {each.value}"]) for each in State],
        ("steno.machines", "{machine}"): [({"steno.state": at, "steno.gpu": gpu}, n) for (at, gpu), n in kinds.items()],
        ("steno.cost.hourly", "USD/h"): [({}, hourly / DOLLAR)],
        ("steno.spend", "USD"): [({}, paid[f"None {source}"] / DOLLAR)],
        ("steno.gpu.use", "%"): [(run, sum(gpu.use or 0 for gpu in there) / len(there)) for run, there in gpus],
        ("steno.gpu.power", "W"): [
            (run, sum(gpu.power or 0 for gpu in each))
            for run, each in gpus
            if any(gpu.power is not None for gpu in each)
        ],
    }
    request = ExportMetricsServiceRequest()
    resource, about = request.resource_metrics.add(), {"service.name": "steno", "steno.record": record.id}
    resource.resource.attributes.extend(_attributes({**about, "steno.source": source}))
    metrics = resource.scope_metrics.add().metrics
    for (name, unit), points in figures.items():
        gauge = metrics.add(name=name, unit=unit).gauge
        for labels, value in points:
            gauge.data_points.add(time_unix_nano=now * _NANO, as_double=value, attributes=_attributes(labels))
    return bytes(request.SerializeToString())


def _spans(run: Run, cost: int | None) -> "list[Span]":
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    trace, root = UUID(run.run_id).bytes, _span_id(run, "run")
    steps = run.transitions
    begun = min(moment for moment in (run.waiting_since, run.first_at) if moment is not None)
    ended = max(begun, run.finished_at or (steps[-1].at if steps else begun))
    waited = None if run.requested_at is None or not steps else (begun, max(begun, steps[0].at))
    phases = [
        Span(
            trace_id=trace,
            span_id=_span_id(run, f"{number}/{state}"),
            parent_span_id=root,
            name=state,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=min(max(start, begun), ended) * _NANO,
            end_time_unix_nano=min(max(end or ended, begun), ended) * _NANO,
            links=[] if cause is None else [_link(run, cause)],
        )
        for number, (state, _, start, end, cause) in enumerate(
            state_spans(run_object(run, CURRENT), run.later_attempts, waited)[0]
        )
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
    known = {f"steno.{name}": getattr(run, name) for name in _KNOWN}
    return {**known, "steno.state": run.state.value, "steno.reason": reason, "steno.cost_usd": money(cost)}


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


def _attributes(values: Mapping[str, _Value]) -> "list[KeyValue]":
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    return [
        KeyValue(
            key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=str(value))
        )
        for key, value in values.items()
        if value is not None
    ]
