"""Browser sessions: log in once with a token; a cookie that no script can read stands for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import anyio.to_thread
import msgspec
from starlette.responses import Response
from starlette.routing import Route

from events.clock import SECOND
from projections.api.access.authentication import Authentication, trusts_loopback
from projections.api.access.limits import RateLimit
from projections.api.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from projections.api.access.roles import Caller
    from projections.api.service import Service

PATH: Final = "/api/session"
LOGINS: Final = 30
"""Logins of one token a minute: each closed session stays in the tokens file for half a day."""


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
        peer = request.client.host if request.client is not None else None
        return _answer(authentication.caller(_headers(request), peer, service.clock.now()))

    async def log_in(request: Request) -> Response:
        try:
            login = msgspec.json.decode(await request.body(), type=Login)
        except msgspec.DecodeError as error:
            raise Problem(400, f'send {{"token": "steno_…"}} as JSON: {error}', field="token") from None
        caller = tokens.bearer(login.token)
        if caller is None:
            raise Problem(
                401,
                "this token is unknown, revoked or expired; create one with `steno token create`",
                field="token",
                headers=(("WWW-Authenticate", 'Bearer realm="steno", error="invalid_token"'),),
            )
        rate.expect(caller, service.clock.now(), f"logged in {LOGINS} times in a minute")
        value, seconds = await anyio.to_thread.run_sync(tokens.opened, caller)
        answer = _answer(caller)
        _set_cookie(request, answer, tokens.cookie, value, seconds)
        return answer

    async def log_out(request: Request) -> Response:
        cookie = authentication.cookie(_headers(request))
        answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
        if cookie is not None:
            await anyio.to_thread.run_sync(tokens.close, cookie)
            _set_cookie(request, answer, tokens.cookie, "", 0)
        return answer

    return [
        Route(PATH, who_am_i, methods=["GET"]),
        Route(PATH, log_in, methods=["POST"]),
        Route(PATH, log_out, methods=["DELETE"]),
    ]


def _answer(caller: Caller) -> Response:
    session = CallerSession(name=caller.name, role=caller.role.value, via=caller.via)
    return Response(msgspec.json.encode(session), media_type="application/json", headers={"Cache-Control": "no-store"})


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Behind a proxy with TLS the cookie is sent over TLS only."""
    tls = request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
    answer.set_cookie(name, value, max_age=seconds, path="/", secure=tls, httponly=True, samesite="strict")


def _headers(request: Request) -> dict[bytes, bytes]:
    return dict(request.headers.raw)


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemObject"}
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


_MALFORMED: Final = _problem("The request is malformed.")
_SESSION: Final = {
    "description": "The caller.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/CallerSession"}}},
}
_COMPONENTS: Final = msgspec.json.schema_components((Login, CallerSession), ref_template="#/components/schemas/{name}")[
    1
]

OPENAPI: Final[dict[str, Any]] = {
    "paths": {
        PATH: {
            "get": {
                "operationId": "get_session",
                "summary": "The caller: by token, by session, or as a program on this machine",
                "tags": ["access"],
                "responses": {
                    "200": _SESSION,
                    "400": _MALFORMED,
                    "401": _problem("No valid token or session."),
                },
            },
            "post": {
                "operationId": "log_in",
                "summary": "Log a browser in; the answer sets a cookie that no script can read",
                "tags": ["access"],
                "security": [],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Login"}}},
                },
                "responses": {
                    "200": _SESSION,
                    "400": _MALFORMED,
                    "401": _problem("The token is unknown, revoked or expired."),
                    "429": _problem("Too many logins; Retry-After says when to retry."),
                },
            },
            "delete": {
                "operationId": "log_out",
                "summary": "End the browser's session",
                "tags": ["access"],
                "security": [],
                "responses": {
                    "204": {"description": "Ended, or there was none."},
                    "400": _MALFORMED,
                },
            },
        }
    },
    "components": {"schemas": _COMPONENTS},
}
