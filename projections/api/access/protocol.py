"""HTTP as uvicorn reads it, with limits on a request's head, on requests and answers that wait, and on connections.
uvicorn's own options bound none of them for httptools, so a proxy in front would be needed even on loopback.
"""

import asyncio
import functools
import logging
import resource
import socket
import struct
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from steno.projections.api.problems import MEDIA_TYPE, Problem, problem_body

MAX_HEAD: Final = 32 * 1024  # bytes of request line and headers
HEAD_SECONDS: Final = 10  # for a request's head, from the connection or its first byte
WRITE_SECONDS: Final = 60  # for a client to take `WRITE_LEAST` bytes, else the connection is cut
WRITE_LEAST: Final = 16 * 1024
WAITING: Final = 100  # requests that may wait on one connection for the answers before them
MOST: Final = 8192  # connections at once, where the process may have that many files

_TOO_LONG: Final = Problem(431, f"the head of a request, or its trailers, may have {MAX_HEAD} bytes")
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_log = logging.getLogger("steno.access")


def most_connections() -> int:
    """Half of the files that this process may open, so that the record keeps its own."""
    return min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class _TooManyWait(Exception):
    """No further request is read from this connection."""


class Protocol(HttpToolsProtocol):
    """A connection. Invalid or excessive HTTP is answered with a problem and closed, but only after earlier requests,
    as the client would take the problem for their answer.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._in_body = False  # the newest request's head is there, and what follows it is not
        self._head = 0  # bytes of the head so far
        self._unused = 0  # bytes since the last byte of a body: chunk extensions and trailers
        self._deaf = False  # nothing more is read: the connection ends with the last answer
        self._running: RequestResponseCycle | None = None  # `self.cycle`, the newest, may wait for it
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse_now(Problem(503, "too many connections: try again later", headers=(("Retry-After", "5"),)))
            return
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._cancel()
        self.resume_writing()
        for cycle in self._unanswered():
            _disconnect(cycle)
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if (
            self._in_head
            and self._head + len(data) > MAX_HEAD
            and b"\r\n\r\n" not in data[: max(0, MAX_HEAD - self._head)]
        ):
            self.refuse(_TOO_LONG)
            return
        self._unused += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end_after_last()  # what follows may be another protocol
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _TooManyWait):
                self._end_after_last()
            else:
                self.refuse(Problem(400, "this is not an HTTP request"))
            return
        if not self._in_head:
            if self._in_body and self._unused > MAX_HEAD:
                self.refuse(_TOO_LONG)
            elif self._deadline is not None:
                self._cancel()
            return
        self._head += len(data) if self._head else len(data.rpartition(b"\r\n\r\n")[2])
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= WAITING:
            raise _TooManyWait
        self._unset_keepalive_if_required()
        self._in_head = True
        self._head = self._unused = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let the handler of a complete head cut the connection, whatever is still to be sent on it."""
        if self.url[:1] != b"/" or b"#" in self.url:
            raise ValueError("the target is not a path")  # `http://other.example/` would be a second host
        self._in_head, self._in_body = False, True
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["steno.abort"] = self._abort
        super().on_headers_complete()
        self.headers = []  # trailers end here: they are not headers of an accepted request

    def on_body(self, body: bytes) -> None:
        self._unused = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def refuse(self, problem: Problem) -> None:
        """Answer what never became a request, after all earlier requests, and close."""
        unanswered = self._unanswered()
        if self._in_body and self.cycle not in unanswered:
            self.transport.close()  # what is wrong is the body of a request that was answered already
        elif self._in_body and len(unanswered) > 1:
            self.pipeline.popleft()  # it is the body of a request that waits: nothing acts on it
            self._end_after_last(problem)
        elif self._in_body or not unanswered:
            self._refuse_now(problem)
            if self._in_body:
                _disconnect(self.cycle)
        else:
            self._end_after_last(problem)

    def _refuse_now(self, problem: Problem) -> None:
        self._deaf = True
        self._cancel()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # in the middle of an answer there is no place for another
            return
        body = problem_body(problem)
        lines = [name + b": " + value for name, value in self.server_state.default_headers]
        lines += [b"content-type: " + MEDIA_TYPE.encode(), b"content-length: %d" % len(body), b"connection: close"]
        lines += [f"{name.lower()}: {value}".encode() for name, value in problem.headers]
        self.transport.write(STATUS_LINE[problem.status] + b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()
        _log.info("- - %s %s", problem.status, problem.detail)

    def _unanswered(self) -> list[RequestResponseCycle]:
        first = [] if self._running is None or self._running.response_complete else [self._running]
        return [*first, *(cycle for cycle, _ in reversed(self.pipeline))]

    def _end_after_last(self, problem: Problem | None = None) -> None:
        """Stop reading; after the last answer send the problem, if any, and close."""
        self._deaf = True
        self._cancel()
        unanswered = self._unanswered()
        if not unanswered:
            self.transport.close()
        elif problem is None:
            unanswered[-1].keep_alive = False
        elif unanswered[-1].keep_alive:
            unanswered[-1].on_response = functools.partial(self._refuse_now, problem)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _abort(self) -> None:
        """Cut the connection; the system discards at once what it has not sent."""
        there = self.transport.get_extra_info("socket")
        if there is not None and not self.transport.is_closing():
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's text is not a problem object
        self.refuse(Problem(400, "this is not an HTTP request"))

    def _watch_writing(self) -> None:
        self._stalled = self.loop.call_later(
            WRITE_SECONDS, self._look_at_writing, self.transport.get_write_buffer_size()
        )

    def _look_at_writing(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < WRITE_LEAST:
            self._stalled = None
            self._abort()
        else:
            self._watch_writing()

    def _too_slow(self) -> None:
        self._deadline = None
        if self._head:
            self.refuse(Problem(408, f"the head of a request may take {HEAD_SECONDS} seconds"))
        elif not self.transport.is_closing():
            self.transport.close()  # nothing was asked, so nothing is answered

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _disconnect(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True
    cycle.message_event.set()
