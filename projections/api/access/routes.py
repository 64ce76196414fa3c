"""The routes of browser sessions, whose cookie no script can read, and of tokens, which administrators create."""

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from anyio import to_thread
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.live.journal import Journal
from steno.events.clock import SECOND
from steno.projections.api.access.authentication import Authentication, trusts_loopback
from steno.projections.api.access.limits import RateLimit
from steno.projections.api.bodies import fresh_answer, json_body, made_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import asked_of
from steno.projections.api.problems import MEDIA_TYPE, Problem, ProblemObject
from steno.projections.api.service import Service, Writer
from steno.projections.api.token_store import NAME, Issuer, Role, TokenObject, expiry, list_tokens
from steno.projections.api.tokens import Caller

_SPAN: Final = "^[1-9][0-9]{0,3}[mhdw]$"
LOGINS: Final = 30  # per token and minute: a closed session stays in the file for 12 h


class Login(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a login."""

    token: str


class CallerSession(msgspec.Struct, frozen=True, kw_only=True):
    """The caller."""

    name: str
    role: Literal["read", "submit", "admin"]
    via: Literal["token", "session", "loopback"]


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create."""

    role: Role
    name: (
        Annotated[str, Meta(pattern=f"^{NAME}$", description="What the record names; default: role, digits.")] | None
    ) = None
    expires: Annotated[str, Meta(pattern=_SPAN, description="`12h`, `30d`, `8w`; default: never.")] | None = None


class CreatedToken(TokenObject, frozen=True, kw_only=True):
    """A new token, with its text, which is shown this once."""

    token: str
    position: int


class RevokedToken(TokenObject, frozen=True, kw_only=True):
    """A token that is not accepted any more."""

    position: int | None  # of its event; null: it had been revoked before


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: tuple[TokenObject, ...]  # valid, expired and revoked, newest first


def routes(service: Service) -> list[BaseRoute]:
    return [*_routes_of_sessions(service), *_routes_of_tokens(service)]


def _routes_of_sessions(service: Service) -> list[BaseRoute]:
    tokens, rate = service.tokens, RateLimit(LOGINS, 60 * SECOND)
    authentication = Authentication(tokens, on_loopback=trusts_loopback(service.settings))

    async def who_am_i(request: Request) -> Response:
        return _answer(authentication.caller(request.scope, dict(request.headers.raw)))

    async def log_in(request: Request) -> Response:
        try:
            login = msgspec.json.decode(await request.body(), type=Login)
        except msgspec.DecodeError as error:
            raise Problem(400, f'send {{"token": "steno_…"}} as JSON: {error}', field="token") from None
        caller = authentication.bearer(login.token, "token")
        rate.expect(caller, service.clock.now(), f"logged in {LOGINS} times in a minute")
        value, seconds = await to_thread.run_sync(tokens.opened, caller)
        answer = _answer(caller)
        _set_cookie(request, answer, tokens.cookie, value, seconds)
        return answer

    async def log_out(request: Request) -> Response:
        cookie = authentication.cookie(dict(request.headers.raw))
        answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
        if cookie is not None:
            await to_thread.run_sync(tokens.close, cookie)
            _set_cookie(request, answer, tokens.cookie, "", 0)
        return answer

    return routed(_SESSIONS, who_am_i, log_in, log_out)


def _routes_of_tokens(service: Service) -> list[BaseRoute]:
    writer = Writer(service)

    def issuer(journal: Journal) -> Issuer:
        return Issuer(journal.record, service.clock, service.ids)

    def by(request: Request) -> str:
        return str(request.scope["steno.caller"].name)

    async def listed(request: Request) -> Response:
        asked_of(request, ())
        tokens = await to_thread.run_sync(list_tokens, service.store, service.clock.now())
        return fresh_answer(TokenList(tokens=tokens))

    async def create(request: Request) -> Response:
        asked_of(request, ())
        body, who = await json_body(request, TokenBody), by(request)
        try:
            until = None if body.expires is None else expiry(body.expires, service.clock.now())
        except ValueError as error:
            raise Problem(422, str(error), field="expires") from None
        try:
            made, text, position = await writer.do(
                lambda journal: issuer(journal).create(role=body.role, name=body.name, expires_at=until, by=who)
            )
        except ValueError as error:
            raise Problem(422, f"{body.name!r} cannot be a token's name: {error}", field="name") from None
        await to_thread.run_sync(partial(service.tokens.look, at_once=True))
        answer = CreatedToken(**msgspec.structs.asdict(made), token=text, position=position)
        return made_answer(answer, position, status=201)

    async def revoke(request: Request) -> Response:
        word, who = asked_of(request, ())["id"], by(request)
        token, position = await writer.do(lambda journal: issuer(journal).revoke(word, by=who))
        await to_thread.run_sync(partial(service.tokens.look, at_once=True))
        return fresh_answer(RevokedToken(**msgspec.structs.asdict(token), position=position))

    return routed(_TOKENS, listed, create, revoke)


def _answer(caller: Caller) -> Response:
    return fresh_answer(CallerSession(name=caller.name, role=caller.role.value, via=caller.via))


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie; behind a TLS proxy it is sent over TLS only."""
    tls = request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
    answer.set_cookie(name, value, max_age=seconds, path="/", secure=tls, httponly=True, samesite="strict")


_CALLER: Final = Reply("The caller.", CallerSession)
_UNKNOWN: Final = Reply("The token is unknown, revoked or expired.", ProblemObject, MEDIA_TYPE)
_TOO_OFTEN: Final = Reply("Too many logins; Retry-After says when to retry.", ProblemObject, MEDIA_TYPE)
_SESSIONS: Final = (
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
_TOKENS: Final = (
    Operation(
        "GET /api/tokens", "Every token ever created, without its text", "access", {200: Reply("Tokens.", TokenList)}
    ),
    Operation(
        "POST /api/tokens",
        "Create a token; its text is shown this once",
        "access",
        {201: Reply("The token.", CreatedToken)},
        name="createToken",
        body=TokenBody,
    ),
    Operation(
        "DELETE /api/tokens/{id}",
        "Revoke a token: it is refused from now on",
        "access",
        {200: Reply("It is revoked.", RevokedToken)},
        name="revokeToken",
    ),
)
OPERATIONS: Final = (*_SESSIONS, *_TOKENS)
