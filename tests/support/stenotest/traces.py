"""The traces and metrics that an OTLP/HTTP collector on this machine got, decoded with OpenTelemetry's own messages."""

from collections.abc import Iterator

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from stenotest.webhook_server import WebhookServer


def requests_of(hook: WebhookServer) -> list[ExportTraceServiceRequest]:
    """Every request with traces; each came to the path and in the form that the protocol says."""
    spans = []
    for path, (headers, body) in zip(hook.paths, hook.taken, strict=True):
        if headers["Content-Type"] == "application/x-protobuf" and not path.endswith("/v1/metrics"):
            assert path.endswith("/v1/traces")
            spans.append(ExportTraceServiceRequest.FromString(body))
    return spans


Gauges = dict[str, dict[tuple[object, ...], float]]
"""Name → the values of its attributes, in their order → number."""


def gauges_of(hook: WebhookServer) -> list[tuple[dict[str, object], Gauges]]:
    """(what it is about, gauges) of every request with metrics."""
    requests = []
    for path, (headers, body) in zip(list(hook.paths), list(hook.taken), strict=False):
        if path.endswith("/v1/metrics"):
            assert headers["Content-Type"] == "application/x-protobuf"
            (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
            (scope,) = resource.scope_metrics
            gauges: Gauges = {}
            for metric in scope.metrics:
                assert metric.WhichOneof("data") == "gauge"
                assert metric.unit
                points = [
                    (tuple(values(point.attributes).values()), point.as_double) for point in metric.gauge.data_points
                ]
                assert len(dict(points)) == len(points)
                gauges[metric.name] = dict(points)
            requests.append((values(resource.resource.attributes), gauges))
    return requests


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def values(attributes: "list[KeyValue]") -> dict[str, object]:
    """Attributes as a dict."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "") for attribute in attributes
    }
