"""POST /api/budget/moves: a part of one owner's budget becomes another's."""

from functools import partial
from typing import Annotated, Final

import msgspec
from anyio import to_thread
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from steno.engine.errors import NotConfigured
from steno.engine.live.journal import Journal
from steno.engine.state.levers import LONGEST_WHY
from steno.engine.submit.budget_moves import amount_moved, move_budget, owner_named
from steno.engine.wire import Shape, wire
from steno.events.budget_moves import BudgetMoved
from steno.projections.answers.owners import OwnerStanding, owner_standings
from steno.projections.api.bodies import json_body, made_answer
from steno.projections.api.openapi import Operation, Reply, routed
from steno.projections.api.parameters import asked_of
from steno.projections.api.problems import Problem
from steno.projections.api.reads.money import policy_at
from steno.projections.api.service import Service, Writer

_DOLLARS: Final = {"pattern": "^([1-9][0-9]{0,6}([.][0-9]{1,6})?|0[.][0-9]{0,5}[1-9])$"}
_OWNER: Final = {"pattern": "^(user|project|gpu|label)/."}
_Owner = Annotated[
    str, Meta(max_length=200, description="As `user/alice`, of a limit in force.", extra_json_schema=_OWNER)
]


class BudgetMoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of whose budget becomes whose."""

    amount_usd: Annotated[str, Meta(max_length=30, description="As `99.50`.", extra_json_schema=_DOLLARS)]
    giver: _Owner
    receiver: _Owner
    why: Annotated[str, Meta(min_length=1, max_length=LONGEST_WHY, pattern=r"\S")]


class MovedBudget(Shape, frozen=True, kw_only=True):
    """Both owners after the move."""

    owners: tuple[OwnerStanding, ...]
    position: Annotated[int, Meta(ge=1)]


def routes(service: Service) -> list[BaseRoute]:
    writer = Writer(service)

    async def move(request: Request) -> Response:
        asked_of(request, ())
        wanted = _wanted(await json_body(request, BudgetMoveBody), request.scope["steno.caller"].name)
        newest = partial(service.newest, lambda look: policy_at(service, look.view.state))

        def record(journal: Journal) -> int:
            try:
                return move_budget(journal, wanted, newest)
            except NotConfigured as error:  # of the owner, not of the service
                raise Problem(409, str(error)) from None

        position = await writer.do(record)
        answer = MovedBudget(owners=await to_thread.run_sync(_owners, service, wanted), position=position)
        return made_answer(wire(answer), position, status=201)

    return routed(OPERATIONS, move)


def _wanted(body: BudgetMoveBody, by: str) -> BudgetMoved:
    """Raises `Problem` (422, 409) with the field that is wrong."""
    field, owners = "amount_usd", dict[str, str]()
    try:
        amount = amount_moved(body.amount_usd)
        for field in ("giver", "receiver"):
            owners[field] = owner_named(getattr(body, field))
    except ValueError as error:
        raise Problem(422, str(error), field=field) from None
    if owners["giver"] == owners["receiver"]:
        raise Problem(409, "giver and receiver are the same owner", field="receiver")
    return BudgetMoved(amount=amount, from_owner=owners["giver"], to_owner=owners["receiver"], why=body.why, by=by)


def _owners(service: Service, move: BudgetMoved) -> tuple[OwnerStanding, ...]:
    with service.pool.latest() as look:
        standings = owner_standings(look.view, policy_at(service, look.view.state), look.now)
        return tuple(each for each in standings if each.owner in (move.from_owner, move.to_owner))


OPERATIONS: Final = (
    Operation(
        "POST /api/budget/moves",
        "Move a part of an owner's budget to another owner",
        "money",
        {201: Reply("It is in force; both owners as they stand now.", MovedBudget)},
        name="moveBudget",
        body=BudgetMoveBody,
        description="What the giver has spent and committed stays; nothing that runs is stopped.",
    ),
)
