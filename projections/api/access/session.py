"""Browser sessions: a login with a token sets a cookie that scripts cannot read."""

from typing import Final, Literal

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from events.clock import SECOND
from projections.api.access.authentication import Authentication, trusts_loopback
from projections.api.access.limits import RateLimit
from projections.api.bodies import JSON
from projections.api.openapi import Operation, Reply, routed
from projections.api.problems import MEDIA_TYPE, Problem, ProblemObject
from projections.api.roles import Caller
from projections.api.service import Service

LOGINS: Final = 30  # per token and minute: a closed session stays in the file for 12 h
_FRESH: Final = {"Cache-Control": "no-store"}


class Login(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a login."""

    token: str


class CallerSession(msgspec.Struct, frozen=True, kw_only=True):
    """The caller."""

    name: str
    role: Literal["read", "submit", "admin"]
    via: Literal["token", "session", "loopback"]


def routes(service: Service) -> list[BaseRoute]:
    tokens, rate = service.tokens, RateLimit(LOGINS, 60 * SECOND)
    authentication = Authentication(tokens, on_loopback=trusts_loopback(service.settings))

    async def who_am_i(request: Request) -> Response:
        return _answer(authentication.caller(request.scope, dict(request.headers.raw), service.clock.now()))

    async def log_in(request: Request) -> Response:
        try:
            login = msgspec.json.decode(await request.body(), type=Login)
        except msgspec.DecodeError as error:
            raise Problem(400, f'send {{"token": "steno_…"}} as JSON: {error}', field="token") from None
        caller = authentication.bearer(login.token, "token")
        rate.expect(caller, service.clock.now(), f"logged in {LOGINS} times in a minute")
        value, seconds = await anyio.to_thread.run_sync(tokens.opened, caller)
        answer = _answer(caller)
        _set_cookie(request, answer, tokens.cookie, value, seconds)
        return answer

    async def log_out(request: Request) -> Response:
        cookie = authentication.cookie(dict(request.headers.raw))
        answer = Response(status_code=204, headers=_FRESH)
        if cookie is not None:
            await anyio.to_thread.run_sync(tokens.close, cookie)
            _set_cookie(request, answer, tokens.cookie, "", 0)
        return answer

    return routed(OPERATIONS, who_am_i, log_in, log_out)


def _answer(caller: Caller) -> Response:
    session = CallerSession(name=caller.name, role=caller.role.value, via=caller.via)
    return Response(msgspec.json.encode(session), media_type=JSON, headers=_FRESH)


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie; behind a TLS proxy it is sent over TLS only."""
    tls = request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
    answer.set_cookie(name, value, max_age=seconds, path="/", secure=tls, httponly=True, samesite="strict")


_CALLER: Final = Reply("The caller.", CallerSession)
_UNKNOWN: Final = Reply("The token is unknown, revoked or expired.", ProblemObject, MEDIA_TYPE)
_TOO_OFTEN: Final = Reply("Too many logins; Retry-After says when to retry.", ProblemObject, MEDIA_TYPE)
OPERATIONS: Final = (
    Operation(
        "GET /api/session",
        "The caller: by token, by session, or as a program on this machine",
        "access",
        {200: _CALLER, 401: Reply("No valid token or session.", ProblemObject, MEDIA_TYPE)},
        name="get_session",
    ),
    Operation(
        "POST /api/session",
        "Log a browser in; the answer sets a cookie that no script can read",
        "access",
        {200: _CALLER, 401: _UNKNOWN, 429: _TOO_OFTEN},
        name="log_in",
        body=Login,
    ),
    Operation(
        "DELETE /api/session",
        "End the browser's session",
        "access",
        {204: Reply("Ended, or there was none.")},
        name="log_out",
    ),
)
