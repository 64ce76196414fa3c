"""What the machines and runs that a catch-up touched cost now; what was settled before is left as it stands."""

from collections.abc import Callable, Iterable

import msgspec

from engine.money.bill import Bill, Book, bill_vm
from engine.money.charge import run_costs
from engine.replay.objects import vm_object
from engine.world.runs import Run
from engine.world.state import WorldState
from engine.world.vms import Vm
from projections.vm_table import VmRow

_spans = msgspec.msgpack.Encoder()
Costs = dict[str, int]
"""run id → micro-dollars."""


def costed(
    state: WorldState, moved: dict[str, bytes], changed: set[str], known: Callable[[str], int | None]
) -> tuple[Costs, tuple[VmRow, ...]]:
    """(what runs cost, rows of machines) of all that a catch-up can have moved.

    A machine that may be billed costs more with every poll, and so do the runs on it.

    Args:
        moved: the machines to write, vm id → as the store keeps it.
        changed: the runs whose cost is asked for in any case.
        known: what a run cost so far; those on moved machines whose cost is still that are left out.
    """
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0
    bills = {vm_id: bill_vm(state.vms[vm_id], until=until, book=book) for vm_id in moved}
    paid = _paid(state, moved, bills)
    wanted = {run_id for run_id, cost in paid.items() if run_id not in changed and known(run_id) != cost} | changed
    runs = {run_id: run for run_id in wanted if (run := state.runs.get(run_id)) is not None}
    for run in runs.values():
        for vm_id in _machines_of(run):
            if vm_id not in bills and (vm := state.vms.get(vm_id)) is not None:
                bills[vm_id] = bill_vm(vm, until=until, book=book)
    costs = _costs(state, runs, bills)
    rows = tuple(_row(state.vms[vm_id], bills[vm_id], folded) for vm_id, folded in moved.items())
    return {run_id: cost for run_id, cost in costs.items() if run_id in wanted}, rows


def cost_of(state: WorldState, run_id: str) -> int | None:
    """What one run costs so far, micro-dollars; None while its machine is not known."""
    run = state.runs.get(run_id)
    if run is None:
        return None
    machines = {vm_id: vm for vm_id in _machines_of(run) if (vm := state.vms.get(vm_id)) is not None}
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0
    bills = {vm_id: bill_vm(vm, until=until, book=book) for vm_id, vm in machines.items()}
    return _costs(state, {run_id: run}, bills).get(run_id)


def runs_on(vm: Vm) -> tuple[str, ...]:
    """The runs that pay for a machine, in order."""
    made_for = () if vm.made_for is None else (vm.made_for,)
    return tuple(dict.fromkeys((*(one.run_id for one in vm.occupancies), *made_for)))


def _machines_of(run: Run) -> tuple[str, ...]:
    """The machines a run was on, or that were made for it: each of its submissions has at most one."""
    return tuple(dict.fromkeys(run.links.values()))


def _paid(state: WorldState, moved: Iterable[str], bills: dict[str, Bill]) -> Costs:
    """What each run on these machines pays for them; one that was on others too pays more."""
    paid = {run_id: 0 for vm_id in moved for run_id in runs_on(state.vms[vm_id])}
    for bill in bills.values():
        for one in bill.intervals:
            for share in one.shares:
                paid[share.run_id] = paid.get(share.run_id, 0) + share.cost
    return paid


def _costs(state: WorldState, runs: dict[str, Run], bills: dict[str, Bill]) -> Costs:
    machines = {vm_id: state.vms[vm_id] for vm_id in bills}
    return run_costs(msgspec.structs.replace(state, vms=machines, runs=runs), bills)


def _row(vm: Vm, bill: Bill, folded: bytes) -> VmRow:
    facts = vm.facts
    return VmRow(
        vm_id=vm.vm_id,
        provider_id=vm.provider_id,
        name=facts.name,
        billed=vm.billed,
        ended_at=None if bill.open else bill.until,
        object=msgspec.json.encode(vm_object(vm, bill)),
        created=vm.created,
        cost=bill.cost,
        last_at=vm.last_at,
        kind=_kind(vm),
        spans=_spans.encode(_stretches(bill)),
        folded=folded,
    )


def _kind(vm: Vm) -> str:
    """Backend, GPU and how many, spot or not, priced or not: what estimates of a price tell apart."""
    facts = vm.facts
    return f"{facts.backend}/{(facts.gpu or '').casefold()}:{facts.gpu_count}/{bool(facts.spot)}/{bool(vm.prices)}"


def _stretches(bill: Bill) -> list[tuple[int, int, int]]:
    """The bill in as few stretches as its prices make; what rounding adds is one of no length at the end."""
    found: list[tuple[int, int, int]] = []
    hourly = None
    for one in bill.intervals:
        until = bill.until if one.until is None else one.until
        if found and one.hourly == hourly:
            since, _, cost = found[-1]
            found[-1] = (since, until, cost + one.cost)
        else:
            found.append((one.since, until, one.cost))
        hourly = one.hourly
    if bill.rounding and found:
        since, until, cost = found[-1]
        found[-1] = (since, until, cost - bill.rounding)
        found.append((until, until, bill.rounding))
    return found
