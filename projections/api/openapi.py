"""GET /openapi.json: everything this service answers, merged from what its parts say of their routes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from projections.api.answers import FRESH, JSON, etag_of, matches
from projections.api.parameters import asked_of
from projections.api.problems import MEDIA_TYPE, ProblemObject

PATH = "/openapi.json"
OPEN = frozenset({"/healthz", "/readyz", "/api/session"})
"""Paths that need no token."""

_ABOUT = (
    "The HTTP service of Steno. Reads take `at` (a position or a time) and show everything as it was then; an answer "
    "names the position it stands at in `Steno-Position`. Commands answer 202 with the position of their request: "
    "give it as `min_position` to a read that has to see it. Whatever goes wrong is a problem (RFC 9457). Requests "
    "from this machine need no token unless the service says so."
)
_TAGS = {
    "runs": "Runs: what they do, why, and what they cost",
    "machines": "Machines and their bills",
    "money": "Costs and the budget",
    "record": "The record itself: events, polls, incidents",
    "streams": "What happens now, as server-sent events",
    "kernels": "Kernels: submitted, checked and benchmarked",
    "access": "Who asks",
    "operations": "Health and metrics",
}
_READ_PROBLEMS = {
    400: "A parameter is unknown, repeated, or no value of its kind.",
    401: "No token that is known, or one that has expired.",
    403: "The token's role does not allow this.",
    404: "There is no such thing.",
    409: "The record does not go that far, or the state of the thing does not allow this.",
    503: "Not now: the record is locked, or the read models are behind; Retry-After says when.",
}
_COMMAND_PROBLEMS = {
    400: "The body is not valid JSON, or a header or parameter is no value of its kind.",
    401: _READ_PROBLEMS[401],
    403: "The token's role does not allow this, or a policy refuses it, with the arithmetic.",
    404: "There is no such thing.",
    409: "The key came with something else before, or the state of the thing does not allow this.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    422: "The body is JSON and not what is wanted; `field` says where.",
    429: "Too many submissions; Retry-After says when.",
    503: _READ_PROBLEMS[503],
}


def route(parts: Sequence[Any]) -> BaseRoute:
    """The route that serves the document of an application made of these parts."""
    made: list[tuple[bytes, str]] = []

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        if not made:
            body = msgspec.json.encode(document(parts))
            made.append((body, etag_of(body)))
        body, tag = made[0]
        headers = {**FRESH, "ETag": tag}
        if matches(request.headers.get("if-none-match"), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=JSON, headers=headers)

    return Route(PATH, endpoint, methods=["GET"])


def document(parts: Iterable[Any]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for fragment in (*(part.OPENAPI for part in parts), _OWN):
        for path, methods in copy.deepcopy(fragment.get("paths", {})).items():
            paths.setdefault(path, {}).update(methods)
        schemas |= copy.deepcopy(fragment.get("components", {}).get("schemas", {}))
    for path, methods in paths.items():
        for method, operation in methods.items():
            _complete(path, method, operation)
    _, problem = msgspec.json.schema_components([ProblemObject], ref_template="#/components/schemas/{name}")
    schemas |= problem
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
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
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
    """What holds for every operation: its problems, and whether it needs a token."""
    reads = method == "get"
    operation.setdefault("operationId", _name(path, method))
    responses: dict[str, Any] = operation["responses"]
    known = dict(_READ_PROBLEMS if reads else _COMMAND_PROBLEMS)
    if path in OPEN:
        operation["security"] = []
        for status in (401, 403):
            known.pop(status)
    if "{" not in path and reads:
        known.pop(404)
    for status, text in known.items():
        responses.setdefault(str(status), _problem(text))
    responses.setdefault("default", _problem("Whatever else is wrong with a request, or with us."))


def _name(path: str, method: str) -> str:
    """`getRunsStream` of GET /api/runs/{id}/stream."""
    words = [part for part in path.removeprefix("/api/").split("/") if part and not part.startswith("{")]
    return method + "".join(word.capitalize() for word in words)


def _problem(text: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ProblemObject.__name__}"}
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}


_OWN: dict[str, Any] = {
    "paths": {
        PATH: {
            "get": {
                "operationId": "getOpenapi",
                "summary": "This document",
                "tags": ["operations"],
                "responses": {
                    "200": {
                        "description": "OpenAPI 3.1.",
                        "content": {JSON: {"schema": {"type": "object", "required": ["openapi", "paths"]}}},
                    }
                },
            }
        }
    }
}
