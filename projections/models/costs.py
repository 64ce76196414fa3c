"""Costs, also against the provider's figure, summed from the stored bills."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from engine.money.bill import Line
from engine.money.daily import day_text, range_of
from engine.money.reconcile import Cause, Reconciliation, reconcile_sums, reconciliation
from engine.money.tables import Cell, Tabled, dollars
from engine.wire import Shape, Usd
from events.clock import SECOND
from projections.models.charts import ChartRange
from projections.models.cost_rows import ChargeSum, Paid, decode_against, decode_paid
from projections.store.store import ProjectionStore

By = Literal["vm", "run", "day", "user", "gpu"]
LINES: Final = (
    Line.PROVISIONING, Line.BUSY, Line.IDLE, Line.TERMINATING, Line.UNCONFIRMED, Line.UNATTRIBUTED, Line.ROUNDING
)  # fmt: skip
"""The purposes of charges, in display order."""
_LINES: Final = tuple(line.value for line in LINES)
_EACH: Final = 1_000_000  # places of one machine: more than it has parts
_LAST: Final = 10**17  # what no run pays comes behind all else


class CostRow(Shape, frozen=True, kw_only=True):
    """What one machine, run, day, user or kind of GPU cost."""

    key: str
    """`vm_id`, `run_id`, `YYYY-MM-DD`, user or `MI300X:2`; for what no run pays, the line's name in parentheses."""
    label: str  # for people: the name of the machine or the run, else the key
    total_usd: Usd
    on_demand_usd: Usd
    spot_usd: Usd
    machine_seconds: float
    lines: dict[str, Usd]
    archive: Annotated[bool, Meta(description="All of this row is from archives.")]


class CostReport(Tabled, frozen=True, kw_only=True):
    """What everything, or everything of some days, cost; the rows of all pages sum to the total exactly."""

    by: By
    rows: tuple[CostRow, ...]  # by first appearance, days by time; what no run pays last
    total: CostRow
    low_usd: Usd
    high_usd: Usd
    archived_usd: Annotated[Usd, Meta(description="The part of the total from archives; no budget counts it.")]
    clock_jumps: Annotated[int, Meta(description="How often a wall clock was set; bills go by boot time instead.")]

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "key", "label", *(f"{line.value}_usd" for line in LINES), "spot_usd", "machine_seconds", "total_usd"
        for row in (*self.rows, self.total):
            lines = (dollars(row.lines[line.value]) for line in LINES)
            yield row.key, row.label, *lines, dollars(row.spot_usd), row.machine_seconds, dollars(row.total_usd)


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

    def add(self, part: ChargeSum, *, spot: bool) -> None:
        self.lines[part.line] += part.cost
        self.time += part.time
        self.spot += part.cost if spot else 0

    @property
    def cost(self) -> int:
        return sum(self.lines.values())

    def row(self) -> CostRow:
        total = self.cost
        return CostRow(
            key=self.key,
            label=self.label,
            total_usd=total,
            on_demand_usd=total - self.spot,
            spot_usd=self.spot,
            machine_seconds=self.time / SECOND,
            lines=self.lines,
            archive=self.archive,
        )


def costs(store: ProjectionStore, by: By, of: ChartRange | None = None) -> StoredCosts:
    """All costs up to the newest poll in the store, or those of some days: as much as a chart of these days shows. The
    reconciliation is of everything. A day's low and high are as far from its cost as those of the whole bill.
    """
    days = None if of is None else range_of(of.since or 0, of.until, of.now)
    known: dict[str, str] = {}  # run id → its row's name: the run's name or submitter
    paid = theirs = ours = 0
    causes = Counter[str]()
    for _, run_id, name, user, compared in store.runs.against():
        if word := name if by == "run" else user:
            known[run_id] = word
        if compared is not None:
            against = decode_against(compared)
            paid, theirs = paid + against.ours, theirs + (against.theirs or 0)
            for cause, amount in against.causes:
                causes[cause] += amount
    sums: dict[str, _Sum] = {}
    total, nobodys = _Sum(key="total", label="total"), Counter[str]()
    low = high = archived = 0
    for ordinal, vm_id, vm_name, kept, archive in store.vms.paid():
        one = decode_paid(kept)
        bill, before = sum(part.cost for part in one.parts), total.cost
        ours += bill
        for index, part in enumerate(one.parts):
            if part.run_id is None:
                nobodys[part.line] += part.cost
            if days is not None and not days.first <= part.day <= days.last:
                continue
            key, label = _key(by, vm_id, vm_name, one, part, known)
            found = sums.get(key)
            if found is None:
                place = _place(by, key, part, ordinal * _EACH + index)
                found = sums[key] = _Sum(key=key, label=label, place=place, archive=True)
            found.add(part, spot=one.spot)
            found.archive &= archive is not None
            total.add(part, spot=one.spot)
            archived += 0 if archive is None else part.cost
        if (cost := total.cost - before) or days is None:
            low, high = low + max(0, cost - bill + one.low), high + cost - bill + one.high
    in_order = sorted(sums.values(), key=lambda found: found.place)
    rows = tuple(found.row() for found in in_order)
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
        places=tuple(found.place for found in in_order),
        reconciliation=reconcile_sums(ours=ours, paid=paid, theirs=theirs, causes=differences, nobodys=unpaid),
    )


def run_reconciliations(store: ProjectionStore) -> tuple[Reconciliation, ...]:
    """Every run that either side charges, by first sight."""
    found = []
    for _, run_id, name, _, compared in sorted(store.runs.against()):
        if compared is not None:
            one = decode_against(compared)
            amounts = {Cause(cause): amount for cause, amount in one.causes}
            found.append(reconciliation(amounts, ours=one.ours, theirs=one.theirs, run_id=run_id, name=name))
    return tuple(found)


def _place(by: By, key: str, part: ChargeSum, first: int) -> int:
    """Days by time, the rest by first appearance, what no run pays last."""
    if by == "day":
        return part.day
    return _LAST + first if key.startswith("(") else first


def _key(by: By, vm_id: str, vm_name: str | None, one: Paid, part: ChargeSum, known: dict[str, str]) -> tuple[str, str]:
    """(key, label) of a charge's row."""
    match by:
        case "vm":
            return vm_id, vm_name or vm_id
        case "gpu":
            key = one.gpu
        case "day":
            key = day_text(part.day)
        case _ if part.run_id is None:
            key = f"({part.line})"
        case "run":
            return part.run_id, known.get(part.run_id, part.run_id)
        case "user":
            key = known.get(part.run_id, "unknown")
    return key, key
