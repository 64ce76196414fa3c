"""The routes under /api/amd, and what the OpenAPI document says of them."""

from typing import Any, Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.decide.budget import Metrics, account, metrics
from engine.kernel.definition import DTYPES, Definition, KernelProblem, problems
from engine.kernel.submission import ENDPOINTS, GPUS, Payload
from projections.api.amd.story import StatusObject
from projections.api.amd.stream import Resume, Submit, isolated
from projections.api.bodies import JSON, read_answer
from projections.api.parameters import KEY_HEADER, MOST_POSITION, asked_of, path_parameters
from projections.api.reads.money import policy_at
from projections.api.service import Service, Writer
from projections.api.streams import LAST_EVENT_ID


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked for."""

    problems: tuple[KernelProblem, ...]
    dtypes: tuple[str, ...]
    endpoints: tuple[str, ...]
    gpus: tuple[str, ...]
    isolated: bool
    """False: a kernel runs as the service's user, with its files and its network. Submit only your own code."""


def routes(service: Service) -> list[BaseRoute]:
    writer = Writer(service)
    offered = Problems(problems=problems(), dtypes=DTYPES, endpoints=ENDPOINTS, gpus=GPUS, isolated=isolated(service))
    published = {PROBLEMS: msgspec.json.encode(offered), SCHEMA: msgspec.json.encode(schema())}

    async def fixed(request: Request) -> Response:
        asked_of(request, ())
        return read_answer(request, published[request.url.path], service.feed.position)

    async def figures(request: Request) -> Response:
        asked_of(request, ())
        found, position = await to_thread.run_sync(_figures, service)
        return read_answer(request, msgspec.json.encode(found), position)

    reads: dict[str, Any] = {STREAM: Resume(service), METRICS: figures, SCHEMA: fixed, PROBLEMS: fixed}
    return [
        Route(SUBMIT, Submit(service, writer), methods=["POST"]),
        *(Route(path, read, methods=["GET"]) for path, read in reads.items()),
    ]


def schema() -> dict[str, Any]:
    """The JSON Schema of what is posted, `problem_def` included."""
    found: dict[str, Any] = msgspec.json.schema(Payload)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _figures(service: Service) -> tuple[Metrics, int]:
    with service.pool.now() as look:
        state = look.view.whole()
        return metrics(state, account(state, policy_at(service, state, past=False), look.now)), look.position


SUBMIT: Final = "/api/amd/submit"
STREAM: Final = "/api/amd/runs/{id}/stream"
METRICS: Final = "/api/amd/metrics"
SCHEMA: Final = "/api/amd/schema"
PROBLEMS: Final = "/api/amd/problems"

_REFS: Final = "#/components/schemas/Kernel{name}"


def _components() -> dict[str, Any]:
    shapes = (Payload, Definition, StatusObject, Metrics, Problems)
    _, found = msgspec.json.schema_components(shapes, ref_template=_REFS)
    named = msgspec.json.encode({f"Kernel{name}": one for name, one in found.items()})
    # `KernelProblem` has the prefix already.
    return msgspec.json.decode(named.replace(b"KernelKernel", b"Kernel"), type=dict[str, Any])


def _json(name: str, said: str) -> dict[str, Any]:
    return {"description": said, "content": {JSON: {"schema": {"$ref": _REFS.format(name=name)}}}}


def _stream(said: str) -> dict[str, Any]:
    told = {"type": "string", "x-data": {"$ref": _REFS.format(name="StatusObject")}}
    return {"description": said, "content": {"text/event-stream": {"schema": told}}}


def _operation(name: str, summary: str, answer: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "tags": ["kernels"], "responses": {"200": answer}, **more}


_SUBMITTING: Final = _operation(
    "submitKernel",
    "Check and benchmark a kernel; the answer streams its statuses, and the first one has the run_id",
    _stream("Server-sent events until the final status; closing the stream does not stop the run."),
    description="With the provider `local` a kernel runs as the service's user, not isolated: it can read the "
    "record and use the network. There only a caller on the service's machine may submit, without a token (403 for "
    "others, unless `kernel.unsafe_local` is true), and the answer has `Steno-Isolation: none`.",
    parameters=[KEY_HEADER],
    requestBody={"required": True, "content": {JSON: {"schema": {"$ref": _REFS.format(name="Payload")}}}},
)
_RESUMING: Final = _operation(
    "followKernel",
    "The statuses of a kernel, from its submission or after a given position",
    _stream("Server-sent events until the final status."),
    parameters=[
        *path_parameters(STREAM),
        {
            "name": LAST_EVENT_ID,
            "in": "header",
            "description": "The position of the last status received; the stream resumes after it.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MOST_POSITION},
        },
    ],
)
_FIGURES: Final = _operation("kernelMetrics", "Figures for a front end", _json("Metrics", "Seven figures."))
_SCHEMA: Final = _operation(
    "kernelSchema",
    "The JSON Schema of the submit body, `problem_def` included",
    {"description": "A schema.", "content": {JSON: {"schema": {"type": "object"}}}},
)
_PROBLEMS: Final = _operation(
    "kernelProblems", "The shipped problems, data types, endpoints and GPUs", _json("Problems", "The problems.")
)
_READS: Final = {STREAM: _RESUMING, METRICS: _FIGURES, SCHEMA: _SCHEMA, PROBLEMS: _PROBLEMS}
OPENAPI: Final[dict[str, Any]] = {
    "paths": {SUBMIT: {"post": _SUBMITTING}, **{path: {"get": one} for path, one in _READS.items()}},
    "components": {"schemas": _components()},
}
