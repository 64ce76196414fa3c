"""GET /api/runs/{id}/logs: a run's output, from its provider, or from the record if that has it no more; and GET
/api/runs/{id}/entrance: the way to a port of a run, from its provider.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from steno.engine.errors import Conflict
from steno.engine.state.run import Run
from steno.engine.wire import wire
from steno.events.clock import SECOND, Clock
from steno.events.store.outputs import output_of
from steno.projections.answers.entrance import EntranceObject, entrance
from steno.projections.api.bodies import fresh_answer
from steno.projections.api.openapi import TEXT, Operation, Reply, routed
from steno.projections.api.parameters import asked_of, flag, integer
from steno.projections.api.problems import Problem
from steno.projections.api.service import Service
from steno.projections.api.streams import left

AT_ONCE = 64  # outputs streamed at the same time; the provider blocks, so each has a thread
AHEAD = 16  # pieces read ahead of the client; then the provider waits
_FOLLOW = flag("follow", "Continue until the run has ended.")
_PORT = integer("port", "A port that the run listens on; default: only the way into the run.", low=1, high=65535)
_ENTRANCE = Operation(
    "GET /api/runs/{id}/entrance",
    "The way to a port of a run, or into it; 409 if it does not run",
    "runs",
    {200: Reply("The address, and the commands that open the way to it.", EntranceObject)},
    parameters=(_PORT.described(),),
)
_LOGS = Operation(
    "GET /api/runs/{id}/logs",
    "The output of a run, from its provider, or from the record if that has it no more or does not answer",
    "runs",
    {200: Reply("The output as it arrives: any bytes, usually text.", str, TEXT)},
    parameters=(_FOLLOW.described(),),
)
OPERATIONS = (_ENTRANCE, _LOGS)
_KIND = "text/plain; charset=utf-8"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would keep output that is followed


def routes(service: Service) -> list[BaseRoute]:
    streaming: set[Output] = set()

    async def enter(request: Request) -> Response:
        values = asked_of(request, (_PORT,))
        return fresh_answer(await to_thread.run_sync(_way, service, values["id"], values["port"]))

    async def logs(request: Request) -> Response:
        values = asked_of(request, (_FOLLOW,))
        run = await to_thread.run_sync(_run, service, values["id"])
        if request.method == "HEAD":
            return Response(media_type=_KIND, headers=_HEADERS)
        if len(streaming) >= AT_ONCE:
            detail = f"{AT_ONCE} outputs are being streamed already: retry"
            raise Problem(503, detail, headers=(("Retry-After", "5"),))
        output = Output(service, run, streaming, follow=values["follow"])
        # Not sent to anybody: nginx's 499, for the access log.
        return output if await output.begin(request.receive) else Response(status_code=499)

    return routed(OPERATIONS, enter, logs)


def _way(service: Service, word: str, port: int | None) -> dict[str, object]:
    with service.pool.latest() as look:
        run = look.view.row(word).decoded
    return wire(entrance(run, port, lambda run: service.opened(run, service.clock)))


def _run(service: Service, word: str) -> Run:
    with service.pool.latest() as look:
        run = look.view.row(word).decoded
    if run.provider_id is None:
        raise Conflict(f"{run.name} has not reached its provider yet, so it has no output")
    if run.tasks:
        raise Conflict(f"{run.name} is an array, and each task has its own output: name one, as {run.name}[1]")
    return run


class Disconnected(Exception):
    """The client has disconnected."""


@dataclass(frozen=True, slots=True)
class ClientClock:
    """A clock whose sleep raises `Disconnected` after the client left, to end the polling of the provider."""

    _clock: Clock
    _gone: threading.Event

    def now(self) -> int:
        return self._clock.now()

    def sleep(self, duration: int) -> None:
        if self._gone.wait(max(0, duration) / SECOND):
            raise Disconnected


def _output(service: Service, run: Run, clock: Clock, *, follow: bool) -> Iterator[bytes]:
    """The run's output by its provider; with `follow`, until it ended. Raises as the provider's `logs`."""
    with closing(service.opened(run, clock)) as provider:
        yield from provider.logs(run.provider_id or "", run.name or "", follow=follow)


class Output(StreamingResponse):
    """The output of a run for a client, once `begin` has a piece of it; a member of `streaming` until it ends."""

    def __init__(self, service: Service, run: Run, streaming: "set[Output]", *, follow: bool) -> None:
        super().__init__(self._sent(), media_type=_KIND, headers=_HEADERS)
        self._gone = threading.Event()
        live = partial(_output, service, run, ClientClock(service.clock, self._gone), follow=follow)
        attempt = run.run_id, run.provider_id or ""
        self._read = partial(output_of, live, service.store, attempt, service.clock, self._say)
        self._streaming = streaming
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(AHEAD)
        self._first: bytes | None = None

    async def begin(self, receive: Receive) -> bool:
        """Wait for the first piece or the end, hours for a silent run; False: the client disconnected. Raises
        `RunNotFound`, `ProviderUnreachable`, `ProviderRefused`, `ProviderError` or `Conflict` if there is no output.
        """
        self._streaming.add(self)
        threading.Thread(target=self._work, name="steno-output", daemon=True).start()
        first, leaving = asyncio.ensure_future(self._next()), asyncio.ensure_future(left(receive))
        there = False
        try:
            await asyncio.wait({first, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                self._first, there = await first, True
            return there
        finally:
            first.cancel()
            leaving.cancel()
            if not there:
                self._end()

    def _say(self, _why: str) -> None:
        self.headers["Steno-Output"] = "record"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()

    async def _sent(self) -> AsyncIterator[bytes]:
        piece = self._first
        while piece is not None:
            yield piece
            piece = await self._next()

    async def _next(self) -> bytes | None:
        piece = await self._pieces.get()
        if isinstance(piece, Exception):
            raise piece
        return piece

    def _end(self) -> None:
        """The client left: the thread ends at its next wait or piece."""
        self._gone.set()
        self._streaming.discard(self)
        while not self._pieces.empty():  # the thread may wait for room
            self._pieces.get_nowait()

    def _work(self) -> None:
        end: Exception | None = None
        with suppress(Disconnected):
            try:
                for piece in self._read():
                    self._give(piece)
            except Disconnected:
                raise
            except Exception as error:  # noqa: BLE001 - raised where the output is read
                end = error
            self._give(end)

    def _give(self, piece: bytes | Exception | None) -> None:
        """Queue a piece; waits for room."""
        putting = self._pieces.put(piece)
        try:
            if self._gone.is_set():
                raise Disconnected
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except RuntimeError:  # the loop is closed: the server has ended
            raise Disconnected from None
        finally:
            putting.close()
