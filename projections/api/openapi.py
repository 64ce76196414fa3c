"""GET /openapi.json: the document of all routes, merged from the fragments that the parts make with these functions."""

import copy
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from projections.api.bodies import JSON, read_answer
from projections.api.parameters import asked_of
from projections.api.problems import MEDIA_TYPE, ProblemObject

PATH = "/openapi.json"
OPEN = frozenset({"/healthz", "/readyz", "/api/session"})
"""Paths that need no token."""

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


_REF = "#/components/schemas/{name}"


def components(*shapes: type) -> dict[str, Any]:
    """The schemas of these structures and of all they hold."""
    return {"schemas": msgspec.json.schema_components(shapes, ref_template=_REF)[1]}


def json_content(shape: type, *, optional: bool = False) -> dict[str, Any]:
    """A body of this structure; where it is optional, or null."""
    schema: dict[str, Any] = {"$ref": _REF.format(name=shape.__name__)}
    return {JSON: {"schema": {"anyOf": [schema, {"type": "null"}]} if optional else schema}}


def json_answer(description: str, shape: type) -> dict[str, Any]:
    """An answer of this structure."""
    return {"description": description, "content": json_content(shape)}


def operation_name(method: str, path: str) -> str:
    """`getRunTimeline` of GET /api/runs/{id}/timeline."""
    words = [part for part in path.removeprefix("/api/").split("/") if not part.startswith("{")]
    if "{" in path and len(words[0]) > 1:
        words[0] = words[0].removesuffix("s")
    return method + "".join(word.capitalize() for word in words)


def route(parts: Sequence[Any]) -> BaseRoute:
    """The route that serves the document of an application made of these parts."""

    @cache
    def body() -> bytes:
        return msgspec.json.encode(document(parts))

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        return read_answer(request, body())

    return Route(PATH, endpoint, methods=["GET"])


def document(parts: Iterable[Any]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for fragment in (*(part.OPENAPI for part in parts), _OWN):
        for path, methods in copy.deepcopy(fragment.get("paths", {})).items():
            paths.setdefault(path, {}).update(methods)
        schemas |= fragment.get("components", {}).get("schemas", {})
    for path, methods in paths.items():
        for method, operation in methods.items():
            _complete(path, method, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steno",
            "version": version("steno"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `steno token create`; a browser's session stands for one.",
                }
            },
        },
    }


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add what holds for every operation: its problems, and whether it needs a token."""
    reads = method == "get"
    operation.setdefault("operationId", operation_name(method, path))
    known = {str(status): text for status, text in (_READ_PROBLEMS if reads else _COMMAND_PROBLEMS).items()}
    if path in OPEN:
        operation["security"] = []
        del known["401"], known["403"]
    if "{" not in path and reads:
        del known["404"]
    schema = {"$ref": _REF.format(name=ProblemObject.__name__)}
    for status, text in (*known.items(), ("default", "Any other error.")):
        problem = {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
        operation["responses"].setdefault(status, problem)


_DOCUMENT = {"type": "object", "required": ["openapi", "paths"]}
_OWN: dict[str, Any] = {
    "paths": {
        PATH: {
            "get": {
                "operationId": "getOpenapi",
                "summary": "This document",
                "tags": ["operations"],
                "responses": {"200": {"description": "OpenAPI 3.1.", "content": {JSON: {"schema": _DOCUMENT}}}},
            }
        }
    },
    "components": components(ProblemObject),
}
