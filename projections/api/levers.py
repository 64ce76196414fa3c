"""The levers over HTTP: those in force, pulling, releasing, and what a lever would do."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec
from anyio import to_thread
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.settings.values import positive_duration
from steno.engine.state.levers import LONGEST_WHY
from steno.engine.submit.levers import pull, refuse_form, refuse_pull, release
from steno.engine.wire import wire
from steno.events.levers import LeverAction, LeverPulled
from steno.projections.answers.levers import LeverObject, LeverReach, lever_object, reach
from steno.projections.api.bodies import fresh_answer, json_body, made_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import asked_of
from steno.projections.api.problems import Problem
from steno.projections.api.service import Service, Writer
from steno.projections.read_models.view import View

_Text = Annotated[str, Meta(min_length=1, max_length=200)]


class LeverBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"length": "for"}):
    """A lever to pull; a field that is left out restricts nothing."""

    action: LeverAction
    user: _Text | None = None
    gpu: _Text | None = None
    source: _Text | None = None
    state: _Text | None = None
    vm_id: Annotated[_Text, Meta(description="A machine's id, its beginning, or its name.")] | None = None
    length: Annotated[str, Meta(description="How long: `90s`, `2h`. Of `keep` always, of `stop` never.")] | None = None
    why: Annotated[str, Meta(min_length=1, max_length=LONGEST_WHY, pattern=r"\S")]
    preview: Annotated[bool, Meta(description="Answer what it would do, and record nothing.")] = False


class ReleaseBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    why: Annotated[str, Meta(max_length=LONGEST_WHY)] = ""


class ReleasedLever(msgspec.Struct, frozen=True):
    """A lever that is not in force any more."""

    lever_id: str
    position: Annotated[int, Meta(ge=1)]


def routes(service: Service) -> list[BaseRoute]:
    writer, newest = Writer(service), partial(service.newest, lambda look: look.now)

    async def pull_lever(request: Request) -> Response:
        asked_of(request, ())
        body = await json_body(request, LeverBody)
        wanted = await to_thread.run_sync(_wanted, service, body, request.scope["steno.caller"].name)
        if body.preview:
            return fresh_answer(wire((await to_thread.run_sync(_shown, service, wanted, reach))[1]))
        made, position = await writer.do(lambda journal: pull(journal, wanted, newest))
        at, answer = await to_thread.run_sync(_shown, service, made, lever_object)
        return made_answer(wire(answer), position or at, status=201)

    async def release_lever(request: Request) -> Response:
        word, by = asked_of(request, ())["id"], request.scope["steno.caller"].name
        why = (await json_body(request, ReleaseBody, ReleaseBody())).why
        released = await writer.do(lambda journal: release(journal, word, why=why, by=by, look=newest))
        return made_answer(ReleasedLever(*released), released[1], status=200)

    return routed(OPERATIONS, pull_lever, release_lever)


def _wanted(service: Service, body: LeverBody, by: str) -> LeverPulled:
    """The lever of a body. Raises `Problem` (422), `UnreadableInput` (422) or `VmNotFound`."""
    fields = msgspec.structs.asdict(body)
    length = fields.pop("length")
    del fields["preview"]
    with service.pool.latest() as look:
        try:
            fields["until"] = None if length is None else look.now + positive_duration(length)
        except ValueError as error:
            raise Problem(422, str(error), field="for") from None
        fields["vm_id"] = None if body.vm_id is None else look.view.vm_row(body.vm_id).vm_id
        wanted = LeverPulled(lever_id=service.ids.new(), by=by, **fields)
        refuse_form(wanted)
        refuse_pull(look.view.state, wanted, look.now)
        return wanted


def _shown(
    service: Service, lever: LeverPulled, about: Callable[[View, LeverPulled, int], LeverReach]
) -> tuple[int, LeverReach]:
    """The newest position, and what is shown of the lever there."""
    with service.pool.latest() as look:
        return look.position, about(look.view, lever, look.now)


OPERATIONS: Final = (
    Operation(
        "POST /api/levers",
        "Pause, drain, stop or keep, or see what that would do",
        "levers",
        {
            200: Reply("What it would do (`preview`).", LeverReach),
            201: Reply("The lever is in force; the caller's own lever if that was the same.", LeverObject),
        },
        name="pullLever",
        body=LeverBody,
    ),
    Operation(
        "DELETE /api/levers/{id}",
        "Release a lever",
        "levers",
        {200: Reply("It is released.", ReleasedLever)},
        name="releaseLever",
        body=ReleaseBody | None,
        description="What it stopped stays stopped.",
    ),
)
