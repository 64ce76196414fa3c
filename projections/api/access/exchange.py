"""One request and its answer, between the server and the application: ends a stream whose token was revoked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.api.access.tokens import LOOK_AGAIN

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from starlette.types import Message, Receive, Send

    from events.clock import Clock
    from projections.api.access.roles import Caller
    from projections.api.access.tokens import Tokens


class AnswerEnded(OSError):
    """The answer was ended while the application still had something to send; to it, the client has disconnected."""


class OpenStreams:
    """The exchanges of a service whose answers have no length known beforehand."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self.tokens = tokens
        self.clock = clock
        self.open: set[Exchange] = set()


class Exchange:
    """One request and its answer. What most requests never set is a class attribute: it costs nothing per request.

    Args:
        began_at: when the request came (microseconds, UTC).
        task: what answers it.
    """

    caller: Caller | None = None
    status = 0
    """0: no answer has begun."""
    complete = False
    extra: tuple[tuple[bytes, bytes], ...] = ()
    """Headers to add to the answer."""
    _body: bytes | None = None
    _checked_at = 0
    _has_length: bool | None = None
    """Whether the answer has a Content-Length; None: not looked at yet."""
    _headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self, receive: Receive, send: Send, streams: OpenStreams, began_at: int, task: asyncio.Task[object] | None
    ) -> None:
        self.began_at = began_at
        self.task = task
        self._receive = receive
        self._send = send
        self._streams = streams

    def has_read(self, body: bytes) -> None:
        """Give the application this body, which was read already."""
        self._body = body

    async def receive(self) -> Message:
        """What the application receives."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    def send(self, message: Message) -> Awaitable[None]:
        """What the application sends; raises `AnswerEnded` once the answer is complete or its token revoked."""
        if self.complete:
            return self._raise_ended()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = message.get("headers", ())
            if self.extra:
                message = {**message, "headers": [*self._headers, *self.extra]}
        elif not message.get("more_body"):
            self.complete = True
            self._streams.open.discard(self)
        elif self._is_revoked():
            return self._finish_and_raise()
        return self._send(message)

    async def finish(self) -> None:
        """End an answer that has begun, in good form."""
        if self.status and not self.complete:
            self.complete = True
            self._streams.open.discard(self)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _is_revoked(self) -> bool:
        """Whether the token of a stream was revoked while it went on; looked at every `LOOK_AGAIN`."""
        if self._has_length is None:
            self._has_length = any(name.lower() == b"content-length" for name, _ in self._headers)
            if not self._has_length:
                self._streams.open.add(self)
        now = self._streams.clock.now()
        if self._has_length or now - self._checked_at < LOOK_AGAIN:
            return False
        self._checked_at = now
        return self.caller is not None and not self._streams.tokens.holds(self.caller)

    async def _finish_and_raise(self) -> None:
        await self.finish()
        raise AnswerEnded

    async def _raise_ended(self) -> None:
        raise AnswerEnded
