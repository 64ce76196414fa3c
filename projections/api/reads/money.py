"""Reads about money."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from engine.decide.budget import account
from engine.money.report import By
from engine.settings.policy import policy_from
from projections.api.parameters import CURSOR, MOST, Asked, choice, cursor_of, cut, integer
from projections.api.reads import shapes
from projections.api.reads.read import Read
from projections.models.costs import costs
from projections.models.money_objects import budget_object, reconciliation_object, report_object
from projections.models.overview import policy_then

if TYPE_CHECKING:
    from engine.fold.world_codec import WorldState
    from engine.policy import Policy
    from projections.api.service import Service
    from projections.store.reader_pool import Look


def _costs(_: Service, look: Look, asked: Asked) -> object:
    found = costs(look.view.store, cast(By, asked.text("by")))
    limit, behind, newest = asked.given["limit"], asked.given["cursor"], asked.text("order") == "newest"
    rows = list(zip(found.places, found.report.rows, strict=True))
    if newest:
        rows.reverse()
    if isinstance(behind, int):
        rows = [row for row in rows if (row[0] < behind if newest else row[0] > behind)]
    shown, more = cut(rows, limit if isinstance(limit, int) else len(rows))
    report = msgspec.structs.replace(found.report, rows=tuple(row for _, row in shown))
    return report_object(report) | {
        "next": cursor_of(shown[-1][0]) if more else None,
        "reconciliation": reconciliation_object(found.reconciliation, look.view.world().state),
        "position": look.position,
    }


def _budget(service: Service, look: Look, _: Asked) -> object:
    policy = policy_at(service, look.view.world().state, past=look.past)
    state, settled = look.view.ledger(look.now)
    return budget_object(account(state, policy, look.now, settled), state, policy) | {"position": look.position}


def policy_at(service: Service, state: WorldState, *, past: bool) -> Policy:
    """What the settings say now, as for `steno budget`; of the past, the policy adopted last by then."""
    default = policy_from(service.settings)
    return policy_then(state, default) if past else msgspec.structs.replace(default, free=False)


READS = (
    Read(
        path="/api/costs",
        summary="Costs by machine, run, day, user or GPU, compared with the provider's costs",
        answer=_costs,
        shape=shapes.CostReport,
        parameters=(
            choice("by", "What a row is.", ("vm", "run", "day", "user", "gpu"), default="vm"),
            CURSOR,
            integer(
                "limit", "Maximum number of rows; default: all. The totals always cover all rows.", low=1, high=MOST
            ),
            choice("order", "Which rows come first.", ("oldest", "newest"), default="oldest"),
        ),
        tag="money",
    ),
    Read(
        path="/api/budget",
        summary="The budget: spent, committed, remaining, and when it is used up",
        answer=_budget,
        shape=shapes.BudgetAnswer,
        tag="money",
    ),
)
