"""HTTP as uvicorn reads it, with bounds on the head of a request: how large it is, and how long it takes to come."""

from __future__ import annotations

import functools
import logging
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from projections.api.problems import MEDIA_TYPE, Problem, problem_body

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

MAX_HEAD: Final = 32 * 1024
"""Bytes of request line and headers."""
HEAD_SECONDS: Final = 10
"""How long the head of a request may take to come, from the connection or its first byte on."""

_AT_ONCE: Final = struct.pack("ii", 1, 0)
_log = logging.getLogger("steno.access")
_stood: list[Any] = [None, b""]
"""A list of headers, and it as it is sent."""


class Protocol(HttpToolsProtocol):
    """One connection. What is no HTTP, or too much of it, is answered with a problem and closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._head = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection: a request has to come, or it is closed."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of one or more requests."""
        if self._in_head and self._head + len(data) > MAX_HEAD and b"\r\n\r\n" not in data[: MAX_HEAD - self._head]:
            self.refuse(Problem(431, f"the head of a request may have {MAX_HEAD} bytes"))
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nothing is offered to upgrade to: it is answered as if it had not asked
        except httptools.HttpParserError:
            self.refuse(Problem(400, "this is no HTTP request"))
            return
        if not self._in_head:
            if self._deadline is not None:
                self._cancel()
            return
        self._head += len(data)
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._unset_keepalive_if_required()
        self._in_head = True
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there; who answers can cut the connection, whatever is still to be sent on it."""
        self._in_head = False
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["steno.abort"] = self._abort
        super().on_headers_complete()
        scope["steno.whole"] = functools.partial(self._whole, self.cycle)

    def refuse(self, problem: Problem) -> None:
        """Answer what never became a request, and close."""
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
        self.transport.write(STATUS_LINE[problem.status] + b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()
        _log.info("- - %s %s", problem.status, problem.detail)

    def _whole(self, cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> bool:
        """Answer a request in one piece: what ASGI's two messages cost is most of a short answer.

        Args:
            cycle: the request.
            head: the answer's own headers as they are sent, and the empty line behind them.

        Returns:
            Whether it was sent; if not it has to be sent as others are.
        """
        if cycle.response_started or not cycle.keep_alive or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        if not cycle.disconnected:
            self.transport.write(STATUS_LINE[status] + _standing(self.server_state) + head + body)
        cycle.message_event.set()
        cycle.on_response()
        return True

    def _abort(self) -> None:
        """Cut the connection; the system forgets at once what it has not sent."""
        there = self.transport.get_extra_info("socket")
        if there is not None and not self.transport.is_closing():
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words are no problem object
        """As uvicorn calls it."""
        self.refuse(Problem(400, "this is no HTTP request"))

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


def _standing(state: ServerState) -> bytes:
    """The headers of every answer as they are sent; uvicorn makes another list of them each second, for the date."""
    lines: bytes
    headers, lines = _stood
    if headers is not state.default_headers:
        headers = state.default_headers
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        _stood[:] = headers, lines
    return lines
