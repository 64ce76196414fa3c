"""The outermost ASGI layer: authentication, authorization, limits, CORS and the access log of every request."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from steno.events.clock import SECOND
from steno.projections.api.access.access_log import AccessLog
from steno.projections.api.access.authentication import (
    Authentication,
    CrossOrigin,
    needed,
    submits_a_run,
    trusts_loopback,
)
from steno.projections.api.access.limits import MAX_BODY, MAX_LOGIN, METHODS, RateLimit, check_head, read_body
from steno.projections.api.problems import MEDIA_TYPE, Problem, Routes, problem_body, problem_of
from steno.projections.api.service import Service
from steno.projections.api.token_store import without_secrets
from steno.projections.api.tokens import LOOK_AGAIN, Caller

STREAM_GRACE: Final = 1.0  # seconds that streams have to end by themselves once the server stops
_INSUFFICIENT: Final = 'Bearer realm="steno", error="insufficient_scope"'
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger("steno.access")


class AnswerEnded(OSError):
    """The answer was ended while the application still had something to send; to it, the client has disconnected."""


class HttpExchange:
    """A request and its answer; ends a stream whose token was revoked. `began_at`: when the request came
    (microseconds UTC). Fields that most requests never set are class attributes: they cost nothing per request.
    """

    caller: Caller | None = None
    status = 0  # 0: no answer has begun
    complete = False
    extra: tuple[tuple[bytes, bytes], ...] = ()  # headers to add to the answer
    body: bytes | None = None  # set if read before the application asks for it
    _checked_at = 0
    _is_stream: bool | None = None  # whether the answer has no Content-Length; None: not known yet
    _headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, gate: "AccessMiddleware", receive: Receive, send: Send, began_at: int) -> None:
        self.began_at = began_at
        self._gate = gate
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message on; raises `AnswerEnded` if the answer is complete or its token was revoked."""
        if self.complete:
            raise AnswerEnded
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = message.get("headers", ())
            if self.extra:
                message = {**message, "headers": [*self._headers, *self.extra]}
        elif not message.get("more_body"):
            self.complete = True
            self._gate.streams.pop(self, None)
        elif self._is_revoked():
            return self._revoke()
        return self._send(message)

    async def finish(self) -> None:
        """Complete an answer that has begun."""
        if self.status and not self.complete:
            self.complete = True
            self._gate.streams.pop(self, None)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _is_revoked(self) -> bool:
        """True if a stream's token was revoked; checked every `LOOK_AGAIN`."""
        if self._is_stream is None:
            self._is_stream = all(name.lower() != b"content-length" for name, _ in self._headers)
            task = asyncio.current_task()
            if self._is_stream and task is not None:
                self._gate.streams[self] = task
        now = self._gate.clock.now()
        if not self._is_stream or 0 <= now - self._checked_at < LOOK_AGAIN:
            return False
        self._checked_at = now
        return self.caller is not None and not self._gate.tokens.holds(self.caller)

    async def _revoke(self) -> None:
        await self.finish()
        raise AnswerEnded


class AccessMiddleware:
    """Checks form, caller, role, body and rate of a request, in this order, then passes it on with the caller in the
    scope as `steno.caller` (missing on open paths).
    """

    def __init__(self, service: Service, app: Routes) -> None:
        settings = service.settings
        rate = settings.parsed("api.submit_rate")
        self.log = AccessLog()
        self.clock = service.clock
        self.tokens = service.tokens
        self.streams: dict[HttpExchange, asyncio.Task[Any]] = {}  # streams → the tasks that send them
        self._app = app
        self._route_of = lru_cache(maxsize=4096)(app.name_of)
        self._feed = service.feed
        self._tally = service.feed.tally
        self._authentication = Authentication(service.tokens, on_loopback=trusts_loopback(settings))
        self._cross_origin = CrossOrigin(settings.parsed("api.cors") or ())
        self._rate = None if rate is None else RateLimit(*rate)
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    def close(self) -> None:
        """On shutdown, complete endless streams; called in the loop."""
        self._closing = True
        asyncio.get_running_loop().call_later(STREAM_GRACE, self._cancel_streams)

    def _cancel_streams(self) -> None:
        for task in tuple(self.streams.values()):
            task.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = HttpExchange(self, receive, send, self.clock.now())
        try:
            headers = check_head(scope)
            await self._check_and_pass(scope, headers, exchange)
            if self._closing:
                await exchange.finish()
        except asyncio.CancelledError:
            if not self._closing:
                raise
            await exchange.finish()
            await _refuse(exchange, Problem(503, "the service is stopping: retry", headers=(("Retry-After", "5"),)))
        except AnswerEnded:
            pass
        except Exception as error:  # noqa: BLE001 - whatever a route raises
            if problem_of(error).status == 500:
                path = without_secrets(scope["path"])
                _log.error("%s %s: %s: %s", scope["method"], path, type(error).__name__, without_secrets(str(error)))
            await _refuse(exchange, problem_of(error))  # a name for it would be a reference cycle
        finally:
            self.streams.pop(exchange, None)
            self._count(scope, exchange.status, exchange.caller, exchange.began_at)

    def _count(self, scope: Scope, status: int, caller: Caller | None, began_at: int) -> None:
        now = self.clock.now()
        self._tally.request(scope["method"], self._route_of(scope["path"]), status, (now - began_at) / SECOND)
        self.log.answered(scope, status, caller, now, now - began_at)

    async def _check_and_pass(self, scope: Scope, headers: Mapping[bytes, bytes], exchange: HttpExchange) -> None:
        method, path = scope["method"], scope["path"]
        if method not in METHODS:
            allowed = (("Allow", "GET, HEAD, POST, DELETE"),)
            raise Problem(405, "this method is not supported on any path", headers=allowed)
        exchange.extra = self._cross_origin.answer(headers)
        preflight = self._cross_origin.preflight(method, headers)
        if preflight is not None:
            await exchange.send({"type": "http.response.start", "status": 204, "headers": list(preflight)})
            await exchange.send({"type": "http.response.body", "body": b""})
            return
        role = needed(method, path)
        if role is not None:
            if self._feed.replaced is not None and path != "/metrics":  # which goes on with what is left
                raise Problem(503, self._feed.replaced)
            caller = exchange.caller = scope["steno.caller"] = self._caller(scope, headers)
            if not caller.role.covers(role):
                detail = f"{method} {path} needs a token with the role {role}; this one has {caller.role}"
                raise Problem(403, detail, headers=(("WWW-Authenticate", _INSUFFICIENT),))
        if method not in _WITHOUT_BODY:
            self._cross_origin.check(headers)
            body = await read_body(headers, exchange.receive, MAX_LOGIN if exchange.caller is None else MAX_BODY)
            if body is None:
                return
            exchange.body = body
            if exchange.caller is not None and self._rate is not None and submits_a_run(method, path):
                may = f"may submit {self._rate.most} runs in {self._rate.span // SECOND} s (api.submit_rate)"
                self._rate.expect(exchange.caller, self.clock.now(), may)
        await self._app(scope, exchange.receive, exchange.send)

    def _caller(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller; raises `Problem`: 401 unknown; 403 another site's page used rights that the browser adds."""
        caller = self._authentication.caller(scope, headers)
        if caller.via != "token" and (b"sec-fetch-site" in headers or b"origin" in headers):
            self._cross_origin.check_read(headers)
        return caller


async def _refuse(exchange: HttpExchange, problem: Problem) -> None:
    """Answer with a problem; if the answer has begun, cut the connection."""
    if exchange.status:
        return
    body = problem_body(problem)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers),
    ]
    await exchange.send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": body})
