"""A user's request to move a part of one owner's budget to another: checked, and recorded."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from steno.engine.decide.limits import KINDS, budget_of
from steno.engine.errors import NotConfigured, RefusedByPolicy
from steno.engine.live.journal import Journal
from steno.engine.settings.values import limit_usd
from steno.engine.state.gpu_name import model_of
from steno.engine.state.policy import Policy
from steno.engine.state.world import World
from steno.engine.wire import usd
from steno.events.budget_moves import BudgetMoved
from steno.events.errors import UnreadableInput, VersionConflict
from steno.events.store.record import Batch, Unless

Look = Callable[[], AbstractContextManager[tuple[World, Policy]]]
"""Enters the world at the head of the record, with the policy in force."""


def amount_moved(text: str) -> int:
    """Micro-dollars above 0; ValueError: it is not such an amount."""
    with suppress(ValueError):
        amount: int | None = limit_usd(text)
        if amount:
            return amount
    raise ValueError("the amount must be dollars above 0: 100, 99.50")


def owner_named(text: str) -> str:
    """An owner as limits name it; ValueError: it is not one."""
    kind, slash, name = text.partition("/")
    if kind not in KINDS or not slash or not name:
        raise ValueError(f"{text} is not an owner: write user/NAME, project/NAME, gpu/MODEL or label/KEY=VALUE")
    return f"gpu/{model_of(name)}" if kind == "gpu" else text


def move_budget(journal: Journal, move: BudgetMoved, look: Look) -> int:
    """Record the move; its position. If another move came first, it is checked again.

    Raises:
        UnreadableInput: it has no reason.
        NotConfigured: one of the two has no budget.
        RefusedByPolicy: it is more than the giver's whole budget.
    """
    if not move.why.strip():
        raise UnreadableInput("`why` is empty: say why")
    while True:
        with look() as (state, policy):
            _refuse(move, state, policy)
            unless = Unless(frozenset({"BudgetMoved"}), state.position)
        with suppress(VersionConflict):
            return journal.append(Batch(stream="budget", events=(move,)), unless=unless)[-1]


def _refuse(move: BudgetMoved, state: World, policy: Policy) -> None:
    budgets = {limit.owner: budget_of(limit, state) for limit in policy.limits}
    for owner in (move.from_owner, move.to_owner):
        if budgets.get(owner) is None:
            kind, _, name = owner.partition("/")
            table = f'[limits.{kind}."{name}"]'
            raise NotConfigured(f"{owner} has no budget in force: set `budget` under {table} and restart `steno up`")
    if (whole := budgets[move.from_owner] or 0) < move.amount:
        raise RefusedByPolicy(f"{move.from_owner} has a budget of {usd(whole)}, so {usd(move.amount)} cannot be moved")
