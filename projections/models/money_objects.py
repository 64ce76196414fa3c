"""Costs, reconciliations and the budget as JSON values; money is decimal strings of US dollars."""

from engine.decide.budget import Account
from engine.fold.world_codec import WorldState
from engine.money.costs import Charge, Line
from engine.money.reconcile import Reconciliation
from engine.money.report import Report, ReportRow
from engine.money.words import money
from engine.policy import Policy
from events.clock import SECOND, format_time

LINES = (Line.PROVISIONING, Line.BUSY, Line.IDLE, Line.TERMINATING, Line.UNCONFIRMED, Line.UNATTRIBUTED, Line.ROUNDING)
"""What money is for, in the order it is shown."""


def report_object(report: Report) -> dict[str, object]:
    """A report: every row, and their sum with its bounds."""
    return {
        "by": report.by,
        "rows": [_row_object(row) for row in report.rows],
        "total": _row_object(report.total),
        "low_usd": money(report.low),
        "high_usd": money(report.high),
        "archived_usd": money(report.archived),
    }


def reconciliation_object(one: Reconciliation, state: WorldState) -> dict[str, object]:
    """Our figure beside the provider's, every difference by its cause."""
    run = state.runs.get(one.run_id or "")
    return {
        "run_id": one.run_id,
        "name": None if one.run_id is None else (None if run is None else run.name) or one.run_id,
        "ours_usd": money(one.ours),
        "theirs_usd": money(one.theirs),
        "lines": [{"cause": line.cause.value, "amount_usd": money(line.amount)} for line in one.lines],
        "divergence_usd": money(one.divergence),
    }


def charge_object(one: Charge) -> dict[str, object]:
    """One sum of a machine's bill, and the price it follows from."""
    return {
        "vm_id": one.vm_id,
        "line": one.line.value,
        "from": format_time(one.since),
        "to": format_time(one.until),
        "cost_usd": money(one.cost),
        "price_usd_per_hour": money(one.hourly),
    }


def budget_object(account: Account, state: WorldState, policy: Policy) -> dict[str, object]:
    """Where the budget stands, and which alerts were given."""
    used = None if account.total is None else round(account.spent * 100 / account.total, 1)
    return {
        "total_usd": money(account.total),
        "spent_usd": money(account.spent),
        "committed_usd": money(account.committed),
        "remaining_usd": money(account.remaining),
        "available_usd": money(account.available),
        "used_pct": used,
        "spent_24h_usd": money(account.spent_day),
        "rate_now_usd_per_hour": money(account.rate_now),
        "burn_rate_usd_per_hour": money(account.burn_rate_hourly),
        "exhausted_at": None if account.exhausted_at is None else format_time(account.exhausted_at),
        "alerts": [
            {
                "threshold": threshold / 1000,
                "reached": threshold in account.crossed,
                "told_at_position": state.crossed.get(f"{threshold}/{account.total}"),
            }
            for threshold in policy.thresholds
        ],
    }


def _row_object(row: ReportRow) -> dict[str, object]:
    return {
        "key": row.key,
        "label": row.label,
        "total_usd": money(row.total),
        "on_demand_usd": money(row.on_demand),
        "spot_usd": money(row.spot),
        "machine_seconds": row.time / SECOND,
        "lines": {line.value: money(row.lines.get(line, 0)) for line in LINES},
        "archive": row.archive,
    }
