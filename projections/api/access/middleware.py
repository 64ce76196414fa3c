"""The outermost ASGI layer: authentication, authorization, limits, CORS and the access log of every request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from engine.commands.tokens import Role, without_secrets
from engine.settings.values import origins, submit_rate
from events.clock import SECOND
from projections.api.access.access_log import AccessLog
from projections.api.access.authentication import Authentication
from projections.api.access.cross_origin import CrossOrigin
from projections.api.access.exchange import AnswerEnded, Exchange, OpenStreams
from projections.api.access.hosts import trusts_loopback
from projections.api.access.limits import MAX_BODY, MAX_LOGIN, RateLimit, check_head, check_method, read_body
from projections.api.access.roles import needed, submits_a_run
from projections.api.problems import MEDIA_TYPE, Problem, problem_body, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from projections.api.access.roles import Caller
    from projections.api.hot import Ready
    from projections.api.service import Service

STREAM_GRACE: Final = 1.0
"""Seconds that streams have to end by themselves once the server stops."""
_INSUFFICIENT: Final = 'Bearer realm="steno", error="insufficient_scope"'
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger("steno.access")


class AccessMiddleware:
    """Checks a request in this order: its form, its caller, the caller's role, its rate, its body; then passes it on.

    The application finds the caller in the scope as `steno.caller`; it is missing on paths open to all.

    Args:
        ready: the stored answer to a path, if there is one, for any caller that may read.
    """

    def __init__(self, service: Service, app: ASGIApp, ready: Callable[[str], Ready | None]) -> None:
        settings = service.settings
        rate = submit_rate(settings.value("api.submit_rate") or "off")
        self.log = AccessLog(service.clock)
        self._app = app
        self._ready = ready
        self._clock = service.clock
        self._requests = service.feed.meters.requests
        self._authentication = Authentication(service.tokens, on_loopback=trusts_loopback(settings))
        self._cross_origin = CrossOrigin(origins(settings.value("api.cors") or "off"))
        self._rate = None if rate is None else RateLimit(*rate)
        self._streams = OpenStreams(service.tokens, service.clock)
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; pass on other ASGI scopes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._answer_at_once(scope):
            await self._answer(scope, receive, send)

    def close(self) -> None:
        """The server stops: end streams that do not end by themselves, in good form; called in the loop."""
        self._closing = True
        asyncio.get_running_loop().call_later(STREAM_GRACE, self._cancel_streams)

    def _cancel_streams(self) -> None:
        for exchange in tuple(self._streams.open):
            if exchange.task is not None:
                exchange.task.cancel()

    def _answer_at_once(self, scope: Scope) -> bool:
        """Answer a plain GET whose answer is stored, in one piece; False: it needs the full path, errors included.

        It passes the same checks: the form of its head, and its caller, who may read.
        """
        whole = scope.pop("steno.whole", None)  # left in the scope it would be a reference cycle
        if (
            whole is None
            or scope["method"] != "GET"
            or scope["query_string"]
            or self._cross_origin.listed
            or self._closing
        ):
            return False
        began_at = self._clock.now()
        peer = None if scope["client"] is None else scope["client"][0]
        try:
            ready = self._ready(scope["path"])
            if ready is None:
                return False
            headers = check_head(scope)
            caller = self._caller(headers, peer, began_at)
        except Exception:  # noqa: BLE001 - the full path meets the same error and answers it
            return False
        status, head, body = 200, ready.head, ready.body
        if ready.matches(headers.get(b"if-none-match")):
            status, head, body = 304, ready.head_unchanged, b""
        if not whole(status, head, body):
            return False
        self._count(scope, status, caller, began_at)
        return True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # each call is a system call
        exchange = Exchange(receive, send, self._streams, self._clock.now(), asyncio.current_task(loop))
        try:
            headers = check_head(scope)
            if scope["method"] != "GET" or self._cross_origin.listed:
                await self._check_and_pass(scope, headers, exchange)
            else:
                self._authorize(scope, headers, exchange)
                await self._app(scope, exchange.receive, exchange.send)
            if self._closing:
                await exchange.finish()
        except Problem as problem:
            await _refuse(exchange, problem)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            await exchange.finish()
            await _refuse(exchange, Problem(503, "the service is stopping: retry", headers=(("Retry-After", "5"),)))
        except AnswerEnded:
            pass
        except Exception as error:  # noqa: BLE001 - the last resort of every request
            if not exchange.complete:
                path = without_secrets(scope["path"])
                _log.error("%s %s: %s: %s", scope["method"], path, type(error).__name__, without_secrets(str(error)))
                await _refuse(exchange, problem_of(error))
        finally:
            self._streams.open.discard(exchange)
            self._count(scope, exchange.status, exchange.caller, exchange.began_at)

    def _count(self, scope: Scope, status: int, caller: Caller | None, began_at: int) -> None:
        """Count one answer, and log it."""
        now = self._clock.now()
        self._requests.count(scope["method"], scope["path"], status, (now - began_at) / SECOND)
        self.log.answered(scope, status, caller, now, now - began_at)

    async def _check_and_pass(self, scope: Scope, headers: Mapping[bytes, bytes], exchange: Exchange) -> None:
        """The checks of a request that is not a plain GET."""
        method, path = scope["method"], scope["path"]
        check_method(method)
        exchange.extra = self._cross_origin.answer(headers)
        preflight = self._cross_origin.preflight(method, headers)
        if preflight is not None:
            await exchange.send({"type": "http.response.start", "status": 204, "headers": list(preflight)})
            await exchange.send({"type": "http.response.body", "body": b""})
            return
        self._authorize(scope, headers, exchange)
        if method not in _WITHOUT_BODY:
            self._cross_origin.check(method, headers)
            if exchange.caller is not None and submits_a_run(method, path):
                self._limit_rate(exchange.caller)
            body = await read_body(headers, exchange.receive, MAX_LOGIN if exchange.caller is None else MAX_BODY)
            if body is None:
                return
            exchange.has_read(body)
        await self._app(scope, exchange.receive, exchange.send)

    def _authorize(self, scope: Scope, headers: Mapping[bytes, bytes], exchange: Exchange) -> None:
        """Find the caller, and check its role.

        Raises:
            Problem: 401, no caller; 403, its role does not allow the request.
        """
        role = needed(scope["method"], scope["path"])
        if role is None:
            return
        client = scope["client"]
        caller = self._caller(headers, None if client is None else client[0], exchange.began_at)
        exchange.caller = scope["steno.caller"] = caller
        if role is not Role.READ and not caller.role.covers(role):
            detail = f"{scope['method']} {scope['path']} needs a token with the role {role}; this one has {caller.role}"
            raise Problem(403, detail, headers=(("WWW-Authenticate", _INSUFFICIENT),))

    def _caller(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Caller:
        """The caller.

        Raises:
            Problem: 401, unknown; 403, a page of another site sent it with rights that the browser adds.
        """
        authentication = self._authentication
        caller = authentication.local_caller(headers, peer, now) or authentication.caller(headers, peer, now)
        if caller.via != "token" and (b"sec-fetch-site" in headers or b"origin" in headers):
            self._cross_origin.check_read(headers)
        return caller

    def _limit_rate(self, caller: Caller) -> None:
        wait = 0 if self._rate is None else self._rate.take(caller.token_id or caller.name, self._clock.now())
        if wait and self._rate is not None:
            seconds = -(-wait // SECOND)
            raise Problem(
                429,
                f"{caller.name} may submit {self._rate.most} runs in {self._rate.span // SECOND} s (api.submit_rate); "
                f"retry in {seconds} s",
                headers=(("Retry-After", str(seconds)),),
            )


async def _refuse(exchange: Exchange, problem: Problem) -> None:
    """Answer with a problem; once an answer has begun it cannot, and the connection is cut."""
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
