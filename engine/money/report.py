"""What everything cost, by machine, run, day, user or GPU. Money is micro-dollars.

A machine's time that no run pays for keeps its own lines: idle, terminating, unconfirmed, unattributed, rounding. By
run and by user these are rows of their own, so that the rows always sum to the machines.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.money.costs import Charge, Costs, Line, cut_at
from events.clock import SECOND

By = Literal["vm", "run", "day", "user", "gpu"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400 * SECOND


class ReportRow(msgspec.Struct, kw_only=True):
    """What one machine, run, day, user or kind of GPU cost."""

    key: str
    """vm_id, run_id, `YYYY-MM-DD`, the user, `MI300X:2`; for what no run pays, the line's name in parentheses."""
    label: str
    """For people: the name of the machine or the run, else the key."""
    lines: dict[Line, int] = {}
    on_demand: int = 0
    spot: int = 0
    time: int = 0
    """Microseconds of machines."""
    archive: bool = False
    """All of it is from archives."""

    @property
    def total(self) -> int:
        """Everything."""
        return self.on_demand + self.spot


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Rows and their sum."""

    by: By
    rows: tuple[ReportRow, ...]
    """In order of first appearance; days in order of time; what no run pays last."""
    total: ReportRow
    low: int
    high: int
    """Bounds of the total."""
    archived: int = 0
    """The part of the total that is from archives; no budget counts it."""


def cost_report(costs: Costs, by: By) -> Report:
    """What everything cost, to the newest poll."""
    state, name = costs.state, _NAMERS[by]
    archived = 0
    rows: dict[str, ReportRow] = {}
    total = ReportRow(key="total", label="total")
    for charge in costs.charges():
        vm = state.vms[charge.vm_id]
        run = None if charge.run_id is None else state.runs.get(charge.run_id)
        archived += charge.cost if vm.archive is not None else 0
        for part in cut_at(charge, midnights(charge.since, charge.until)) if by == "day" else [charge]:
            key, label = name(part, vm, run)
            row = rows.setdefault(key, ReportRow(key=key, label=label, archive=True))
            row.archive = row.archive and vm.archive is not None
            _add(row, part, spot=bool(vm.facts.spot))
            _add(total, part, spot=bool(vm.facts.spot))
    found = sorted(rows.values(), key=lambda row: row.key) if by == "day" else list(rows.values())
    rows_in_order = tuple(sorted(found, key=lambda row: row.key.startswith("(")))
    bills = costs.bills().values()
    return Report(
        by=by,
        rows=rows_in_order,
        total=total,
        low=sum(bill.low for bill in bills),
        high=sum(bill.high for bill in bills),
        archived=archived,
    )


def user_of(run: Run) -> str:
    """Who submitted it: to us, else to the provider; `unknown` where nobody says."""
    if run.terms is not None:
        return run.terms.submitter
    return (None if run.facts is None else run.facts.user) or "unknown"


def gpu_of(vm: Vm) -> str:
    """`MI300X:2`, as a task file asks for it; `none` for a machine without."""
    return f"{vm.facts.gpu}:{vm.facts.gpu_count}" if vm.facts.gpu and vm.facts.gpu_count else "none"


def day_of(moment: int) -> str:
    """The day in UTC, `YYYY-MM-DD`."""
    return (_EPOCH + timedelta(microseconds=moment)).date().isoformat()


def midnights(since: int, until: int) -> Iterator[int]:
    """Every beginning of a day in UTC behind `since` and before `until`."""
    yield from range(since - since % _DAY + _DAY, until, _DAY)


def _add(row: ReportRow, charge: Charge, *, spot: bool) -> None:
    row.lines[charge.line] = row.lines.get(charge.line, 0) + charge.cost
    row.time += charge.until - charge.since
    if spot:
        row.spot += charge.cost
    else:
        row.on_demand += charge.cost


_Namer = Callable[[Charge, Vm, Run | None], tuple[str, str]]


def _by_vm(charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:  # noqa: ARG001 - one of the namers
    return charge.vm_id, vm.facts.name or charge.vm_id


def _by_run(charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:  # noqa: ARG001
    if charge.run_id is None:
        return _nobodys(charge)
    return charge.run_id, (None if run is None else run.name) or charge.run_id


def _by_day(charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:  # noqa: ARG001
    return day_of(charge.since), day_of(charge.since)


def _by_user(charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:  # noqa: ARG001
    if charge.run_id is None:
        return _nobodys(charge)
    user = "unknown" if run is None else user_of(run)
    return user, user


def _by_gpu(charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:  # noqa: ARG001
    return gpu_of(vm), gpu_of(vm)


def _nobodys(charge: Charge) -> tuple[str, str]:
    return f"({charge.line.value})", f"({charge.line.value})"


_NAMERS: Final[dict[By, _Namer]] = {
    "vm": _by_vm,
    "run": _by_run,
    "day": _by_day,
    "user": _by_user,
    "gpu": _by_gpu,
}
