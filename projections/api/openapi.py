"""The operations of all parts of the API, and GET /openapi.json, their document."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from steno.events.installation import version
from steno.projections.api.bodies import CSV, JSON, read_answer
from steno.projections.api.parameters import asked_of, path_parameters
from steno.projections.api.problems import MEDIA_TYPE, ProblemObject

OPEN = frozenset({"/healthz", "/readyz", "/api/session"})  # paths that need no token

_ABOUT = (
    "The HTTP service of Steno. Reads take `at` (a position or a time) and show the state at that moment; the header "
    "`Steno-Position` names the position of an answer. Commands answer 202 with the position of their request: pass it "
    "as `min_position` to a read that must include it. Errors are problems (RFC 9457). Requests from this machine need "
    "no token unless `api.loopback` is `token`."
)
_TAGS = {
    "runs": "Runs, their verdicts and costs",
    "machines": "Machines and their bills",
    "money": "Costs and the budget",
    "levers": "Pause, drain and stop many runs at once; keep a machine",
    "record": "The record itself: events, polls, incidents",
    "streams": "Live changes as server-sent events",
    "kernels": "Kernels: submit, check and benchmark",
    "access": "The caller, login and logout",
    "operations": "Health and metrics",
}
_READ_PROBLEMS = {
    400: "A parameter is unknown, repeated or invalid.",
    401: "The token is missing, unknown or expired.",
    403: "The token's role does not allow this.",
    404: "Not found.",
    409: "The position is beyond the end of the record, or the state does not allow this.",
    503: "Unavailable: the record is locked, or the read models are behind; Retry-After says when to retry.",
}
_COMMAND_PROBLEMS = {
    400: "The body is not valid JSON, or a header or parameter is invalid.",
    401: _READ_PROBLEMS[401],
    403: "The token's role does not allow this, or a policy refuses it; the detail shows the calculation.",
    404: "Not found.",
    409: "The idempotency key was used with another body, or the current state does not allow this.",
    413: "The body is too large.",
    415: "The Content-Type is not JSON.",
    422: "The body does not match the schema; `field` names the part.",
    429: "Too many submissions; Retry-After says when to retry.",
    503: _READ_PROBLEMS[503],
}
EVENTS, TEXT = "text/event-stream", "text/plain"
_REF = "#/components/schemas/{name}"


class Reply(NamedTuple):
    """An answer in the OpenAPI document."""

    description: str
    shape: Any = None  # type of the body, or of a stream message's data; None: no body
    media: str = JSON
    headers: Mapping[str, Any] | None = None
    csv: bool = False  # it is also to be had as CSV


class Operation(NamedTuple):
    """A route; the document adds the parameters of its path and the problems that every route may answer."""

    route: str  # `GET /api/runs/{id}`
    summary: str
    tag: str
    answers: Mapping[int, Reply]  # by status
    name: str | None = None  # None: made of the route, as `getRunTimeline`
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Any = None  # the type of the request's body, which is required unless that may be None
    description: str | None = None

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]


def routed(operations: Iterable[Operation], *endpoints: Callable[..., Any]) -> list[BaseRoute]:
    return [
        Route(operation.path, endpoint, methods=[operation.method], name=operation.path)
        for operation, endpoint in zip(operations, endpoints, strict=True)
    ]


def routes(parts: Sequence[Any]) -> list[BaseRoute]:
    """The route that serves the OpenAPI document of these parts."""

    @cache
    def body() -> bytes:
        return msgspec.json.encode(document(parts))

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        return read_answer(request, body())

    return routed((_OWN,), endpoint)


def document(parts: Iterable[Any]) -> dict[str, Any]:
    operations = [*(operation for part in parts for operation in part.OPERATIONS), _OWN]
    answers = [answer for operation in operations for answer in operation.answers.values()]
    shapes = dict.fromkeys([ProblemObject, *(known.body for known in operations), *(reply.shape for reply in answers)])
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    schema_of = dict(zip(shapes, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for known in operations:
        paths.setdefault(known.path, {})[known.method.lower()] = _described(known, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steno",
            "version": version(),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `steno token create`; a browser's session stands for one.",
                }
            },
        },
    }


def _described(operation: Operation, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    reads = operation.method == "GET"
    problems = dict(_READ_PROBLEMS if reads else _COMMAND_PROBLEMS)
    if operation.path in OPEN:
        del problems[401], problems[403]
    if "{" not in operation.path and reads:
        del problems[404]
    known = {status: Reply(text, ProblemObject, MEDIA_TYPE) for status, text in problems.items()}
    answers: dict[Any, Reply] = {**known, **operation.answers}
    answers["default"] = Reply("Any other error.", ProblemObject, MEDIA_TYPE)
    described: dict[str, Any] = {
        "operationId": operation.name or _name(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*path_parameters(operation.path), *operation.parameters],
        "responses": {str(status): _answer(answer, schema_of) for status, answer in answers.items()},
    }
    if operation.description is not None:
        described["description"] = operation.description
    if operation.body is not None:
        schema = schema_of[operation.body]
        optional = {"type": "null"} in schema.get("anyOf", ())
        described["requestBody"] = {"required": not optional, "content": {JSON: {"schema": schema}}}
    return described | ({"security": []} if operation.path in OPEN else {})


def _answer(answer: Reply, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.description}
    if answer.shape is not None:
        schema = schema_of[answer.shape]
        streamed = {"type": "string", "x-data": schema}
        described["content"] = {answer.media: {"schema": streamed if answer.media == EVENTS else schema}}
    if answer.csv:
        described["content"][CSV] = {"schema": {"type": "string"}}
    return described if answer.headers is None else {**described, "headers": answer.headers}


def _name(operation: Operation) -> str:
    words = [part for part in operation.path.removeprefix("/api/").split("/") if not part.startswith("{")]
    if "{" in operation.path and len(words[0]) > 1:
        words[0] = words[0].removesuffix("s")
    return operation.method.lower() + "".join(word.capitalize() for word in words)


_SERVED = {200: Reply("OpenAPI 3.1.", dict[str, Any])}
_OWN = Operation("GET /openapi.json", "This document", "operations", _SERVED, name="getOpenapi")
