"""What answers look like: structures for the OpenAPI, and what tests hold real answers against.

Runs, machines and anomalies are those of `engine.objects`. Money is decimal strings of US dollars, times
are ISO 8601 UTC, null is unknown.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from engine.objects import AnomalyObject, IntervalObject, RunObject

Usd = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]+\.[0-9]{6}$", description="US dollars, six decimals.")]
Time = Annotated[str, msgspec.Meta(description="ISO 8601, UTC, microseconds.")]
Position = Annotated[int, msgspec.Meta(ge=0, description="A position of the record.")]
Cursor = Annotated[str, msgspec.Meta(description="The `cursor` of the next page.")]


ArchiveName = Annotated[str, msgspec.Meta(description="The archive it was imported with; missing for live ones.")]


class Shape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object with these keys and no others."""


class SpanShape(Shape, kw_only=True, rename={"start": "from", "end": "to"}):
    """An object about a stretch of time."""


class RunPage(Shape, kw_only=True):
    """Some runs."""

    runs: list[RunObject]
    next: Cursor | None
    position: Position


class StateSpan(SpanShape, kw_only=True):
    """One state, held for a time; an open one is counted to the timeline's `until`."""

    state: str
    attempt: int
    start: Time
    end: Time | None
    seconds: float
    position: Position | None


class GapSpan(SpanShape, kw_only=True):
    """A stretch in which the source told us nothing."""

    source: str
    start: Time
    end: Time
    seconds: float


class MachinePhase(SpanShape, kw_only=True):
    """What the machine was billed as, within the run's time."""

    phase: str
    start: Time
    end: Time
    seconds: float


class MachineOfRun(Shape, kw_only=True):
    """The machine a run was on."""

    vm_id: str | None
    start: Literal["cold", "warm"] | None
    phases: list[MachinePhase]


class TaskSpan(Shape, kw_only=True, rename={"start": "from", "end": "to"}):
    """What the task itself said it did, from the line that said so to the next."""

    phase: str
    start: Time
    end: Time
    seconds: float
    position: Position


class TimelineAnswer(Shape, kw_only=True, rename={"start": "from"}):
    """Where a run's time went."""

    run_id: str
    name: str | None
    state: str
    reason: str | None
    start: Time
    until: Time
    first_poll_at: Time | None
    spans: list[StateSpan]
    blind: list[GapSpan]
    machine: MachineOfRun
    phases: list[TaskSpan]
    position: Position


class QuotedField(Shape, kw_only=True):
    """One value of a poll, and where it is in the poll's body."""

    path: str
    value: Any


class QuoteAnswer(Shape, kw_only=True):
    """What a poll (or an event of ours) said, in its own words."""

    position: Position
    kind: str
    at: Time
    source: str
    path: str | None
    fields: list[QuotedField]


class StepAnswer(Shape, kw_only=True, rename={"target": "to"}):
    """One transition, with the words that moved it."""

    position: Position
    at: Time
    target: str
    said: QuoteAnswer | None


class BlindAnswer(SpanShape, kw_only=True):
    """A gap; `to` is null while it lasts."""

    source: str
    start: Time
    end: Time | None


class QueuedAnswer(Shape, kw_only=True):
    """A place in Steno's queue, and why the run waits there."""

    run_id: str
    position: Annotated[int, msgspec.Meta(ge=1, description="In the queue, from 1.")]
    why: str
    detail: str
    estimated_start: Time | None


class ExplanationAnswer(Shape, kw_only=True):
    """Why a run is where it is: the rule, its evidence, and what would have been another verdict."""

    run: RunObject
    sentence: str
    rule: str | None
    evidence: list[QuoteAnswer]
    steps: list[StepAnswer]
    flips: list[str]
    anomalies: list[AnomalyObject]
    blind: list[BlindAnswer]
    not_warm: list[str]
    observability: str | None
    queued: QueuedAnswer | None
    position: Position


class EventAnswer(Shape, kw_only=True):
    """One event of the record."""

    position: Position
    stream: str
    version: int
    type: str
    type_version: int
    id: str | None
    observed_at: Time
    recorded_at: Time
    data: dict[str, Any]
    hash: str


class EventPage(Shape, kw_only=True):
    """Some events."""

    events: list[EventAnswer]
    next: Cursor | None
    position: Position


class ChargeAnswer(SpanShape, kw_only=True):
    """A sum of a machine's bill that a run pays."""

    vm_id: str
    line: str
    start: Time
    end: Time
    cost_usd: Usd
    price_usd_per_hour: Usd


class DifferenceAnswer(Shape, kw_only=True):
    """One reason why two figures differ; positive is in ours only."""

    cause: str
    amount_usd: Usd


class ReconciliationAnswer(Shape, kw_only=True):
    """Our figure beside the provider's; the lines sum to the difference exactly."""

    run_id: str | None
    name: str | None
    ours_usd: Usd
    theirs_usd: Usd | None
    lines: list[DifferenceAnswer]
    divergence_usd: Usd


class RunCosts(Shape, kw_only=True):
    """What a run cost, and why the provider says otherwise."""

    run_id: str
    cost_usd: Usd | None
    provider_cost_usd: Usd | None
    charges: list[ChargeAnswer]
    reconciliation: ReconciliationAnswer
    position: Position


class MachineObject(Shape, kw_only=True):
    """One machine with its bill."""

    vm_id: str
    provider_id: str
    name: str | None
    state: str
    reason: str | None
    price_usd_per_hour: Usd | None
    runs: list[str]
    cost_usd: Usd | None
    cost_low_usd: Usd | None
    cost_high_usd: Usd | None
    intervals: list[IntervalObject]
    source: Annotated[str, msgspec.Meta(description="The source that lists it, as in `sources` and `blind`.")]
    archive: ArchiveName | None = None


class MachinePage(Shape, kw_only=True):
    """Some machines."""

    vms: list[MachineObject]
    next: Cursor | None
    position: Position


class MachineAnswer(MachineObject, kw_only=True):
    """One machine in full: its bill, the provider's facts, and why it is still up."""

    project: str | None
    backend: str | None
    region: str | None
    fleet: str | None
    gpu: str | None
    gpu_count: int | None
    spot: bool | None
    ours: bool
    made_for: str | None
    created_at: Time
    idle_since: Time | None
    unreachable: bool | None
    why_up: list[str]
    anomalies: list[AnomalyObject]
    position: Position
    observability: str | None


class CostRow(Shape, kw_only=True):
    """What one machine, run, day, user or kind of GPU cost."""

    key: str
    label: str
    total_usd: Usd
    on_demand_usd: Usd
    spot_usd: Usd
    machine_seconds: float
    lines: dict[str, Usd]
    archive: Annotated[bool, msgspec.Meta(description="All of this row is from archives.")]


class CostReport(Shape, kw_only=True):
    """What everything cost; the rows of all pages sum to the total exactly. `reconciliation` is of everything too."""

    by: Literal["vm", "run", "day", "user", "gpu"]
    rows: list[CostRow]
    next: Cursor | None
    total: CostRow
    low_usd: Usd
    high_usd: Usd
    archived_usd: Annotated[
        Usd, msgspec.Meta(description="The part of the total from archives; it counts towards no budget.")
    ]
    reconciliation: ReconciliationAnswer
    position: Position


class BudgetAlert(Shape, kw_only=True):
    """A threshold of the budget."""

    threshold: float
    reached: bool
    told_at_position: Position | None


class Budget(Shape, kw_only=True):
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
    alerts: list[BudgetAlert]


class BudgetAnswer(Budget, kw_only=True):
    """The budget at a position."""

    position: Position
