"""Costs reckoned from every bill of a world, as the read models' sums must be."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import get_args

from steno.engine.money.bill import Line
from steno.engine.money.costs import Charge, Costs, cut_at
from steno.engine.money.reconcile import Cause, Reconciliation, reconcile_run, reconcile_sums
from steno.engine.money.report import gpu_of, midnights, user_of
from steno.engine.money.use_split import UseSplit, UseSplitter
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events.clock import SECOND
from steno.projections.answers.costs import LINES, BusyUse, By, ChartRange, CostReport, CostRow, costs, spend
from steno.projections.read_models.store import ProjectionStore


def cost_report(costs: Costs, by: By) -> CostReport:
    """The cost of everything, to the newest poll."""
    state, all_charges = costs.state, list(costs.charges())
    groups: dict[str, tuple[str, list[Charge]]] = {}
    for charge in all_charges:
        run = None if charge.run_id is None else state.runs.get(charge.run_id)
        for part in cut_at(charge, midnights(charge.since, charge.until)) if by == "day" else [charge]:
            key, label = _key_of(by, part, state.vms[charge.vm_id], run)
            groups.setdefault(key, (label, []))[1].append(part)
    rows = [_row(costs, key, label, charges) for key, (label, charges) in groups.items()]
    rows.sort(key=lambda row: (row.key.startswith("("), row.key if by == "day" else ""))
    bills = costs.bills().values()
    total = _row(costs, "total", "total", all_charges)
    return CostReport(
        by=by,
        rows=tuple(rows),
        total=CostRow(**{name: getattr(total, name) for name in total.__struct_fields__} | {"archive": False}),
        low_usd=sum(bill.low for bill in bills),
        high_usd=sum(bill.high for bill in bills),
        archived_usd=sum(charge.cost for charge in all_charges if state.vms[charge.vm_id].archive is not None),
        clock_jumps=sum(anomaly.kind is AnomalyKind.CLOCK_JUMP for anomaly in state.anomalies),
    )


def _row(costs: Costs, key: str, label: str, charges: list[Charge]) -> CostRow:
    vms = costs.state.vms
    total = sum(charge.cost for charge in charges)
    spot = sum(charge.cost for charge in charges if vms[charge.vm_id].facts.spot)
    busy = [charge for charge in charges if charge.line is Line.BUSY]
    time, cost = sum(charge.time for charge in busy), sum(charge.cost for charge in busy)
    use = UseSplitter(costs.state).total(charges) or UseSplit().of(time, cost)
    assert (sum(use[:3]), sum(use[3:])) == (time, cost)
    return CostRow(
        key=key,
        label=label,
        total_usd=total,
        on_demand_usd=total - spot,
        spot_usd=spot,
        machine_seconds=sum(charge.time for charge in charges) / SECOND,
        lines={line.value: sum(charge.cost for charge in charges if charge.line is line) for line in LINES},
        archive=all(vms[charge.vm_id].archive is not None for charge in charges),
        busy=BusyUse(
            working_seconds=use.working_time / SECOND,
            idle_inside_seconds=use.idle_time / SECOND,
            unknown_seconds=use.unknown_time / SECOND,
            working_usd=use.working_cost,
            idle_inside_usd=use.idle_cost,
            unknown_usd=use.unknown_cost,
        ),
    )


def _key_of(by: By, charge: Charge, vm: Vm, run: Run | None) -> tuple[str, str]:
    """(key, label) of the row that a charge belongs to."""
    match by:
        case "vm":
            return charge.vm_id, vm.facts.name or charge.vm_id
        case "run" if charge.run_id is not None:
            return charge.run_id, (None if run is None else run.name) or charge.run_id
        case "day":
            key = datetime.fromtimestamp(charge.since // SECOND, UTC).date().isoformat()
        case "user" if charge.run_id is not None:
            key = "unknown" if run is None else user_of(run)
        case "gpu":
            key = gpu_of(vm)
        case _:
            key = f"({charge.line.value})"
    return key, key


def reconcile(costs: Costs) -> tuple[tuple[Reconciliation, ...], Reconciliation]:
    """(each run that either side charges, everything). A record's runs have their cost filled in first."""
    paid: dict[str | None, list[Charge]] = defaultdict(list)
    state = costs.state
    for charge in costs.charges():
        paid[charge.run_id].append(charge)
    machines = {(occupancy.run_id, occupancy.job): vm for vm in state.vms.all() for occupancy in vm.occupancies}
    runs = tuple(
        reconcile_run(run, paid.get(run.run_id, []), state, machines)
        for run in state.runs.all()
        if run.run_id in paid or run.cost is not None
    )
    causes, nobodys = Counter[Cause](), Counter[Line]()
    for line in (line for run in runs for line in run.lines):
        causes[line.cause] += line.amount
    for charge in paid.get(None, []):
        nobodys[charge.line] += charge.cost
    everything = reconcile_sums(
        ours=sum(bill.cost for bill in costs.bills().values()),
        paid=sum(run.ours for run in runs),
        theirs=sum(run.theirs or 0 for run in runs),
        causes=causes,
        nobodys=nobodys,
    )
    return runs, everything


def expect_ranges_to_sum(store: ProjectionStore, everything: ChartRange, noons: list[int]) -> None:
    """The rows of a range of days sum to its charts, and ranges that follow each other to everything."""
    for by in get_args(By):
        whole, sides = costs(store, by).report, costs(store, by).reconciliation
        sums = [0, 0]
        for start, end in ((0, len(noons) // 2), (len(noons) // 2, len(noons))):
            if not noons[start:end]:
                continue
            of = ChartRange(since=noons[start], until=noons[end - 1], now=everything.now)
            part = costs(store, by, of)
            assert part.reconciliation == sides
            report = part.report
            assert (
                report.total.total_usd
                == sum(row.total_usd for row in report.rows)
                == spend(store, "line", of).total_usd
            )
            assert report.low_usd <= report.total.total_usd <= report.high_usd
            assert report.high_usd - report.total.total_usd <= whole.high_usd - whole.total.total_usd
            sums = [sums[0] + report.total.total_usd, sums[1] + report.archived_usd]
        assert sums == [whole.total.total_usd, whole.archived_usd]
        assert costs(store, by, everything).report == whole
