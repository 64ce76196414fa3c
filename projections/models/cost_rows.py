"""What the machines and runs that a catch-up touched cost now; what was settled before is left as it stands."""

from collections.abc import Callable

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.money.bill import Bill, Book, bill_of
from engine.money.charge import Charge, charges, run_costs
from engine.money.reconcile import reconcile_run
from engine.objects import vm_object
from projections.models.bill_sums import Basis, decode_against, encode_against, encode_paid
from projections.store.vm_table import VmRow

_spans = msgspec.msgpack.Encoder()
Money = tuple[int | None, bytes | None]
"""A run's cost in micro-dollars (None: unknown), and beside it the provider's figure (see `bill_sums`)."""


def costed(
    state: WorldState, moved: dict[str, bytes], changed: set[str], known: Callable[[str], Money]
) -> tuple[dict[str, Money], tuple[VmRow, ...]]:
    """(money of runs, rows of machines) of all that a catch-up can have moved.

    A machine that may be billed costs more with every poll, and so do the runs on it.

    Args:
        moved: the machines to write, vm id → as the store keeps it.
        changed: the runs that are asked for in any case; others are left out if theirs is as it was.
        known: what is kept of a run so far.
    """
    accounts = _Accounts(state)
    on: dict[str, dict[str, None]] = {run_id: {} for run_id in changed}
    for vm_id in moved:
        account = accounts.of(state.vms[vm_id])
        for run_id in account.paid:
            if account.differs(run_id, known(run_id)[1]):
                on.setdefault(run_id, {})[vm_id] = None
    found: dict[str, Money] = {}
    for run_id, machines in on.items():
        run = state.runs.get(run_id)
        if run is None:
            continue
        before = known(run_id)
        wanted = dict.fromkeys((*machines_of(run, before[1]), *machines))
        now = _money(state, run, [accounts.of(vm) for vm_id in wanted if (vm := state.vms.get(vm_id)) is not None])
        if run_id in changed or now != before:
            found[run_id] = now
    rows = (_row(accounts.of(state.vms[vm_id]), folded) for vm_id, folded in moved.items())
    return found, tuple(rows)


class _Account:
    """One machine's bill, and who pays what of it."""

    def __init__(self, vm: Vm, bill: Bill) -> None:
        self.vm = vm
        self.bill = bill
        self.charges = tuple(charges(bill))
        self.paid: dict[str, list[Charge]] = {run_id: [] for run_id in runs_on(vm)}
        for charge in self.charges:
            if charge.run_id is not None:
                self.paid.setdefault(charge.run_id, []).append(charge)
        self.basis = Basis(vm)

    def differs(self, run_id: str, against: bytes | None) -> bool:
        """Whether it tells of a run anything else than what is kept of it rests on."""
        if against is None:
            return True
        kept = decode_against(against)
        return kept.machines.get(self.vm.vm_id) != self.basis.of(self.paid[run_id])


class _Accounts:
    """The accounts of machines, made when first asked for."""

    def __init__(self, state: WorldState) -> None:
        self._state = state
        self._book = Book.of(state)
        self._made: dict[str, _Account] = {}

    def of(self, vm: Vm) -> _Account:
        """The machine's."""
        found = self._made.get(vm.vm_id)
        if found is None:
            found = self._made[vm.vm_id] = _Account(vm, bill_of(self._state, vm, self._book))
        return found


def cost_of(state: WorldState, run_id: str) -> int | None:
    """What one run costs so far, micro-dollars; None while its machine is not known."""
    run = state.runs.get(run_id)
    if run is None:
        return None
    found = (state.vms.get(vm_id) for vm_id in run.links.values())
    if run.requeues:  # what it was on before, it has no link to
        found = (vm for vm in state.vms.values() if run_id in vm.runs)
    machines = {vm.vm_id: vm for vm in found if vm is not None}
    bills = {vm_id: bill_of(state, vm) for vm_id, vm in machines.items()}
    return run_costs(msgspec.structs.replace(state, vms=machines, runs={run_id: run}), bills).get(run_id)


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


def _money(state: WorldState, run: Run, accounts: list[_Account]) -> Money:
    """What a run costs, from the accounts of its machines."""
    accounts = sorted(accounts, key=lambda one: one.vm.first_position)
    mine = [charge for one in accounts for charge in one.paid.get(run.run_id, ())]
    vms = {one.vm.vm_id: one.vm for one in accounts}
    part = msgspec.structs.replace(state, vms=vms, runs={run.run_id: run})
    cost = sum(charge.cost for charge in mine) if mine else run_costs(part, {}).get(run.run_id)
    if not mine and run.cost is None:
        return cost, None
    submissions = {
        (one.run_id, one.job): vm for vm in vms.values() for one in vm.occupancies if one.run_id == run.run_id
    }
    found = reconcile_run(run, mine, part, submissions)
    bases = {one.vm.vm_id: one.basis.of(one.paid.get(run.run_id, ())) for one in accounts}
    return cost, encode_against(found, bases)


def _row(account: _Account, folded: bytes) -> VmRow:
    vm, bill = account.vm, account.bill
    facts = vm.facts
    return VmRow(
        vm_id=vm.vm_id,
        provider_id=vm.provider_id,
        name=facts.name,
        billed=vm.billed and vm.archive is None,
        ended_at=None if bill.open and vm.archive is None else bill.until,
        object=msgspec.json.encode(vm_object(vm, bill)),
        created=vm.created,
        cost=bill.cost,
        last_at=vm.last_at,
        kind=_kind(vm),
        spans=_spans.encode(_stretches(bill)),
        folded=folded,
        paid=encode_paid(vm, bill, account.charges),
        archive=vm.archive,
        hidden=vm.hidden,
    )


def _kind(vm: Vm) -> str:
    """Backend, GPU and how many, spot or not, priced or not, live or not: what estimates of a price tell apart."""
    facts, part = vm.facts, "" if vm.archive is None else "archive/"
    gpu = f"{(facts.gpu or '').casefold()}:{facts.gpu_count}"
    return f"{part}{facts.backend}/{gpu}/{bool(facts.spot)}/{bool(vm.prices)}"


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
