"""GET /api/runs/{id}/entrance: the way to a port of a run, from its provider."""

from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.wire import wire
from steno.projections.answers.entrance import EntranceObject, entrance
from steno.projections.api.bodies import fresh_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import asked_of, integer
from steno.projections.api.service import Service

_PORT: Final = integer("port", "A port that the run listens on; default: only the way into the run.", low=1, high=65535)
OPERATION: Final = Operation(
    "GET /api/runs/{id}/entrance",
    "The way to a port of a run, or into it; 409 if it does not run",
    "runs",
    {200: Reply("The address, and the commands that open the way to it.", EntranceObject)},
    parameters=(_PORT.described(),),
)


def routes(service: Service) -> list[BaseRoute]:
    async def endpoint(request: Request) -> Response:
        values = asked_of(request, (_PORT,))
        return fresh_answer(await to_thread.run_sync(work, values["id"], values["port"]))

    def work(word: str, port: int | None) -> dict[str, object]:
        with service.pool.latest() as look:
            run = look.view.row(word).decoded
        return wire(entrance(run, port, lambda run: service.opened(run, service.clock)))

    return routed((OPERATION,), endpoint)
