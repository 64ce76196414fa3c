"""The gate: every request passes it first, and reaches the application only as one that may be answered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from engine.settings.values import origins, submit_rate
from events.clock import SECOND
from projections.api.access.access_log import AccessLog
from projections.api.access.body import MAX_BODY, MAX_UNKNOWN, read_body
from projections.api.access.cross_origin import CrossOrigin
from projections.api.access.door import Door
from projections.api.access.exchange import Ended, Exchange, Hall
from projections.api.access.hosts import trusts_loopback
from projections.api.access.limits import check_head, check_method
from projections.api.access.rate import Rate
from projections.api.access.roles import asks_for_a_run, needed
from projections.api.access.token_file import without_secrets
from projections.api.access.who import Role
from projections.api.problems import MEDIA_TYPE, Problem, problem_body, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from projections.api.access.who import Who
    from projections.api.hot import Ready
    from projections.api.service import Service

LAST_WORDS: Final = 1.0
"""Seconds that streams have to end by themselves once the server stops."""
_TOO_LITTLE: Final = 'Bearer realm="steno", error="insufficient_scope"'
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger("steno.access")


def in_front(service: Service, app: ASGIApp, ready: Callable[[str], Ready | None]) -> Gate:
    """The gate of a service, in front of its application."""
    return Gate(service, app, ready)


class Gate:
    """Checks a request in this order: its form, who asks, what that one may, how often, its body; then hands it on.

    The application finds who asks in the scope, under `steno.who`; on a path that is open to all it finds nobody.

    Args:
        ready: the answer to a path, if it is there already, for whoever may read.
    """

    def __init__(self, service: Service, app: ASGIApp, ready: Callable[[str], Ready | None]) -> None:
        settings = service.settings
        rate = submit_rate(settings.value("api.submit_rate") or "off")
        self.log = AccessLog(service.clock)
        self._app = app
        self._ready = ready
        self._clock = service.clock
        self._requests = service.feed.meters.requests
        self._door = Door(service.tokens, on_loopback=trusts_loopback(settings))
        self._pages = CrossOrigin(origins(settings.value("api.cors") or "off"))
        self._rate = None if rate is None else Rate(*rate)
        self._hall = Hall(service.tokens, service.clock)
        self._streams = self._hall.streams
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._at_once(scope):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # each time it would be a call of the system
        task = asyncio.current_task(loop)
        exchange = Exchange(receive, send, self._hall, self._clock.now(), task)
        try:
            headers = check_head(scope)
            if scope["method"] != "GET" or self._pages.listed:
                await self._pass(scope, headers, exchange)
            else:
                self._admit(scope, headers, exchange)
                await self._app(scope, exchange.receive, exchange.send)
            if self._closing:
                await exchange.finish()
        except Problem as problem:
            await _refuse(exchange, problem)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            await exchange.finish()
            await _refuse(
                exchange, Problem(503, "this service is stopping: ask again", headers=(("Retry-After", "5"),))
            )
        except Ended:
            pass
        except Exception as error:  # noqa: BLE001 - the last resort of every request
            if not exchange.complete:
                path = without_secrets(scope["path"])
                _log.error("%s %s: %s: %s", scope["method"], path, type(error).__name__, without_secrets(str(error)))
                await _refuse(exchange, problem_of(error))
        finally:
            if self._streams:
                self._streams.discard(exchange)
            self._tell(scope, exchange.status, exchange.who, exchange.began_at)

    def close(self) -> None:
        """The server stops: streams that do not end by themselves are ended, in good form; call it in the loop."""
        self._closing = True
        asyncio.get_running_loop().call_later(LAST_WORDS, self._cut)

    def _cut(self) -> None:
        for exchange in tuple(self._streams):
            if exchange.task is not None:
                exchange.task.cancel()

    def _at_once(self, scope: Scope) -> bool:
        """Answer a plain GET whose answer is ready in one piece; False: it goes the long way, which says what is wrong.

        It passes what others pass: the form of its head, and who asks; whoever is let in may read.
        """
        whole = scope.pop("steno.whole", None)  # left there, the request would hold on to itself
        if whole is None or scope["method"] != "GET" or scope["query_string"] or self._pages.listed or self._closing:
            return False
        began_at = self._clock.now()
        peer = None if scope["client"] is None else scope["client"][0]
        try:
            ready = self._ready(scope["path"])
            if ready is None:
                return False
            headers = check_head(scope)
            who = self._who(headers, peer, began_at)
        except Exception:  # noqa: BLE001 - a refusal or a mistake: the long way meets it too, and tells it
            return False
        status, head, body = 200, ready.head, ready.body
        if ready.is_had(headers.get(b"if-none-match")):
            status, head, body = 304, ready.head_unchanged, b""
        if not whole(status, head, body):
            return False
        self._tell(scope, status, who, began_at)
        return True

    def _tell(self, scope: Scope, status: int, who: Who | None, began_at: int) -> None:
        """Count one answer, and log it."""
        now = self._clock.now()
        self._requests.count(scope["method"], scope["path"], status, (now - began_at) / SECOND)
        self.log.answered(scope, status, who, now, now - began_at)

    async def _pass(self, scope: Scope, headers: Mapping[bytes, bytes], exchange: Exchange) -> None:
        """What is no plain GET."""
        method, path = scope["method"], scope["path"]
        check_method(method)
        exchange.extra = self._pages.answer(headers)
        preflight = self._pages.preflight(method, headers)
        if preflight is not None:
            await exchange.send({"type": "http.response.start", "status": 204, "headers": list(preflight)})
            await exchange.send({"type": "http.response.body", "body": b""})
            return
        self._admit(scope, headers, exchange)
        if method not in _WITHOUT_BODY:
            self._pages.check(method, headers)
            if exchange.who is not None and asks_for_a_run(method, path):
                self._limit(exchange.who)
            body = await read_body(headers, exchange.receive, MAX_UNKNOWN if exchange.who is None else MAX_BODY)
            if body is None:
                return
            exchange.has_read(body)
        await self._app(scope, exchange.receive, exchange.send)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes], exchange: Exchange) -> None:
        """Find out who asks, and look that this one may.

        Raises:
            Problem: it may not.
        """
        role = needed(scope["method"], scope["path"])
        if role is None:
            return
        client = scope["client"]
        peer, now = None if client is None else client[0], exchange.began_at
        who = self._who(headers, peer, now)
        exchange.who = scope["steno.who"] = who
        if role is not Role.READ and not who.role.covers(role):
            said = f"{scope['method']} {scope['path']} needs a token of the role {role}; this one's is {who.role}"
            raise Problem(403, said, headers=(("WWW-Authenticate", _TOO_LITTLE),))

    def _who(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Who:
        """Who asks.

        Raises:
            Problem: nobody we know, or a page of another site that makes a browser ask.
        """
        who = self._door.at_once(headers, peer, now) or self._door.who(headers, peer, now)
        if who.via != "token" and (b"sec-fetch-site" in headers or b"origin" in headers):
            self._pages.check_read(headers)
        return who

    def _limit(self, who: Who) -> None:
        wait = 0 if self._rate is None else self._rate.take(who.token_id or who.name, self._clock.now())
        if wait and self._rate is not None:
            seconds = -(-wait // SECOND)
            raise Problem(
                429,
                f"{who.name} may ask for {self._rate.most} runs in {self._rate.span // SECOND} s (api.submit_rate); "
                f"again in {seconds} s",
                headers=(("Retry-After", str(seconds)),),
            )


async def _refuse(exchange: Exchange, problem: Problem) -> None:
    """Answer with a problem; where an answer has begun there is no place for one, and the connection is cut."""
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
