"""GET /api/runs/{id}/logs: the output of a run, read from its provider; it is not in the record."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from engine.errors import Conflict
from engine.fold.run import Run
from events.clock import SECOND, Clock
from projections.api.parameters import asked_of, flag, path_parameters
from projections.api.problems import Problem
from projections.api.service import Service
from projections.api.streams import left
from projections.store.world_table import decode_run

PATH = "/api/runs/{id}/logs"
AT_ONCE = 64
"""Outputs streamed at the same time; the provider blocks, so each has a thread."""
AHEAD = 16
"""Pieces read ahead of the client; then the provider waits."""
_FOLLOW = flag("follow", "Continue until the run has ended.")
_KIND = "text/plain; charset=utf-8"
_HEADERS = {"Cache-Control": "no-store"}
_LOOK = 0.5
"""Seconds between checks whether a client that reads nothing is still connected."""


def route(service: Service) -> BaseRoute:
    """The route."""
    streaming: set[Output] = set()

    async def endpoint(request: Request) -> Response:
        asked = asked_of(request, (_FOLLOW,))
        run = await to_thread.run_sync(_run, service, asked["id"])
        if request.method == "HEAD":
            return Response(media_type=_KIND, headers=_HEADERS)
        if len(streaming) >= AT_ONCE:
            said = f"{AT_ONCE} outputs are being streamed already: retry"
            raise Problem(503, said, headers=(("Retry-After", "5"),))
        output = Output(service, run, streaming, follow=asked["follow"])
        there = False
        try:
            there = await output.begin(request.receive)
        finally:
            if not there:
                output.end()
        # Nobody gets a 499; the log shows it, as nginx does.
        return OutputResponse(output) if there else Response(status_code=499)

    return Route(PATH, endpoint, methods=["GET"])


def _run(service: Service, word: str) -> Run:
    with service.pool.latest() as look:
        run = decode_run(look.view.row(word).folded)
    if run.provider_id is None:
        raise Conflict(f"{run.name} has not reached its provider yet, so it has no output")
    return run


class Disconnected(Exception):
    """The client has disconnected."""


@dataclass(frozen=True, slots=True)
class ClientClock:
    """A clock whose sleep raises `Disconnected` when the client has gone, so that the provider is no longer polled."""

    _clock: Clock
    _gone: threading.Event

    def now(self) -> int:
        """The present moment."""
        return self._clock.now()

    def sleep(self, duration: int) -> None:
        """Wait, or raise `Disconnected`."""
        if self._gone.wait(max(0, duration) / SECOND):
            raise Disconnected


class Output:
    """The pieces of one run's output, for one client. `begin`, then iterate; `end` whatever happened.

    Args:
        streaming: it is among these until its end.
    """

    def __init__(self, service: Service, run: Run, streaming: "set[Output]", *, follow: bool) -> None:
        self._service = service
        self._run = run
        self._follow = follow
        self._streaming = streaming
        self._loop = asyncio.get_running_loop()
        self._gone = threading.Event()
        self._room = threading.Semaphore(AHEAD)
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._first: bytes | None = None
        streaming.add(self)

    async def begin(self, receive: Receive) -> bool:
        """Wait for the first piece or the end, hours for a silent run; False: the client disconnected before.

        Raises:
            RunNotFound, ProviderUnreachable, ProviderRefused, ProviderError, Conflict: the output is not available.
        """
        threading.Thread(target=self._work, name="steno-output", daemon=True).start()
        first, leaving = asyncio.ensure_future(self._next()), asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({first, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                self._first = await first
            return first.done()
        finally:
            first.cancel()
            leaving.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        piece = self._first
        while piece is not None:
            yield piece
            piece = await self._next()

    def end(self) -> None:
        """The client has gone: the thread ends at its next wait or piece."""
        self._gone.set()
        self._streaming.discard(self)

    async def _next(self) -> bytes | None:
        piece = await self._pieces.get()
        if isinstance(piece, Exception):
            raise piece
        self._room.release()
        return piece

    def _work(self) -> None:
        end: Exception | None = None
        clock = ClientClock(self._service.clock, self._gone)
        try:
            for piece in self._service.outside.logs(self._run, follow=self._follow, clock=clock):
                while not self._room.acquire(timeout=_LOOK):
                    if self._gone.is_set():
                        return
                self._give(piece)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - raised where the output is read
            end = error
        self._give(end)

    def _give(self, piece: bytes | Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: the server has ended
            self._gone.set()


class OutputResponse(StreamingResponse):
    """Streams the pieces of an output, and ends it however the response ends."""

    def __init__(self, output: Output) -> None:
        super().__init__(output, media_type=_KIND, headers=_HEADERS)
        self._output = output

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._output.end()


_TEXT = {"text/plain": {"schema": {"type": "string"}}}
PATHS: dict[str, Any] = {
    PATH: {
        "get": {
            "operationId": "getRunLogs",
            "summary": "The output of a run, read from its provider; not part of the record",
            "tags": ["runs"],
            "parameters": [*path_parameters(PATH), _FOLLOW.described()],
            "responses": {
                "200": {"description": "The output as it arrives: any bytes, usually text.", "content": _TEXT}
            },
        }
    }
}
"""What the OpenAPI document says of it."""
