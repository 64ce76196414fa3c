"""The answers of the service, as far as programs need them. Keys that the service adds later are ignored."""

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

_ENDED = frozenset({"succeeded", "failed", "stopped"})


class RanInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The command and image of a run, its GPU, and for whom it runs."""

    command: str | None
    image: str | None
    gpu_asked: str | None
    gpu_got: str | None
    project: str | None
    source: str
    user: str | None
    submitter: str | None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    run_id: str
    provider_id: str | None
    name: str | None
    provider: str
    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]  # positions of the polls that decided
    attempts: int
    vm_id: str | None
    start: Literal["cold", "warm"] | None
    submitted_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    execution_seconds: float | None
    cost_usd: Decimal | None
    provider_cost_usd: Decimal | None
    archive: str | None = None
    ran: RanInfo | None = None  # absent in a change
    provider_submitted_at: datetime | None = None  # None: submitted elsewhere, or still in Steno's queue

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


class PhaseInfo(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A stretch of a machine's life in one phase; `end` is None while it lasts."""

    phase: str
    start: datetime
    end: datetime | None
    cost_usd: Decimal | None


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with its bill."""

    vm_id: str
    provider_id: str
    name: str | None
    state: str
    reason: str | None
    price_usd_per_hour: Decimal | None
    runs: tuple[str, ...]
    cost_usd: Decimal | None
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None
    intervals: tuple[PhaseInfo, ...]
    source: str
    archive: str | None = None


class CostRowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one machine, run, day, user or GPU model."""

    key: str
    label: str
    total_usd: Decimal
    machine_seconds: float
    lines: dict[str, Decimal]  # by phase: `busy`, `idle` …


class CostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of everything."""

    by: str
    rows: tuple[CostRowInfo, ...]
    total: CostRowInfo
    low_usd: Decimal
    high_usd: Decimal


class BudgetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The budget; None where there is none."""

    total_usd: Decimal | None
    spent_usd: Decimal
    committed_usd: Decimal
    remaining_usd: Decimal | None
    available_usd: Decimal | None
    exhausted_at: datetime | None


class SeriesInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A part of every day's spend: a purpose, a GPU or a user."""

    key: str
    total_usd: Decimal
    daily: tuple[Decimal, ...]  # of each of the answer's days


class SpendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of machines by day; the series of a day sum to it."""

    days: tuple[str, ...]  # ISO dates without gaps
    daily: tuple[Decimal, ...]
    total_usd: Decimal
    series: tuple[SeriesInfo, ...]


class StripInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of one GPU, or one machine."""

    key: str
    label: str
    billed_seconds: float
    busy_seconds: float
    days: tuple[tuple[float, float], ...]  # (billed, busy) seconds of each of the answer's days


class UseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How long machines were busy of the time they were billed."""

    days: tuple[str, ...]  # ISO dates without gaps
    strips: tuple[StripInfo, ...]
    total: StripInfo


class StartFiguresInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Start-up times of one kind in seconds; None: there are none."""

    count: int
    median_seconds: float | None
    p95_seconds: float | None
    worst_seconds: float | None


class BucketInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs took so long to start; `to_seconds` is excluded, None: no limit."""

    from_seconds: int
    to_seconds: int | None
    cold: int
    warm: int


class StartsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Start-up times, cold and warm."""

    buckets: tuple[BucketInfo, ...]
    cold: StartFiguresInfo
    warm: StartFiguresInfo


class PartInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How long a part of a run took, and the median of `count` others; None: unknown."""

    phase: Literal["queue", "provisioning", "running"]
    seconds: float | None
    median_seconds: float | None
    count: int


class LikeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run beside the newest ended runs of its name; `runs` is how many."""

    run_id: str
    name: str | None
    runs: int
    phases: tuple[PartInfo, ...]
    cost_usd: Decimal | None
    median_cost_usd: Decimal | None


class ChangeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the record, and what it changed."""

    position: int
    event: str
    stream: str
    at: datetime
    run: RunInfo | None = None
    vm: MachineInfo | None = None
    runs: tuple[RunInfo, ...] = ()  # other runs that it moved
    vms: tuple[MachineInfo, ...] = ()


class AcceptedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose request is in the record, at this position."""

    run_id: str
    name: str
    position: int


class StopInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` is False if it had already ended; `state` is that when the request arrived."""

    position: int
    state: str
    asked: bool
