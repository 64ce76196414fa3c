"""What everything cost, and that against the provider's figure, summed from what is kept of every bill."""

from functools import lru_cache
from typing import Final

import msgspec

from engine.money.bill import Line
from engine.money.reconcile import Cause, Reconciliation, reconcile_sums
from engine.money.report import By, Report, ReportRow, day_of
from projections.models.cost_rows import DAY, ChargeSum, Paid, decode_against, decode_paid
from projections.store.store import ProjectionStore

_EACH: Final = 1_000_000
"""Places of one machine: more than it has parts."""
_LAST: Final = 10**17
"""What no run pays comes behind all else."""
_LINES: Final = tuple(Line)


class StoredCosts(msgspec.Struct, frozen=True, kw_only=True):
    """A report as `engine.money.report` makes it, and everything reconciled."""

    report: Report
    places: tuple[int, ...]
    """Of each row, ascending: a row keeps its place when others come behind it."""
    reconciliation: Reconciliation


class _Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of all runs, summed."""

    names: dict[str, str]
    users: dict[str, str]
    ours: int
    theirs: int
    causes: dict[Cause, int]


def costs(store: ProjectionStore, by: By) -> StoredCosts:
    """What everything cost, to the newest poll that the store shows."""
    runs = _runs(store, by)
    rows: dict[str, ReportRow] = {}
    places: dict[str, int] = {}
    total, nobodys = ReportRow(key="total", label="total"), dict.fromkeys(_LINES, 0)
    low = high = 0
    archived = 0
    for ordinal, vm_id, name, kept, archive in store.vms.paid():
        one = decode_paid(kept)
        low, high = low + one.low, high + one.high
        for index, part in enumerate(one.parts):
            line = Line(part.line)
            key = _key(by, vm_id, one, part, runs)
            row = rows.get(key)
            if row is None:
                row = rows[key] = ReportRow(key=key, label=_label(by, key, name, runs), archive=True)
                places[key] = _place(by, key, part, ordinal * _EACH + index)
            if archive is not None:
                archived += part.cost
            else:
                row.archive = False
            _add(row, line, part, spot=one.spot)
            _add(total, line, part, spot=one.spot)
            if part.run_id is None:
                nobodys[line] += part.cost
    everything = reconcile_sums(
        ours=total.total, paid=runs.ours, theirs=runs.theirs, causes=runs.causes, nobodys=nobodys
    )
    order = sorted(rows, key=places.__getitem__)
    report = Report(by=by, rows=tuple(rows[key] for key in order), total=total, low=low, high=high, archived=archived)
    return StoredCosts(
        report=report,
        places=tuple(places[key] for key in order),
        reconciliation=everything,
    )


def _runs(store: ProjectionStore, by: By) -> _Runs:
    """The runs' names or users where rows are made of these, and their comparisons, summed."""
    names: dict[str, str] = {}
    users: dict[str, str] = {}
    ours = theirs = 0
    sums: dict[str, int] = {}
    for run_id, name, user, kept in store.runs.against():
        if by == "run" and name:
            names[run_id] = name
        elif by == "user" and user:
            users[run_id] = user
        if kept is not None:
            one = decode_against(kept)
            ours, theirs = ours + one.ours, theirs + (one.theirs or 0)
            for cause, amount in one.causes:
                sums[cause] = sums.get(cause, 0) + amount
    causes = {Cause(cause): amount for cause, amount in sums.items()}
    return _Runs(names=names, users=users, ours=ours, theirs=theirs, causes=causes)


def _add(row: ReportRow, line: Line, part: ChargeSum, *, spot: bool) -> None:
    row.lines[line] = row.lines.get(line, 0) + part.cost
    row.time += part.time
    if spot:
        row.spot += part.cost
    else:
        row.on_demand += part.cost


def _place(by: By, key: str, part: ChargeSum, first: int) -> int:
    """Days stand in order of time, the rest in order of first appearance, what no run pays last."""
    if by == "day":
        return part.day
    return _LAST + first if key.startswith("(") else first


def _label(by: By, key: str, name: str | None, runs: _Runs) -> str:
    if by == "vm":
        return name or key
    return runs.names.get(key, key)


@lru_cache(maxsize=4096)
def _day(day: int) -> str:
    return day_of(day * DAY)


def _key(by: By, vm_id: str, one: Paid, part: ChargeSum, runs: _Runs) -> str:
    """The row that a part of a machine's bill belongs to."""
    match by:
        case "vm":
            return vm_id
        case "gpu":
            return one.gpu
        case "day":
            return _day(part.day)
        case _ if part.run_id is None:
            return f"({part.line})"
        case "run":
            return part.run_id
        case "user":
            return runs.users.get(part.run_id, "unknown")
