"""What the machines and runs that a catch-up touched cost now; what was settled before is left as it stands."""

import msgspec

from engine.money.bill import Bill, Book, bill_vm
from engine.money.charge import run_costs
from engine.replay.objects import vm_object
from engine.world.state import WorldState
from engine.world.vms import Vm
from projections.vm_table import VmRow


def costed(state: WorldState, after: int) -> tuple[dict[str, int], tuple[VmRow, ...]]:
    """(run id → micro-dollars, rows of machines) of all that events behind `after` can have changed.

    A machine that may be billed costs more with every poll, and so do the runs on it; one that was gone by `after` and
    that no event named since costs what it did. The runs whose cost is given are in `state.runs` itself afterwards.
    """
    on = _machines_of_runs(state)
    moved = {vm.vm_id for vm in state.vms.values() if vm.billed or _touched(vm, after)}
    moved.update(vm_id for run_id in dict.keys(state.runs) for vm_id in on.get(run_id, ()))
    runs = {run_id for vm_id in moved for run_id in _runs_of(state.vms[vm_id])}
    for run_id in runs:
        state.runs[run_id]  # met: its row is written with the others
    needed = moved.union(*(on[run_id] for run_id in runs))
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0
    machines = {vm_id: vm for vm_id, vm in state.vms.items() if vm_id in needed}
    bills = {vm_id: bill_vm(vm, until=until, book=book) for vm_id, vm in machines.items()}
    part = msgspec.structs.replace(state, vms=machines, runs=dict(dict.items(state.runs)))
    return run_costs(part, bills), tuple(_row(vm, bills[vm_id]) for vm_id, vm in machines.items() if vm_id in moved)


def cost_of(state: WorldState, run_id: str) -> int | None:
    """What one run costs so far, micro-dollars; None while its machine is not known."""
    run = state.runs.get(run_id)
    if run is None:
        return None
    machines = {vm_id: vm for vm_id, vm in state.vms.items() if run_id in _runs_of(vm)}
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0
    bills = {vm_id: bill_vm(vm, until=until, book=book) for vm_id, vm in machines.items()}
    return run_costs(msgspec.structs.replace(state, vms=machines, runs={run_id: run}), bills).get(run_id)


def _touched(vm: Vm, after: int) -> bool:
    newest = vm.steps[-1].position if vm.steps else vm.first_position
    return max(vm.last_position, newest) > after


def _runs_of(vm: Vm) -> frozenset[str]:
    made_for = () if vm.made_for is None else (vm.made_for,)
    return frozenset((*(one.run_id for one in vm.occupancies), *made_for))


def _machines_of_runs(state: WorldState) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for vm in state.vms.values():
        for run_id in _runs_of(vm):
            found.setdefault(run_id, set()).add(vm.vm_id)
    return found


def _row(vm: Vm, bill: Bill) -> VmRow:
    return VmRow(
        vm_id=vm.vm_id,
        provider_id=vm.provider_id,
        name=vm.facts.name,
        billed=vm.billed,
        ended_at=None if bill.open else bill.until,
        object=msgspec.json.encode(vm_object(vm, bill)),
    )
