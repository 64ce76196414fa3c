"""One request and its answer, as the gate lets them through: what is sent, to whom, and when it must end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from projections.api.access.tokens import LOOK_AGAIN

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

    from events.clock import Clock
    from projections.api.access.tokens import Tokens
    from projections.api.access.who import Who


class Ended(OSError):
    """The answer was ended while the application still had something to say; to it, the client has gone."""


class Exchange:
    """Stands between the server and the application for one request.

    Args:
        streams: where it puts itself while its answer goes on without a length told beforehand.
    """

    def __init__(self, receive: Receive, send: Send, tokens: Tokens, clock: Clock, streams: set[Exchange]) -> None:
        self.began_at = clock.now()
        self.who: Who | None = None
        self.extra: tuple[tuple[bytes, bytes], ...] = ()
        """Headers to add to the answer."""
        self.status = 0
        """0: no answer has begun."""
        self.complete = False
        self.task = asyncio.current_task()
        self._receive = receive
        self._send = send
        self._tokens = tokens
        self._clock = clock
        self._streams = streams
        self._measured = False
        self._checked_at = self.began_at
        self._body: bytes | None = None

    def has_read(self, body: bytes) -> None:
        """The body was read already; the application gets this."""
        self._body = body

    async def receive(self) -> Message:
        """What the application is told."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    async def send(self, message: Message) -> None:
        """What the application says.

        Raises:
            Ended: it was ended, or its caller may hear no more: the token was revoked while it went on.
        """
        if self.complete:
            raise Ended
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.get("headers", ())
            self._measured = any(name == b"content-length" for name, _ in headers)
            if self.extra:
                message = {**message, "headers": [*headers, *self.extra]}
        elif not message.get("more_body", False):
            self._done()
        elif not self._measured:
            self._streams.add(self)
            now = self._clock.now()
            if now - self._checked_at >= LOOK_AGAIN:
                self._checked_at = now
                if self.who is not None and not self._tokens.holds(self.who):
                    await self.finish()
                    raise Ended
        await self._send(message)

    async def finish(self) -> None:
        """End here, in good form, an answer that has begun."""
        if self.status and not self.complete:
            self._done()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _done(self) -> None:
        self.complete = True
        self._streams.discard(self)
