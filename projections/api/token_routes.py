"""The routes of tokens, for administrators: listed, created, revoked."""

from typing import Annotated, Final

import msgspec
from anyio import to_thread
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.commands.tokens import Issuer, Role, TokenObject, expiry, list_tokens
from engine.live.journal import Journal
from projections.api.bodies import JSON, json_body, made_answer
from projections.api.openapi import Operation, Reply, routed
from projections.api.parameters import asked_of
from projections.api.problems import Problem
from projections.api.service import Service, Writer

_NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._@-]{0,39}$"
_SPAN: Final = "^[1-9][0-9]{0,3}[mhdw]$"


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create."""

    role: Role
    name: Annotated[str, Meta(pattern=_NAME, description="What the record names; default: role, digits.")] | None = None
    expires: Annotated[str, Meta(pattern=_SPAN, description="`12h`, `30d`, `8w`; default: never.")] | None = None


class CreatedToken(TokenObject, frozen=True, kw_only=True):
    """A new token, with its text, which is shown this once."""

    token: str
    position: int


class RevokedToken(TokenObject, frozen=True, kw_only=True):
    """A token that is not accepted any more."""

    position: int | None  # of its event; null: it had been revoked before


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: tuple[TokenObject, ...]  # valid, expired and revoked ones, newest first


def routes(service: Service) -> list[BaseRoute]:
    writer = Writer(service)

    def issuer(journal: Journal) -> Issuer:
        return Issuer(journal.record, service.clock, service.ids)

    def by(request: Request) -> str:
        return str(request.scope["steno.caller"].name)

    async def listed(request: Request) -> Response:
        asked_of(request, ())
        found = await to_thread.run_sync(list_tokens, service.store, service.clock.now())
        body = msgspec.json.encode(TokenList(tokens=found))
        return Response(body, media_type=JSON, headers={"Cache-Control": "no-store"})

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
        await to_thread.run_sync(service.tokens.reload)
        answer = CreatedToken(**msgspec.structs.asdict(made), token=text, position=position)
        return made_answer(answer, position, status=201)

    async def revoke(request: Request) -> Response:
        word, who = asked_of(request, ())["id"], by(request)
        found, position = await writer.do(lambda journal: issuer(journal).revoke(word, by=who))
        await to_thread.run_sync(service.tokens.reload)
        answer = RevokedToken(**msgspec.structs.asdict(found), position=position)
        return Response(msgspec.json.encode(answer), media_type=JSON, headers={"Cache-Control": "no-store"})

    return routed(OPERATIONS, listed, create, revoke)


OPERATIONS: Final = (
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
