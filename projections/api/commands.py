"""The routes of commands: each appends a request, which the holder of the provider's lease carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.routing import Route

from projections.api import stopping, submission
from projections.api.answers import made_answer
from projections.api.bodies import json_body
from projections.api.parameters import KEY_HEADER, asked_of, idempotency_key
from projections.api.reads.read import check_path, path_parameters
from projections.api.writing import Writer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from engine.fold.run import Run
    from engine.fold.vm import Vm
    from projections.api.service import Service

_REF: Final = "#/components/schemas/{name}"


_NAME: Final = "Overrides the configuration's name; without either, a name is generated."
_PROJECT: Final = "Default: the project of the settings."


class SubmitBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run to submit."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{1,40}$", description=_NAME)] | None = None
    project: Annotated[str, Meta(min_length=1, max_length=100, description=_PROJECT)] | None = None
    configuration: Annotated[
        dict[str, Any],
        Meta(
            description="A task, as in a task file; its provider validates it. `files`, `repos` and "
            "variables without a value are refused: they would come from the server's machine.",
            extra_json_schema={
                "required": ["type"],
                "properties": {"type": {"const": "task"}},
                "examples": [
                    {
                        "type": "task",
                        "image": "rocm/dev-ubuntu-24.04",
                        "commands": ["rocm-smi"],
                        "env": {"SEED": "1"},
                        "resources": {"gpu": "MI300X:1"},
                        "max_duration": "1h",
                    }
                ],
            },
        ),
    ]


class StopRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to stop a run."""

    abort: Annotated[bool, Meta(description="Stop at once; the task cannot clean up.")] = False


class StopVmBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to stop a machine."""

    when_idle: Annotated[bool, Meta(description="Wait until no run is on it, instead of stopping the run.")] = False


class RunAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose request is in the record."""

    run_id: str
    name: str
    position: Annotated[int, Meta(ge=1, description="Of the request; a read with this `min_position` shows it.")]


class RunStop(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a stop."""

    run_id: str
    position: Annotated[int, Meta(ge=0)]
    state: Annotated[str, Meta(description="The state when the stop request arrived.")]
    asked: Annotated[bool, Meta(description="False: it had already ended, and nothing was requested.")]


class VmStop(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the stop of a machine."""

    vm_id: str
    position: Annotated[int, Meta(ge=0)]
    state: Annotated[str, Meta(description="The state when the stop request arrived.")]
    asked: Annotated[bool, Meta(description="False: it had already ended, and nothing was requested.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One POST route, as the OpenAPI document describes it."""

    path: str
    operation: str
    summary: str
    tag: str
    body: type
    answer: type
    needs_body: bool = False
    done: str | None = None
    """What 200 means instead of 202; None: it does not occur."""
    keyed: bool = False
    """It takes an `Idempotency-Key`."""

    def described(self) -> dict[str, Any]:
        """The operation."""
        content = {"application/json": {"schema": {"$ref": _REF.format(name=self.answer.__name__)}}}
        body: dict[str, Any] = {"$ref": _REF.format(name=self.body.__name__)}
        if not self.needs_body:
            body = {"anyOf": [body, {"type": "null"}]}
        responses: dict[str, Any] = {"202": {"description": "The request is in the record.", "content": content}}
        if self.done is not None:
            responses["200"] = {"description": self.done, "content": content}
        return {
            "operationId": self.operation,
            "summary": self.summary,
            "tags": [self.tag],
            "parameters": [*path_parameters(self.path), *([KEY_HEADER] if self.keyed else [])],
            "requestBody": {"required": self.needs_body, "content": {"application/json": {"schema": body}}},
            "responses": responses,
        }


SUBMIT: Final = Command(
    path="/api/runs",
    operation="submitRun",
    summary="Submit a run",
    tag="runs",
    body=SubmitBody,
    answer=RunAccepted,
    needs_body=True,
    keyed=True,
)
STOP_RUN: Final = Command(
    path="/api/runs/{id}/stop",
    operation="stopRun",
    summary="Stop a run",
    tag="runs",
    body=StopRunBody,
    answer=RunStop,
    done="It had already ended; nothing was requested.",
)
STOP_VM: Final = Command(
    path="/api/vms/{id}/stop",
    operation="stopVm",
    summary="Stop a machine",
    tag="machines",
    body=StopVmBody,
    answer=VmStop,
    done="It had already ended; nothing was requested.",
)


def _described(*commands: Command) -> dict[str, Any]:
    shapes = [shape for command in commands for shape in (command.body, command.answer)]
    _, schemas = msgspec.json.schema_components(shapes, ref_template=_REF)
    return {
        "paths": {command.path: {"post": command.described()} for command in commands},
        "components": {"schemas": schemas},
    }


OPENAPI: Final[dict[str, Any]] = _described(SUBMIT, STOP_RUN, STOP_VM)


def routes(service: Service) -> list[BaseRoute]:
    """The routes of all commands."""
    writer = Writer(service.store, clock=service.clock)
    service.closing.callback(writer.close)

    async def submit(request: Request) -> Response:
        body = await json_body(request, SubmitBody)
        wanted = submission.HttpSubmission(
            name=body.name,
            project=body.project,
            configuration=body.configuration,
            submitter=who(request),
            key=idempotency_key(request),
        )
        made = await submission.submit(service, writer, wanted)
        answer = {"run_id": made.run_id, "name": made.name, "position": made.position}
        return made_answer(answer, made.position, location=f"/api/runs/{made.run_id}")

    async def stop_run(request: Request) -> Response:
        body = await json_body(request, StopRunBody, StopRunBody())
        word = request.path_params["id"]
        stop = await stopping.stop_run(service, writer, word, abort=body.abort, submitter=who(request))
        return _stopped({"run_id": stop.thing.run_id}, stop)

    async def stop_vm(request: Request) -> Response:
        body = await json_body(request, StopVmBody, StopVmBody())
        word = request.path_params["id"]
        stop = await stopping.stop_vm(service, writer, word, when_idle=body.when_idle, submitter=who(request))
        return _stopped({"vm_id": stop.thing.vm_id}, stop)

    return [_route(SUBMIT, submit), _route(STOP_RUN, stop_run), _route(STOP_VM, stop_vm)]


def _route(command: Command, work: Callable[[Request], Awaitable[Response]]) -> Route:
    async def endpoint(request: Request) -> Response:
        check_path(asked_of(request, ()))
        return await work(request)

    return Route(command.path, endpoint, methods=["POST"])


def _stopped(name: dict[str, str], stop: stopping.Stop[Run] | stopping.Stop[Vm]) -> Response:
    answer = name | {"position": stop.position, "state": stop.thing.state.value, "asked": stop.requested}
    return made_answer(answer, stop.position, status=202 if stop.requested else 200)


def who(request: Request) -> str:
    """The name of the authenticated caller."""
    name: str = request.scope["steno.caller"].name
    return name
