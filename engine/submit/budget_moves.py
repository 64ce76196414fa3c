"""A user's request to move a part of one owner's budget to another: checked, and recorded."""

from steno.engine.decide.limits import KINDS, budget_of
from steno.engine.errors import NotConfigured, RefusedByPolicy
from steno.engine.live.journal import Journal
from steno.engine.state.policy import Policy
from steno.engine.state.world import World
from steno.engine.wire import usd
from steno.events.budget_moves import BudgetMoved
from steno.events.store.record import Batch, Unless


def owner_named(text: str) -> str:
    """An owner as limits name it; ValueError: it is not one."""
    kind, slash, name = text.partition("/")
    if kind not in KINDS or not slash or not name:
        raise ValueError(f"{text} is not an owner: write user/NAME, project/NAME, gpu/MODEL or label/KEY=VALUE")
    return f"gpu/{name.upper()}" if kind == "gpu" else text


def move_budget(journal: Journal, move: BudgetMoved, state: World, policy: Policy) -> int:
    """Record the move, unless another came since this state of the world; its position.

    Raises:
        NotConfigured: one of the two has no budget.
        RefusedByPolicy: it is more than the giver's whole budget.
        VersionConflict: another move was recorded meanwhile; nothing was done.
    """
    budgets = {limit.owner: budget_of(limit, state) for limit in policy.limits}
    for owner in (move.from_owner, move.to_owner):
        if budgets.get(owner) is None:
            kind, _, name = owner.partition("/")
            table = f'[limits.{kind}."{name}"]'
            raise NotConfigured(f"{owner} has no budget in force: set `budget` under {table} and restart `steno up`")
    if (whole := budgets[move.from_owner] or 0) < move.amount:
        raise RefusedByPolicy(f"{move.from_owner} has a budget of {usd(whole)}, so {usd(move.amount)} cannot be moved")
    unless = Unless(frozenset({"BudgetMoved"}), state.position)
    return journal.append(Batch(stream="budget", events=(move,)), unless=unless)[-1]
