"""The public JSON objects of money: costs, reconciliations and the budget."""

from typing import Any

import msgspec

from engine.decide.budget import Account
from engine.fold.world_codec import WorldState
from engine.money.costs import Charge
from engine.policy import Policy
from engine.wire import Position, Shape, Time, Usd, wire


class ChargeObject(
    Shape,
    frozen=True,
    kw_only=True,
    rename={"since": "from", "until": "to", "cost": "cost_usd", "hourly": "price_usd_per_hour"},
):
    """One sum of a machine's bill that a run pays, and the price it follows from."""

    vm_id: str
    line: str
    since: Time
    until: Time
    cost: Usd
    hourly: Usd


class BudgetAlert(Shape, frozen=True, kw_only=True):
    """A threshold of the budget."""

    threshold: float
    reached: bool
    told_at_position: Position | None


class BudgetObject(Shape, frozen=True, kw_only=True):
    """The budget; null where there is none."""

    total_usd: Usd | None
    spent_usd: Usd
    committed_usd: Usd
    remaining_usd: Usd | None
    available_usd: Usd | None
    used_pct: float | None
    spent_24h_usd: Usd
    rate_now_usd_per_hour: Usd
    burn_rate_usd_per_hour: Usd
    exhausted_at: Time | None
    alerts: tuple[BudgetAlert, ...]


def charge_object(one: Charge) -> dict[str, Any]:
    """One sum of a machine's bill, and the price it follows from."""
    return wire(msgspec.convert(one, ChargeObject, from_attributes=True))


def budget_object(account: Account, state: WorldState, policy: Policy) -> BudgetObject:
    """Where the budget stands, and which alerts were given."""
    return BudgetObject(
        total_usd=account.total,
        spent_usd=account.spent,
        committed_usd=account.committed,
        remaining_usd=account.remaining,
        available_usd=account.available,
        used_pct=None if account.total is None else round(account.spent * 100 / account.total, 1),
        spent_24h_usd=account.spent_day,
        rate_now_usd_per_hour=account.rate_now,
        burn_rate_usd_per_hour=account.burn_rate_hourly,
        exhausted_at=account.exhausted_at,
        alerts=tuple(
            BudgetAlert(
                threshold=threshold / 1000,
                reached=threshold in account.crossed,
                told_at_position=state.crossed.get(f"{threshold}/{account.total}"),
            )
            for threshold in policy.thresholds
        ),
    )
