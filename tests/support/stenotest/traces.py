"""The traces that an OTLP/HTTP collector on this machine got, decoded with OpenTelemetry's own messages."""

from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from stenotest.webhook_server import WebhookServer


def requests_of(hook: WebhookServer) -> list[ExportTraceServiceRequest]:
    """Every request that was one; each came to the path and in the form that the protocol says."""
    spans = []
    for path, (headers, body) in zip(hook.paths, hook.taken, strict=True):
        if headers["Content-Type"] == "application/x-protobuf":
            assert path.endswith("/v1/traces")
            spans.append(ExportTraceServiceRequest.FromString(body))
    return spans


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def values(attributes: "list[KeyValue]") -> dict[str, object]:
    """Attributes as a dict."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "") for attribute in attributes
    }
