"""The routes of commands: each appends a request, which the holder of the provider's lease carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from projections.api import stopping, submission
from projections.api.answers import made_answer
from projections.api.bodies import JsonRoute
from projections.api.problems import Problem
from projections.api.reads.read import LONGEST, NAMED
from projections.api.writing import Writer

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from engine.fold.run import Run
    from engine.fold.vm import Vm
    from projections.api.service import Service

KEY = "Idempotency-Key"
_LONGEST_KEY = 255
_NAME = "^[a-z][a-z0-9-]{1,40}$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SubmitBody(_Body):
    """A run to submit."""

    name: str | None = Field(
        default=None,
        pattern=_NAME,
        description="Overrides the configuration's name; without either, a name is generated.",
    )
    project: str | None = Field(
        default=None, min_length=1, max_length=100, description="Default: the project of the settings."
    )
    configuration: dict[str, Any] = Field(
        description="A dstack task, as in a task file; dstack's own models validate it. `files`, `repos` and "
        "variables without a value are refused: they would come from the server's machine.",
        json_schema_extra={
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
    )


class StopRunBody(_Body):
    """How to stop a run."""

    abort: bool = Field(default=False, description="Stop at once; the task cannot clean up.")


class StopVmBody(_Body):
    """How to stop a machine."""

    when_idle: bool = Field(default=False, description="Wait until no run is on it, instead of stopping the run.")


class RunAccepted(BaseModel):
    """A run whose request is in the record."""

    run_id: str
    name: str
    position: int = Field(ge=1, description="Of the request; a read with this `min_position` shows it.")


class RunStop(BaseModel):
    """The result of a stop."""

    run_id: str
    position: int = Field(ge=0)
    state: str = Field(description="The state when the stop request arrived.")
    asked: bool = Field(description="False: it had already ended, and nothing was requested.")


class VmStop(BaseModel):
    """The result of the stop of a machine."""

    vm_id: str
    position: int = Field(ge=0)
    state: str = Field(description="The state when the stop request arrived.")
    asked: bool = Field(description="False: it had already ended, and nothing was requested.")


_Word = Annotated[
    str,
    Path(
        alias="id",
        min_length=1,
        max_length=LONGEST,
        description=NAMED,
    ),
]
_Key = Annotated[
    str | None,
    Header(
        alias=KEY,
        min_length=1,
        max_length=_LONGEST_KEY,
        pattern="^[!-~]+$",
        description="The same key with the same body always means the same run; with another body: 409.",
    ),
]


def routes(service: Service) -> list[BaseRoute]:
    """The routes of all commands."""
    writer = Writer(service.store, clock=service.clock)
    service.closing.callback(writer.close)
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/api/runs",
        operation_id="submitRun",
        summary="Submit a run",
        tags=["runs"],
        status_code=202,
        response_model=RunAccepted,
    )
    async def submit(request: Request, body: SubmitBody, key: _Key = None) -> Response:
        if len(request.headers.getlist(KEY)) > 1:
            raise Problem(400, f"{KEY} is given more than once", field=KEY)
        wanted = submission.Submission(
            name=body.name,
            project=body.project,
            configuration=body.configuration,
            submitter=who(request),
            key=key,
        )
        made = await submission.submit(service, writer, wanted)
        answer = {"run_id": made.run_id, "name": made.name, "position": made.position}
        return made_answer(answer, made.position, location=f"/api/runs/{made.run_id}")

    @router.post(
        "/api/runs/{id}/stop",
        operation_id="stopRun",
        summary="Stop a run",
        tags=["runs"],
        status_code=202,
        response_model=RunStop,
        responses={200: {"model": RunStop, "description": "It had already ended; nothing was requested."}},
    )
    async def stop_run(request: Request, word: _Word, body: StopRunBody | None = None) -> Response:
        abort = body is not None and body.abort
        stop = await stopping.stop_run(service, writer, word, abort=abort, submitter=who(request))
        return _stopped({"run_id": stop.thing.run_id}, stop)

    @router.post(
        "/api/vms/{id}/stop",
        operation_id="stopVm",
        summary="Stop a machine",
        tags=["machines"],
        status_code=202,
        response_model=VmStop,
        responses={200: {"model": VmStop, "description": "It had already ended; nothing was requested."}},
    )
    async def stop_vm(request: Request, word: _Word, body: StopVmBody | None = None) -> Response:
        when_idle = body is not None and body.when_idle
        stop = await stopping.stop_vm(service, writer, word, when_idle=when_idle, submitter=who(request))
        return _stopped({"vm_id": stop.thing.vm_id}, stop)

    return list(router.routes)


def _stopped(name: dict[str, str], stop: stopping.Stop[Run] | stopping.Stop[Vm]) -> Response:
    answer = name | {"position": stop.position, "state": stop.thing.state.value, "asked": stop.requested}
    return made_answer(answer, stop.position, status=202 if stop.requested else 200)


def who(request: Request) -> str:
    """The name of the authenticated caller."""
    name: str = request.scope["steno.who"].name
    return name
