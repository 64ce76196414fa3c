"""One request and its answer, as the gate lets them through: what is sent, to whom, and when it must end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.api.access.tokens import LOOK_AGAIN

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from starlette.types import Message, Receive, Send

    from events.clock import Clock
    from projections.api.access.tokens import Tokens
    from projections.api.access.who import Who


class Ended(OSError):
    """The answer was ended while the application still had something to say; to it, the client has gone."""


class Hall:
    """What all exchanges of a service have in common."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self.tokens = tokens
        self.clock = clock
        self.streams: set[Exchange] = set()
        """Those whose answers go on without a length told beforehand."""


class Exchange:
    """Stands between the server and the application for one request.

    All requests but those answered at once have one, so what most of them never use is set on the class.

    Args:
        began_at: when the request came (microseconds, UTC).
        task: what answers it.
    """

    who: Who | None = None
    status = 0
    """0: no answer has begun."""
    complete = False
    extra: tuple[tuple[bytes, bytes], ...] = ()
    """Headers to add to the answer."""
    _body: bytes | None = None
    _checked_at = 0
    _measured: bool | None = None
    """Whether the answer's length was told beforehand; None: nobody has asked yet."""
    _headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self, receive: Receive, send: Send, hall: Hall, began_at: int, task: asyncio.Task[object] | None
    ) -> None:
        self.began_at = began_at
        self.task = task
        self._receive = receive
        self._send = send
        self._hall = hall

    def has_read(self, body: bytes) -> None:
        """The body was read already; the application gets this."""
        self._body = body

    async def receive(self) -> Message:
        """What the application is told."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    def send(self, message: Message) -> Awaitable[None]:
        """What the application says; awaiting it raises `Ended` where its caller may hear no more."""
        if self.complete:
            return self._too_late()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = message.get("headers", ())
            if self.extra:
                message = {**message, "headers": [*self._headers, *self.extra]}
        elif not message.get("more_body"):
            self.complete = True
            if self._measured is not None:
                self._hall.streams.discard(self)
        elif self._goes_on():
            return self._last()
        return self._send(message)

    async def finish(self) -> None:
        """End here, in good form, an answer that has begun."""
        if self.status and not self.complete:
            self.complete = True
            self._hall.streams.discard(self)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _goes_on(self) -> bool:
        """Whether a stream must end now: the token behind it was revoked while it went on."""
        if self._measured is None:
            self._measured = any(name.lower() == b"content-length" for name, _ in self._headers)
            if not self._measured:
                self._hall.streams.add(self)
        now = self._hall.clock.now()
        if self._measured or now - self._checked_at < LOOK_AGAIN:
            return False
        self._checked_at = now
        return self.who is not None and not self._hall.tokens.holds(self.who)

    async def _last(self) -> None:
        await self.finish()
        raise Ended

    async def _too_late(self) -> None:
        raise Ended
