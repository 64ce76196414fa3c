"""Spend and budget for `/metrics`, in US dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from engine.decide.budget import Account, account
from engine.errors import NotConfigured
from engine.policy import DOLLAR
from events.clock import SECOND
from projections.api.reads.money import policy_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projections.api.service import Service


def money_of(service: Service) -> Iterator[Metric]:
    """Where the budget stands; nothing where the settings make no policy."""
    with service.pool.now() as look:
        state, settled = look.view.ledger(look.now)
        try:
            policy = policy_at(service, state, past=False)
        except NotConfigured:
            return
        found = account(state, policy, look.now, settled)
    for name, said, amount in _figures(found):
        if amount is not None:
            yield GaugeMetricFamily(name, said, value=amount / DOLLAR)
    if found.exhausted_at is not None:
        yield GaugeMetricFamily(
            "steno_budget_exhausted_timestamp_seconds",
            "When the budget is used up at the rate of the last day.",
            value=found.exhausted_at / SECOND,
        )
    if policy.budget_total is not None and policy.thresholds:
        yield GaugeMetricFamily(
            "steno_budget_threshold_ratio",
            "The first part of the budget at which an alert is given.",
            value=min(policy.thresholds) / 1000,
        )


def _figures(found: Account) -> tuple[tuple[str, str, int | None], ...]:
    """(name, what it is, micro-dollars) of what the budget says."""
    return (
        ("steno_budget_limit_usd", "The whole budget.", found.total),
        ("steno_budget_spent_usd", "Every machine's bill since ever.", found.spent),
        ("steno_budget_committed_usd", "The worst that live runs and machines may still cost.", found.committed),
        ("steno_budget_remaining_usd", "Budget less spent.", found.remaining),
        ("steno_spend_last_day_usd", "Spent in the last 24 hours.", found.spent_day),
        ("steno_spend_rate_usd_per_hour", "What all machines that may be billed cost now.", found.rate_now),
    )
