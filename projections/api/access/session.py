"""Browser sessions: log in once with a token; a cookie that no script can read stands for it."""

from typing import Any, Final, Literal

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from events.clock import SECOND
from projections.api.access.authentication import Authentication, trusts_loopback
from projections.api.access.limits import RateLimit
from projections.api.bodies import JSON
from projections.api.openapi import components, json_answer, json_content
from projections.api.problems import MEDIA_TYPE, Problem, ProblemObject
from projections.api.roles import Caller
from projections.api.service import Service

PATH: Final = "/api/session"
LOGINS: Final = 30
"""Logins of one token a minute: each closed session stays in the tokens file for half a day."""
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
    """`/api/session`: who am I (GET), log in (POST), log out (DELETE)."""
    tokens, rate = service.tokens, RateLimit(LOGINS, 60 * SECOND)
    authentication = Authentication(tokens, on_loopback=trusts_loopback(service.settings))

    async def who_am_i(request: Request) -> Response:
        peer = None if request.client is None else request.client.host
        return _answer(authentication.caller(_headers(request), peer, service.clock.now()))

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
        cookie = authentication.cookie(_headers(request))
        answer = Response(status_code=204, headers=_FRESH)
        if cookie is not None:
            await anyio.to_thread.run_sync(tokens.close, cookie)
            _set_cookie(request, answer, tokens.cookie, "", 0)
        return answer

    handlers = {"GET": who_am_i, "POST": log_in, "DELETE": log_out}
    return [Route(PATH, handler, methods=[method]) for method, handler in handlers.items()]


def _answer(caller: Caller) -> Response:
    session = CallerSession(name=caller.name, role=caller.role.value, via=caller.via)
    return Response(msgspec.json.encode(session), media_type=JSON, headers=_FRESH)


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Behind a proxy with TLS the cookie is sent over TLS only."""
    tls = request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
    answer.set_cookie(name, value, max_age=seconds, path="/", secure=tls, httponly=True, samesite="strict")


def _headers(request: Request) -> dict[bytes, bytes]:
    return dict(request.headers.raw)


def _operation(name: str, summary: str, answers: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "tags": ["access"], "responses": answers, **more}


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: json_content(ProblemObject)[JSON]}}


_CALLER: Final = json_answer("The caller.", CallerSession)
_NO_LOGIN: Final = {
    "401": _problem("The token is unknown, revoked or expired."),
    "429": _problem("Too many logins; Retry-After says when to retry."),
}
OPENAPI: Final[dict[str, Any]] = {
    "paths": {
        PATH: {
            "get": _operation(
                "get_session",
                "The caller: by token, by session, or as a program on this machine",
                {"200": _CALLER, "401": _problem("No valid token or session.")},
            ),
            "post": _operation(
                "log_in",
                "Log a browser in; the answer sets a cookie that no script can read",
                {"200": _CALLER, **_NO_LOGIN},
                requestBody={"required": True, "content": json_content(Login)},
            ),
            "delete": _operation(
                "log_out", "End the browser's session", {"204": {"description": "Ended, or there was none."}}
            ),
        }
    },
    "components": components(Login, CallerSession),
}
