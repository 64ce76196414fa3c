"""GET /api/runs/{id}/logs: what a run wrote, asked of its provider; it is no part of the record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, WouldBlock, to_thread
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from engine.errors import Conflict
from projections.api.parameters import asked_of, flag
from projections.api.problems import Problem
from projections.api.reads.output import Output
from projections.api.reads.read import check_path, parameter_object, path_parameters
from projections.api.streams import left
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from engine.fold.run import Run
    from projections.api.service import Service

PATH = "/api/runs/{id}/logs"
AT_ONCE = 64
"""Outputs that are passed on at the same time; each has a thread."""
_FOLLOW = flag("follow", "Go on until the run has ended.")
_KIND = "text/plain; charset=utf-8"


def route(service: Service) -> BaseRoute:
    """The route."""
    limiters: list[CapacityLimiter] = []

    async def endpoint(request: Request) -> Response:
        asked = asked_of(request, (_FOLLOW,))
        check_path(asked)
        run = await to_thread.run_sync(_run, service, asked.path["id"])
        if request.method == "HEAD":
            return Response(media_type=_KIND, headers=_HEADERS)
        if not limiters:
            limiters.append(CapacityLimiter(AT_ONCE))
        limiter = limiters[0]
        output = Output(service, run, follow=asked.flag("follow"))
        try:
            limiter.acquire_on_behalf_of_nowait(output)
        except WouldBlock:
            said = f"{AT_ONCE} outputs are being passed on already: try again"
            raise Problem(503, said, headers=(("Retry-After", "5"),)) from None
        there = False
        try:
            there = await _begun(output, request.receive)
        finally:
            if not there:
                output.end()
                limiter.release_on_behalf_of(output)
        # Nobody gets a 499; the log shows it, as nginx does.
        return _Passed(output, limiter) if there else Response(status_code=499)

    return Route(PATH, endpoint, methods=["GET"])


class _Passed(StreamingResponse):
    """The pieces of an output; however it ends, nobody goes on asking for more."""

    def __init__(self, output: Output, limiter: CapacityLimiter) -> None:
        super().__init__(output, media_type=_KIND, headers=_HEADERS)
        self._output = output
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._output.end()
            self._limiter.release_on_behalf_of(self._output)


async def _begun(output: Output, receive: Receive) -> bool:
    """Wait for the first piece or the end; False: the client left before that, which a silent run may take hours for.

    Raises:
        RunNotFound, ProviderUnreachable, ProviderRefused, ProviderError, Conflict: there is no output to be had.
    """
    begun, leaving = asyncio.ensure_future(output.begin()), asyncio.ensure_future(left(receive))
    try:
        await asyncio.wait({begun, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            await begun
        return begun.done()
    finally:
        begun.cancel()
        leaving.cancel()


def _run(service: Service, word: str) -> Run:
    with service.pool.latest() as look:
        run = decode_run(look.view.row(word).folded)
    if run.provider_id is None:
        raise Conflict(f"{run.name} has not reached its provider, so there is no output")
    return run


_HEADERS = {"Cache-Control": "no-store"}

OPENAPI: dict[str, Any] = {
    "paths": {
        PATH: {
            "get": {
                "operationId": "getRunLogs",
                "summary": "What a run wrote, as its provider has it; not part of the record",
                "tags": ["runs"],
                "parameters": [*path_parameters(PATH), parameter_object(_FOLLOW)],
                "responses": {
                    "200": {
                        "description": "The output as it comes: any bytes, mostly text.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    }
                },
            }
        }
    }
}
