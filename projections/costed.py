"""What the machines and runs that a catch-up touched cost now; what was settled before is left as it stands."""

from collections.abc import Callable, Iterable

import msgspec

from engine.money.bill import Bill, Book, bill_vm
from engine.money.charge import Charge, charges, run_costs
from engine.money.reconcile import reconcile_run
from engine.replay.objects import vm_object
from engine.vm.states import VmState
from engine.world.runs import Run
from engine.world.state import WorldState
from engine.world.vms import Vm
from projections.paid import decode_against, encode_against, encode_paid
from projections.vm_table import VmRow

_spans = msgspec.msgpack.Encoder()
Money = tuple[int | None, bytes | None]
"""What a run costs, micro-dollars (None: unknown), and that against the provider's figure (`projections.paid`)."""


class Costing:
    """Costs what moved, catch-up after catch-up; forgotten together with the fold.

    Args:
        known: what a run cost so far.
    """

    def __init__(self, known: Callable[[str], Money]) -> None:
        self._known = known
        self._bases: dict[tuple[str, str], int] = {}
        """(run, machine) → the hash of all that the machine told about the run's money."""

    def costed(
        self, state: WorldState, moved: dict[str, bytes], changed: set[str]
    ) -> tuple[dict[str, Money], tuple[VmRow, ...]]:
        """(money of runs, rows of machines) of all that a catch-up can have moved.

        A machine that may be billed costs more with every poll, and so do the runs on it.

        Args:
            moved: the machines to write, vm id → as the store keeps it.
            changed: the runs that are asked for in any case; others are left out if theirs is as it was.
        """
        book, until = Book.of(state), state.last_at if state.last_at is not None else 0
        bills = {vm_id: bill_vm(state.vms[vm_id], until=until, book=book) for vm_id in moved}
        sums = {vm_id: tuple(charges(bill)) for vm_id, bill in bills.items()}
        on: dict[str, dict[str, None]] = {run_id: {} for run_id in changed}
        for vm_id in moved:
            for run_id in self._told_anew(state.vms[vm_id], sums[vm_id]):
                on.setdefault(run_id, {})[vm_id] = None
        found: dict[str, Money] = {}
        for run_id, machines in on.items():
            run = state.runs.get(run_id)
            if run is None:
                continue
            before = self._known(run_id)
            for vm_id in (*machines_of(run, before[1]), *machines):
                if vm_id not in bills and (vm := state.vms.get(vm_id)) is not None:
                    bills[vm_id] = bill_vm(vm, until=until, book=book)
                    sums[vm_id] = tuple(charges(bills[vm_id]))
                if vm_id in bills:
                    machines[vm_id] = None
            now = _money(state, run, {vm_id: bills[vm_id] for vm_id in machines}, sums)
            if run_id in changed or now != before:
                found[run_id] = now
        rows = (_row(state.vms[vm_id], bills[vm_id], sums[vm_id], folded) for vm_id, folded in moved.items())
        return found, tuple(rows)

    def _told_anew(self, vm: Vm, sums: tuple[Charge, ...]) -> Iterable[str]:
        """The runs on a machine of which it tells another thing than the last time."""
        paid: dict[str, list[Charge]] = {run_id: [] for run_id in runs_on(vm)}
        for charge in sums:
            if charge.run_id is not None:
                paid.setdefault(charge.run_id, []).append(charge)
        busy = max((step.at for step in vm.steps if step.after is VmState.BUSY), default=0)
        for run_id, mine in paid.items():
            basis = hash((tuple(mine), vm.prices, vm.facts.total_blocks, busy))
            if self._bases.get((run_id, vm.vm_id)) != basis:
                self._bases[run_id, vm.vm_id] = basis
                yield run_id


def cost_of(state: WorldState, run_id: str) -> int | None:
    """What one run costs so far, micro-dollars; None while its machine is not known."""
    run = state.runs.get(run_id)
    if run is None:
        return None
    found = (state.vms.get(vm_id) for vm_id in run.links.values())
    if run.requeues:  # what it was on before, it has no link to
        found = (vm for vm in state.vms.values() if run_id in vm.runs)
    book, until = Book.of(state), state.last_at if state.last_at is not None else 0
    return _cost(state, run, {vm.vm_id: bill_vm(vm, until=until, book=book) for vm in found if vm is not None})


def runs_on(vm: Vm) -> tuple[str, ...]:
    """The runs that pay for a machine, in order."""
    made_for = () if vm.made_for is None else (vm.made_for,)
    return tuple(dict.fromkeys((*(one.run_id for one in vm.occupancies), *made_for)))


def machines_of(run: Run, against: bytes | None) -> tuple[str, ...]:
    """The machines a run was on: those it is linked to, and those it was on before it was asked for again.

    Args:
        against: what is kept of the run's cost against the provider's figure.
    """
    were = () if against is None else decode_against(against).machines
    return tuple(dict.fromkeys((*were, *run.links.values())))


def _money(state: WorldState, run: Run, bills: dict[str, Bill], sums: dict[str, tuple[Charge, ...]]) -> Money:
    """What a run costs, from the bills of its machines."""
    vms = sorted((state.vms[vm_id] for vm_id in bills), key=lambda vm: vm.first_position)
    mine = [charge for vm in vms for charge in sums[vm.vm_id] if charge.run_id == run.run_id]
    cost = _cost(state, run, bills)
    if not mine and run.cost is None:
        return cost, None
    part = msgspec.structs.replace(state, vms={vm.vm_id: vm for vm in vms}, runs={run.run_id: run})
    submissions = {(one.run_id, one.job): vm for vm in vms for one in vm.occupancies}
    return cost, encode_against(reconcile_run(run, mine, part, submissions), part.vms)


def _cost(state: WorldState, run: Run, bills: dict[str, Bill]) -> int | None:
    machines = {vm_id: state.vms[vm_id] for vm_id in bills}
    part = msgspec.structs.replace(state, vms=machines, runs={run.run_id: run})
    return run_costs(part, bills).get(run.run_id)


def _row(vm: Vm, bill: Bill, sums: tuple[Charge, ...], folded: bytes) -> VmRow:
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
        paid=encode_paid(vm, bill, sums),
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
