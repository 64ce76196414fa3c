"""The routes of commands: each appends a request, which the holder of the provider's lease executes."""

from typing import Annotated, Any, Final

import msgspec
from anyio import to_thread
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.live.journal import Journal
from steno.engine.providers.task import Draft
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.submit.completion import missing_values, repeated
from steno.engine.submit.requests import needs_stop, needs_vm_stop, request_stop, request_vm_stop
from steno.events.types import RunRequested
from steno.projections.api.bodies import json_body, made_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import KEY_HEADER, asked_of, idempotency_key
from steno.projections.api.problems import Problem
from steno.projections.api.reads.runs import repeatable_here
from steno.projections.api.service import Service, Writer
from steno.projections.api.submission import FIELD, content_of, submit

_NAME: Final = "Overrides the configuration's name; without either, a name is generated."
_KEPT: Final = "Default: the run's name, unless Steno generated that."
_RUN_NAME: Final = "^[a-z][a-z0-9-]{1,40}$"
_Changed = Annotated[str, Meta(min_length=1, max_length=200, description="As the option of `steno submit`.")] | None
_PROJECT: Final = "Default: the project of the settings."


class SubmitBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run to submit."""

    name: Annotated[str, Meta(pattern=_RUN_NAME, description=_NAME)] | None = None
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


class RerunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes; a field that is left out keeps its value."""

    name: Annotated[str, Meta(pattern=_RUN_NAME, description=_KEPT)] | None = None
    image: _Changed = None
    gpu: _Changed = None
    cpu: _Changed = None
    memory: _Changed = None
    disk: _Changed = None
    max_duration: _Changed = None
    env: Annotated[dict[str, str], Meta(description="Variables; the values of the run's own are not recorded.")] = {}


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


class Stop(msgspec.Struct, frozen=True, kw_only=True, rename={"requested": "asked"}):
    """The result of a stop."""

    position: Annotated[int, Meta(ge=0)]
    state: Annotated[str, Meta(description="The state when the stop request arrived.")]
    requested: Annotated[bool, Meta(description="False: it had already ended, and nothing was requested.")]


class RunStop(Stop, frozen=True, kw_only=True, rename={"requested": "asked"}):
    """The result of the stop of a run."""

    run_id: str


class VmStop(Stop, frozen=True, kw_only=True, rename={"requested": "asked"}):
    """The result of the stop of a machine."""

    vm_id: str


def routes(service: Service) -> list[BaseRoute]:
    writer = Writer(service)

    async def submit_run(request: Request) -> Response:
        asked_of(request, ())
        body = await json_body(request, SubmitBody)
        content = content_of(body.name, body.project, body.configuration)
        task = body.configuration if body.name is None else {**body.configuration, "name": body.name}
        return await accepted(request, Draft(configuration=task, where=FIELD, environ={}), body.project, content)

    async def rerun_a_run(request: Request) -> Response:
        word = asked_of(request, ())["id"]
        body = await json_body(request, RerunBody, RerunBody())
        before = await to_thread.run_sync(_request_of, service, word)
        draft = _again(before, body)
        return await accepted(request, draft, before.project, content_of(None, before.project, draft.configuration))

    async def accepted(request: Request, draft: Draft, project: str | None, content: bytes) -> Response:
        made = await submit(
            service,
            writer,
            lambda _: draft,
            provider=service.provider,
            project=project,
            content=content,
            submitter=_submitter(request),
            key_text=idempotency_key(request),
        )
        answer = RunAccepted(run_id=made.run_id, name=made.name, position=made.position)
        return made_answer(answer, made.position, location=f"/api/runs/{made.run_id}")

    async def stop_a_run(request: Request) -> Response:
        word = asked_of(request, ())["id"]
        body = await json_body(request, StopRunBody, StopRunBody())
        stop = await stop_run(service, writer, word, abort=body.abort, submitter=_submitter(request))
        return made_answer(stop, stop.position, status=202 if stop.requested else 200)

    async def stop_a_vm(request: Request) -> Response:
        word = asked_of(request, ())["id"]
        body = await json_body(request, StopVmBody, StopVmBody())
        stop = await stop_vm(service, writer, word, when_idle=body.when_idle, submitter=_submitter(request))
        return made_answer(stop, stop.position, status=202 if stop.requested else 200)

    return routed(OPERATIONS, submit_run, rerun_a_run, stop_a_run, stop_a_vm)


def _submitter(request: Request) -> str:
    name: str = request.scope["steno.caller"].name
    return name


def _request_of(service: Service, word: str) -> RunRequested:
    """The request; raises `RunNotFound`, or `Conflict` if it cannot be submitted again here."""
    with service.pool.latest() as look:
        return repeatable_here(service, look, look.view.row(word))


def _again(before: RunRequested, body: RerunBody) -> Draft:
    """The task of a run once more; raises `Problem` (422) if the value of a variable is not given."""
    changes = msgspec.structs.asdict(body)
    changes["env"] = [f"{name}={value}" for name, value in body.env.items()]
    draft = repeated(before, changes=changes, environ={}, folder=False)
    for name in missing_values(draft.configuration):
        raise Problem(422, f"the value of {name} is not recorded: give it in `env`", field=f"env.{name}")
    return msgspec.structs.replace(draft, where=FIELD)


async def stop_run(service: Service, writer: Writer, word: str, *, abort: bool, submitter: str) -> RunStop:
    """Request the stop of a run. Raises `RunNotFound` (none or several match), `Conflict` (it is archived)."""

    def find() -> tuple[Run, int, bool]:
        with service.pool.latest() as look:
            run = look.view.row(word).decoded
            return run, look.position, needs_stop(run, look.view.state, service.settings, look.now)

    def append(journal: Journal) -> int:
        project = run.project or service.project
        return request_stop(journal, run, project=project, abort=abort, submitter=submitter)

    run, position, needed = await to_thread.run_sync(find)
    if needed:
        position = await writer.do(append)
    return RunStop(run_id=run.run_id, position=position, state=run.state.value, requested=needed)


async def stop_vm(service: Service, writer: Writer, word: str, *, when_idle: bool, submitter: str) -> VmStop:
    """Request the stop of a machine. Raises `VmNotFound` (none or several match), `Conflict` (not created by Steno, or
    archived).
    """

    def find() -> tuple[Vm, int, bool]:
        with service.pool.latest() as look:
            vm = look.view.machine(look.view.vm_row(word).vm_id)
            return vm, look.position, needs_vm_stop(vm)

    def append(journal: Journal) -> int:
        project = vm.facts.project or service.project
        return request_vm_stop(journal, vm, project=project, when_idle=when_idle, submitter=submitter)

    vm, position, needed = await to_thread.run_sync(find)
    if needed:
        position = await writer.do(append)
    return VmStop(vm_id=vm.vm_id, position=position, state=vm.state.value, requested=needed)


_TAKEN: Final = "The request is in the record."
_ENDED: Final = "It had already ended; nothing was requested."
OPERATIONS: Final = (
    Operation(
        "POST /api/runs",
        "Submit a run",
        "runs",
        {202: Reply(_TAKEN, RunAccepted)},
        name="submitRun",
        parameters=(KEY_HEADER,),
        body=SubmitBody,
    ),
    Operation(
        "POST /api/runs/{id}/rerun",
        "Submit a run again, as it was or with changes",
        "runs",
        {202: Reply(_TAKEN, RunAccepted)},
        name="rerunRun",
        parameters=(KEY_HEADER,),
        body=RerunBody | None,
    ),
    Operation(
        "POST /api/runs/{id}/stop",
        "Stop a run",
        "runs",
        {200: Reply(_ENDED, RunStop), 202: Reply(_TAKEN, RunStop)},
        name="stopRun",
        body=StopRunBody | None,
    ),
    Operation(
        "POST /api/vms/{id}/stop",
        "Stop a machine",
        "machines",
        {200: Reply(_ENDED, VmStop), 202: Reply(_TAKEN, VmStop)},
        name="stopVm",
        body=StopVmBody | None,
    ),
)
