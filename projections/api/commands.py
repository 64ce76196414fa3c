"""Commands: each is a request in the record, carried out by whoever holds the provider's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from anyio import to_thread
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

    from engine.commands.idempotency import Accepted
    from projections.api.service import Service

KEY = "Idempotency-Key"
_LONGEST_KEY = 255
_NAME = "^[a-z][a-z0-9-]{1,40}$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SubmitBody(_Body):
    """A run that is wanted."""

    name: str | None = Field(default=None, pattern=_NAME, description="Over the configuration's own; else one is made.")
    project: str | None = Field(default=None, min_length=1, max_length=100, description="Else the settings' own.")
    configuration: dict[str, Any] = Field(
        description="A dstack task, as a task file has it; dstack's own models judge it. `files`, `repos` and "
        "variables without a value are refused: they would be the server's.",
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
    """How a run is to end."""

    abort: bool = Field(default=False, description="At once, without letting the task clean up.")


class StopVmBody(_Body):
    """How a machine is to go."""

    when_idle: bool = Field(default=False, description="Only once no run is on it; else a run on it is stopped first.")


class RunAccepted(BaseModel):
    """A run that is in the record."""

    run_id: str
    name: str
    position: int = Field(ge=1, description="Of the request: `min_position` of a read that has to see it.")


class RunStop(BaseModel):
    """What a stop led to."""

    run_id: str
    position: int = Field(ge=0)
    state: str = Field(description="As it was when the stop came.")
    asked: bool = Field(description="False: it had ended before, and nothing was asked for.")


class VmStop(BaseModel):
    """What the stop of a machine led to."""

    vm_id: str
    position: int = Field(ge=0)
    state: str = Field(description="As it was when the stop came.")
    asked: bool = Field(description="False: it had gone before, and nothing was asked for.")


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
        description="The same key with the same body is the same run, however often it comes; with another body, 409.",
    ),
]


def routes(service: Service) -> list[BaseRoute]:
    """The routes of all commands."""
    writer = Writer(service.record_path, clock=service.clock)
    service.closing.callback(writer.close)
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/api/runs",
        operation_id="submitRun",
        summary="Ask for a run",
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
        made = await _submit(service, writer, wanted)
        answer = {"run_id": made.run_id, "name": made.name, "position": made.position}
        return made_answer(answer, made.position, location=f"/api/runs/{made.run_id}")

    @router.post(
        "/api/runs/{id}/stop",
        operation_id="stopRun",
        summary="Ask that a run end",
        tags=["runs"],
        status_code=202,
        response_model=RunStop,
        responses={200: {"model": RunStop, "description": "It had ended before; nothing was asked for."}},
    )
    async def stop_run(request: Request, word: _Word, body: StopRunBody | None = None) -> Response:
        found = await to_thread.run_sync(stopping.run_to_stop, service, word)
        if found.asked:
            abort, submitter = body is not None and body.abort, who(request)
            found = await writer.do(lambda journal: stopping.stop_run(journal, found, submitter, abort=abort))
            service.projector.wake()
        return made_answer(found.answer, found.position, status=202 if found.asked else 200)

    @router.post(
        "/api/vms/{id}/stop",
        operation_id="stopVm",
        summary="Ask that a machine go",
        tags=["machines"],
        status_code=202,
        response_model=VmStop,
        responses={200: {"model": VmStop, "description": "It had gone before; nothing was asked for."}},
    )
    async def stop_vm(request: Request, word: _Word, body: StopVmBody | None = None) -> Response:
        found = await to_thread.run_sync(stopping.vm_to_stop, service, word)
        if found.asked:
            when_idle, submitter = body is not None and body.when_idle, who(request)
            found = await writer.do(lambda journal: stopping.stop_vm(journal, found, submitter, when_idle=when_idle))
            service.projector.wake()
        return made_answer(found.answer, found.position, status=202 if found.asked else 200)

    return list(router.routes)


async def _submit(service: Service, writer: Writer, wanted: submission.Submission) -> Accepted:
    """The request for a run in the record: the one that is there already, or a new one."""
    key, before = await writer.do(lambda journal: submission.repeated(wanted, journal))
    if before is not None:
        return before
    run_id = service.ids.new() if key is None else key.run_id
    task = await to_thread.run_sync(submission.completed, service, wanted, run_id)
    project = await to_thread.run_sync(submission.project_of, service, wanted)
    made = await writer.do(lambda journal: submission.accept(service, journal, wanted, task, (run_id, project, key)))
    service.projector.wake()
    return made


def who(request: Request) -> str:
    """Who asks, as the gate found it."""
    name: str = request.scope["steno.who"].name
    return name
