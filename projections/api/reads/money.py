"""Reads about money."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from engine.money.bill import bills
from engine.money.budget import account
from engine.money.report import By, cost_report
from engine.settings_policy import policy_from
from projections.api.parameters import Asked, choice
from projections.api.reads import shapes
from projections.api.reads.read import Read
from projections.money_objects import budget_object, report_object
from projections.overview import policy_then

if TYPE_CHECKING:
    from engine.policy import Policy
    from engine.world.state import WorldState
    from projections.api.service import Service
    from projections.pool import Look


def _costs(_: Service, look: Look, asked: Asked) -> object:
    state = look.view.world().state
    found = bills(state)
    report = cost_report(state, found, cast(By, asked.text("by")))
    low, high = sum(bill.low for bill in found.values()), sum(bill.high for bill in found.values())
    return report_object(report, low, high) | {"position": look.position}


def _budget(service: Service, look: Look, _: Asked) -> object:
    policy = policy_at(service, look.view.world().state, past=look.past)
    state, settled = look.view.ledger(look.now)
    return budget_object(account(state, policy, look.now, settled), state, policy) | {"position": look.position}


def policy_at(service: Service, state: WorldState, *, past: bool) -> Policy:
    """What the settings say now, as for `steno budget`; of the past, the policy adopted last by then."""
    default = policy_from(service.settings, "dstack")
    return policy_then(state, default) if past else msgspec.structs.replace(default, free=False)


READS = (
    Read(
        path="/api/costs",
        summary="What everything cost, by machine, run, day, user or GPU",
        answer=_costs,
        shape=shapes.CostReport,
        parameters=(choice("by", "What a row stands for.", ("vm", "run", "day", "user", "gpu"), default="vm"),),
        tag="money",
    ),
    Read(
        path="/api/budget",
        summary="Where the budget stands: spent, promised, left, and until when",
        answer=_budget,
        shape=shapes.BudgetAnswer,
        tag="money",
    ),
)
