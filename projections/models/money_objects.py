"""The public JSON objects of money: costs, reconciliations and the budget."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine.decide.budget import Account
from engine.fold.world_codec import WorldState
from engine.money.bill import Line
from engine.money.costs import Charge
from engine.money.reconcile import Reconciliation
from engine.money.report import By, Report, ReportRow
from engine.policy import Policy
from events.clock import SECOND
from projections.models.wire import Position, Shape, Time, Usd, wire

LINES = (Line.PROVISIONING, Line.BUSY, Line.IDLE, Line.TERMINATING, Line.UNCONFIRMED, Line.UNATTRIBUTED, Line.ROUNDING)
"""What money is for, in the order it is shown."""


class CostRow(Shape, frozen=True, kw_only=True):
    """What one machine, run, day, user or kind of GPU cost."""

    key: str
    label: str
    total_usd: Usd
    on_demand_usd: Usd
    spot_usd: Usd
    machine_seconds: float
    lines: dict[str, Usd]
    archive: Annotated[bool, Meta(description="All of this row is from archives.")]


class CostReport(Shape, frozen=True, kw_only=True):
    """What everything cost; the rows of all pages sum to the total exactly."""

    by: By
    rows: tuple[CostRow, ...]
    total: CostRow
    low_usd: Usd
    high_usd: Usd
    archived_usd: Annotated[Usd, Meta(description="The part of the total from archives; no budget counts it.")]


class DifferenceObject(Shape, frozen=True, kw_only=True, rename={"amount": "amount_usd"}):
    """One reason why two figures differ; positive is in ours only."""

    cause: str
    amount: Usd


class ReconciliationObject(
    Shape,
    frozen=True,
    kw_only=True,
    rename={"ours": "ours_usd", "theirs": "theirs_usd", "divergence": "divergence_usd"},
):
    """Our figure beside the provider's; the lines sum to the difference exactly."""

    run_id: str | None
    name: str | None
    ours: Usd
    theirs: Usd | None
    lines: tuple[DifferenceObject, ...]
    divergence: Usd


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


def report_object(report: Report) -> dict[str, Any]:
    """A report: every row, and their sum with its bounds."""
    return wire(
        CostReport(
            by=report.by,
            rows=tuple(_row(row) for row in report.rows),
            total=_row(report.total),
            low_usd=report.low,
            high_usd=report.high,
            archived_usd=report.archived,
        )
    )


def reconciliation_object(one: Reconciliation, state: WorldState) -> dict[str, Any]:
    """Our figure beside the provider's, every difference by its cause."""
    run = state.runs.get(one.run_id or "")
    return wire(
        ReconciliationObject(
            run_id=one.run_id,
            name=None if one.run_id is None else (None if run is None else run.name) or one.run_id,
            ours=one.ours,
            theirs=one.theirs,
            lines=msgspec.convert(one.lines, tuple[DifferenceObject, ...], from_attributes=True),
            divergence=one.divergence,
        )
    )


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


def _row(row: ReportRow) -> CostRow:
    return CostRow(
        key=row.key,
        label=row.label,
        total_usd=row.total,
        on_demand_usd=row.on_demand,
        spot_usd=row.spot,
        machine_seconds=row.time / SECOND,
        lines={line.value: row.lines.get(line, 0) for line in LINES},
        archive=row.archive,
    )
