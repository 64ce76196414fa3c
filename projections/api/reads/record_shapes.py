"""What answers about the record itself look like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from engine.objects import RunObject
from projections.api.reads.shapes import (
    BlindAnswer,
    Budget,
    Cursor,
    EventAnswer,
    EventPage,
    MachineObject,
    Position,
    QueuedAnswer,
    Shape,
    SpanShape,
    Time,
    Usd,
)

__all__ = [
    "EventInFull",
    "EventPage",
    "IncidentPage",
    "Offers",
    "Overview",
    "PollInFull",
    "PollPage",
    "RecordAnswer",
    "Sources",
]


class PollLine(msgspec.Struct, kw_only=True):
    """A poll as a line of a trace: what was asked and answered, verbatim but for secrets; other keys are kept."""

    t: Time
    path: str | msgspec.UnsetType = msgspec.UNSET
    ep: str | msgspec.UnsetType | None = msgspec.UNSET
    req: Any = msgspec.UNSET
    status: int | msgspec.UnsetType | None = msgspec.UNSET
    ms: float | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    body: Any


class EventInFull(EventAnswer, kw_only=True):
    """One event, with what it saw."""

    poll: PollLine | msgspec.UnsetType = msgspec.UNSET
    observed: Any = msgspec.UNSET


class PollRow(Shape, kw_only=True):
    """One poll, without its answer."""

    position: Position
    t: Time
    source: str
    path: str | None
    req: Any
    status: int | None
    ms: float
    changed: Annotated[list[str], msgspec.Meta(description="The streams whose state changed.")]


class PollPage(Shape, kw_only=True):
    """Some polls."""

    polls: list[PollRow]
    next: Cursor | None
    position: Position


class PollInFull(PollLine, kw_only=True):
    """One poll and its answer."""

    position: Position


class AnomalyAnswer(Shape, kw_only=True):
    """Something the provider said or did that it should not, and when."""

    kind: str
    subject: str
    position: Position
    at: Time | None
    detail: str


class IncidentPage(Shape, kw_only=True):
    """Some anomalies; with the first page the gaps."""

    anomalies: list[AnomalyAnswer]
    blind: list[BlindAnswer]
    next: Cursor | None
    position: Position


class MarkShape(Shape, kw_only=True):
    """Something to look for in time."""

    position: Position
    at: Time
    kind: str
    subject: str


class LagAnswer(Shape, kw_only=True):
    """How far the read models are behind."""

    positions: int
    seconds: float


class RecordAnswer(Shape, kw_only=True):
    """Where the record stands."""

    record_id: str
    position: Position
    hash: str
    first_at: Time | None
    last_at: Time | None
    checkpoint: Annotated[Position, msgspec.Meta(description="The position the read models show.")]
    lag: LagAnswer
    marks: list[MarkShape]
    thinned: Annotated[
        bool,
        msgspec.Meta(description="More marks exist: use `since` and `until` for a shorter range."),
    ]


class OfferAnswer(Shape, kw_only=True, rename={"origin": "from"}):
    """A GPU with how many of it a machine has, and what that costs."""

    gpu: str
    count: int
    memory_gb: int | None
    label: str
    price_usd_per_hour: Usd
    origin: Literal["recorded", "assumed"]


class Offers(Shape, kw_only=True):
    """The GPUs there are to choose from."""

    gpus: list[OfferAnswer]
    position: Position


class SourceAnswer(Shape, kw_only=True):
    """Whether a source still answers."""

    name: str
    observability: str
    last_answered: Time | None


class Today(Shape, kw_only=True, rename={"start": "from"}):
    """The day so far, in UTC."""

    start: Time
    spent_usd: Usd
    succeeded: int
    failed: int
    stopped: int


class BurnPoint(Shape, kw_only=True):
    """What was spent by then."""

    at: Time
    spent_usd: Usd


class Window(SpanShape, kw_only=True):
    """The time that lanes show."""

    start: Time
    end: Time


class RunOnLane(Shape, kw_only=True):
    """A run on a machine."""

    run_id: str
    name: str | None
    state: str | None
    run_start: Annotated[str | None, msgspec.Meta(description="cold or warm")] = msgspec.field(name="start")
    start: Time = msgspec.field(name="from")
    end: Time | None = msgspec.field(name="to")


class LaneShape(Shape, kw_only=True):
    """A machine and the runs that were on it."""

    vm: MachineObject
    runs: list[RunOnLane]


class AnomalySummary(Shape, kw_only=True):
    """How many anomalies there are, and the newest."""

    count: int
    newest: list[AnomalyAnswer]


class SourceRowAnswer(Shape, kw_only=True):
    """Whose polls the record holds, and how much of each there is."""

    source: str
    kind: Annotated[
        Literal["live", "archive"], msgspec.Meta(description="`live`: polled by a recorder; `archive`: imported.")
    ]
    hidden: Annotated[bool, msgspec.Meta(description="Lists omit the archive.")]
    first_poll_at: Time
    last_poll_at: Time
    polls: int
    runs: int
    machines: int


class Sources(Shape, kw_only=True):
    """Every source of the record."""

    sources: list[SourceRowAnswer]
    position: Position


class Overview(Shape, kw_only=True):
    """Everything at a glance."""

    position: Position
    at: Time
    head: Position
    sources: Annotated[list[SourceAnswer], msgspec.Meta(description="The live ones.")]
    running: list[RunObject]
    queued: dict[str, QueuedAnswer]
    recent: list[RunObject]
    today: Today
    budget: Budget
    burn: list[BurnPoint]
    window: Window
    lanes: list[LaneShape]
    anomalies: AnomalySummary
    blind: list[BlindAnswer]
