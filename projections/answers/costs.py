"""Costs, also against the provider's figure, and the charts about money and times, from the stored bills."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from steno.engine.money.bill import Line
from steno.engine.money.daily import (
    Spend,
    Stack,
    Strip,
    Utilisation,
    day_text,
    range_of,
    spend_of,
    utilisation_of,
)
from steno.engine.money.reconcile import Cause, Reconciliation, reconcile_sums, reconciliation
from steno.engine.money.starts import Like, Starts, like_of, starts_of
from steno.engine.money.use_split import UseSplit
from steno.engine.state.policy import DAY
from steno.engine.wire import Cell, Shape, Tabled, Usd, dollars
from steno.events.clock import SECOND
from steno.projections.read_models.cost_rows import ChargeSum, Paid, decode_against, decode_paid
from steno.projections.read_models.run_query import RunQuery, check_known
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.store import ProjectionStore

By = Literal["vm", "run", "day", "user", "gpu"]
LINES: Final = (
    Line.PROVISIONING, Line.BUSY, Line.IDLE, Line.TERMINATING, Line.UNCONFIRMED, Line.UNATTRIBUTED, Line.ROUNDING
)  # fmt: skip
"""The purposes of charges, in display order."""
_LINES: Final = tuple(line.value for line in LINES)
_USES: Final = ("working_usd", "idle_inside_usd", "unknown_usd")
_EACH: Final = 1_000_000  # places of one machine: more than it has parts
_LAST: Final = 10**17  # what no run pays comes behind all else
LIKE: Final = 200  # runs of the same name that one is compared with


class ChartRange(msgspec.Struct, frozen=True, kw_only=True):
    """The moments of a chart (microseconds UTC): whole days; by default the last 30 up to `now`."""

    since: int | None = None
    until: int | None = None
    now: int


class BusyUse(Shape, frozen=True, kw_only=True):
    """How GPUs spent busy time, by their samples; unknown where a run has none."""

    working_seconds: float
    idle_inside_seconds: float
    unknown_seconds: float
    working_usd: Usd
    idle_inside_usd: Usd
    unknown_usd: Usd


class CostRow(Shape, frozen=True, kw_only=True):
    """The cost of a machine, run, day, user or kind of GPU."""

    key: str
    """`vm_id`, `run_id`, `YYYY-MM-DD`, user or `MI300X:2`; for what no run pays, the line's name in parentheses."""
    label: str  # for people: the name of the machine or the run, else the key
    total_usd: Usd
    on_demand_usd: Usd
    spot_usd: Usd
    machine_seconds: float
    lines: dict[str, Usd]
    archive: Annotated[bool, Meta(description="All of this row is from archives.")]
    busy: Annotated[BusyUse, Meta(description="Its busy time by what the GPUs did; the money sums to `lines.busy`.")]


class CostReport(Tabled, frozen=True, kw_only=True):
    """The cost of everything, or of everything on some days; the rows of all pages sum to the total exactly."""

    by: By
    rows: tuple[CostRow, ...]  # by first appearance, days by time; what no run pays last
    total: CostRow
    low_usd: Usd
    high_usd: Usd
    archived_usd: Annotated[Usd, Meta(description="The part of the total from archives; no budget counts it.")]
    clock_jumps: Annotated[int, Meta(description="How often a wall clock was set; bills go by boot time instead.")]

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield (
            "key",
            "label",
            *(f"{line.value}_usd" for line in LINES),
            "spot_usd",
            "machine_seconds",
            "total_usd",
            *_USES,
        )
        for row in (*self.rows, self.total):
            lines = (dollars(row.lines[line.value]) for line in LINES)
            uses = (dollars(getattr(row.busy, name)) for name in _USES)
            yield row.key, row.label, *lines, dollars(row.spot_usd), row.machine_seconds, dollars(row.total_usd), *uses


class StoredCosts(msgspec.Struct, frozen=True, kw_only=True):
    report: CostReport
    places: tuple[int, ...]  # ascending; appended rows do not change them
    reconciliation: Reconciliation


class _Sum(msgspec.Struct, kw_only=True):
    key: str
    label: str
    place: int = 0
    lines: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(_LINES, 0))
    spot: int = 0
    time: int = 0
    archive: bool = False
    busy: int = 0
    use: UseSplit = UseSplit()  # as far as samples tell

    def add(self, part: ChargeSum, *, spot: bool) -> None:
        self.lines[part.line] += part.cost
        self.time += part.time
        self.spot += part.cost if spot else 0
        self.busy += part.time if part.line == Line.BUSY.value else 0
        if part.use is not None:
            self.use = self.use.plus(part.use)

    @property
    def cost(self) -> int:
        return sum(self.lines.values())

    def row(self) -> CostRow:
        total, use = self.cost, self.use.of(self.busy, self.lines[Line.BUSY.value])
        return CostRow(
            key=self.key,
            label=self.label,
            total_usd=total,
            on_demand_usd=total - self.spot,
            spot_usd=self.spot,
            machine_seconds=self.time / SECOND,
            lines=self.lines,
            archive=self.archive,
            busy=BusyUse(
                working_seconds=use.working_time / SECOND,
                idle_inside_seconds=use.idle_time / SECOND,
                unknown_seconds=use.unknown_time / SECOND,
                working_usd=use.working_cost,
                idle_inside_usd=use.idle_cost,
                unknown_usd=use.unknown_cost,
            ),
        )


def costs(store: ProjectionStore, by: By, of: ChartRange | None = None, user: str | None = None) -> StoredCosts:
    """All costs up to the newest poll in the store, or those of some days: as much as a chart of these days shows; or
    what one user pays, kept machines included. The reconciliation is of everything. A day's low and high, and a user's,
    are as far from the cost as those of the whole bill.
    """
    check_known(store, RunQuery(user=user))
    days = None if of is None else range_of(of.since or 0, of.until, of.now)
    known: dict[str, str] = {}  # run id → its row's name: the run's name or submitter
    mine = set[str | None]()  # runs of the user
    paid = theirs = ours = 0
    causes = Counter[str]()
    for _, run_id, name, owner, compared in store.runs.against():
        if word := name if by == "run" else owner:
            known[run_id] = word
        if user is not None and owner == user:
            mine.add(run_id)
        if compared is not None:
            against = decode_against(compared)
            paid, theirs = paid + against.ours, theirs + (against.theirs or 0)
            for cause, amount in against.causes:
                causes[cause] += amount
    sums: dict[str, _Sum] = {}
    total, nobodys = _Sum(key="total", label="total"), Counter[str]()
    low = high = archived = 0
    for ordinal, vm_id, vm_name, kept, archive in store.vms.paid():
        machine = decode_paid(kept)
        bill, before = sum(part.cost for part in machine.parts), total.cost
        within = days is None and user is None
        ours += bill
        for index, part in enumerate(machine.parts):
            if part.run_id is None:
                nobodys[part.line] += part.cost
            others = user is not None and part.user != user and part.run_id not in mine
            if others or (days is not None and not days.first <= part.day <= days.last):
                continue
            within = True
            key, label = _key(by, vm_id, vm_name, machine, part, known)
            entry = sums.get(key)
            if entry is None:
                place = _place(by, key, part, ordinal * _EACH + index)
                entry = sums[key] = _Sum(key=key, label=label, place=place, archive=True)
            entry.add(part, spot=machine.spot)
            entry.archive &= archive is not None
            total.add(part, spot=machine.spot)
            archived += 0 if archive is None else part.cost
        if within:  # though it may have cost nothing so far
            cost = total.cost - before
            low, high = low + max(0, cost - bill + machine.low), high + cost - bill + machine.high
    in_order = sorted(sums.values(), key=lambda entry: entry.place)
    rows = tuple(entry.row() for entry in in_order)
    differences = {Cause(cause): amount for cause, amount in causes.items()}
    unpaid = {Line(line): amount for line, amount in nobodys.items()}
    return StoredCosts(
        report=CostReport(
            by=by,
            rows=rows,
            total=total.row(),
            low_usd=low,
            high_usd=high,
            archived_usd=archived,
            clock_jumps=store.clock_jumps(),
        ),
        places=tuple(entry.place for entry in in_order),
        reconciliation=reconcile_sums(ours=ours, paid=paid, theirs=theirs, causes=differences, nobodys=unpaid),
    )


def run_reconciliations(store: ProjectionStore) -> tuple[Reconciliation, ...]:
    """Every run that either side charges, by first sight."""
    reconciliations = []
    for _, run_id, name, _, compared in sorted(store.runs.against()):
        if compared is not None:
            against = decode_against(compared)
            amounts = {Cause(cause): amount for cause, amount in against.causes}
            ours, theirs = against.ours, against.theirs
            reconciliations.append(reconciliation(amounts, ours=ours, theirs=theirs, run_id=run_id, name=name))
    return tuple(reconciliations)


def _place(by: By, key: str, part: ChargeSum, first: int) -> int:
    """Days by time, the rest by first appearance, what no run pays last."""
    if by == "day":
        return part.day
    return _LAST + first if key.startswith("(") else first


def _key(
    by: By, vm_id: str, vm_name: str | None, machine: Paid, part: ChargeSum, known: dict[str, str]
) -> tuple[str, str]:
    """(key, label) of a charge's row."""
    match by:
        case "vm":
            return vm_id, vm_name or vm_id
        case "gpu":
            key = machine.gpu
        case "day":
            key = day_text(part.day)
        case "user" if part.user is not None:
            key = part.user
        case _ if part.run_id is None:
            key = f"({part.line})"
        case "run":
            return part.run_id, known.get(part.run_id, part.run_id)
        case "user":
            key = known.get(part.run_id, "unknown")
    return key, key


# -- charts ---


def spend(store: ProjectionStore, by: Stack, of: ChartRange) -> Spend:
    days = range_of(of.since, of.until, of.now)
    return spend_of(store.vms.days(days.first * DAY), by, days)


def utilisation(store: ProjectionStore, by: Strip, of: ChartRange) -> Utilisation:
    """Busy of billed time by day."""
    days = range_of(of.since, of.until, of.now)
    return utilisation_of(store.vms.days(days.first * DAY), by, days)


def starts(store: ProjectionStore, of: ChartRange) -> Starts:
    """Start-up times of the runs submitted on these days."""
    days = range_of(of.since, of.until, of.now)
    return starts_of(store.runs.starts(days.first * DAY, (days.last + 1) * DAY - 1))


def like(store: ProjectionStore, row: RunRow) -> Like:
    """A run beside the newest ended runs of its name."""
    newest = () if row.name is None else store.runs.ended_named(row.name, LIKE + 1)
    others = [other for other in newest if other.run_id != row.run_id][:LIKE]
    costs = [other.cost for other in others if other.cost is not None]
    return like_of(row.decoded, [other.decoded for other in others], cost=row.cost, costs=costs)
