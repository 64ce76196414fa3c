"""Costs of machines and runs as rows: the sums of every cost, and their changes in a catch-up."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Final
from zlib import crc32

import msgspec

from steno.engine.money.bill import Bill, Line
from steno.engine.money.costs import Costs, charges, cut_by_keeper
from steno.engine.money.daily import days_of
from steno.engine.money.life import silent_from
from steno.engine.money.reconcile import reconcile_run
from steno.engine.money.report import gpu_of, user_of
from steno.engine.money.use_split import UseSplit, UseSplitter
from steno.engine.objects import vm_object
from steno.engine.state.inventory import Inventory
from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.policy import DAY
from steno.engine.state.run import Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.projections.read_models.notes import Mark
from steno.projections.read_models.schema import VmRow


class ChargeSum(msgspec.Struct, frozen=True, array_like=True):
    """Charges of one machine for the same purpose, in one day."""

    run_id: str | None  # who pays; None: nobody
    line: str
    day: int  # in UTC, since 1970
    cost: int  # micro-dollars
    time: int  # microseconds of the machine, shared like its cost
    use: UseSplit | None = None  # of busy time; None: no samples
    user: str | None = None  # who pays because they had the machine kept


class Paid(msgspec.Struct, frozen=True, array_like=True):
    """A machine's bill, parts in order of first appearance."""

    low: int
    high: int
    gpu: str  # `MI300X:2`; `none`
    spot: bool
    parts: tuple[ChargeSum, ...]


class Against(msgspec.Struct, frozen=True, array_like=True):
    """A run's cost and the provider's figure, in micro-dollars."""

    machines: dict[str, int]  # every machine it was ever on → the basis of its cost there (`_Bases`)
    ours: int
    theirs: int | None  # None: the provider gives no figure
    causes: tuple[tuple[str, int], ...]
    use: UseSplit | None = None  # of its busy time; None: no samples


_encode: Final = msgspec.msgpack.Encoder().encode
decode_paid: Final = msgspec.msgpack.Decoder(Paid).decode
decode_against: Final = msgspec.msgpack.Decoder(Against).decode


def paid_of(vm: Vm, bill: Bill, splitter: UseSplitter) -> Paid:
    """A machine's bill as stored."""
    sums: dict[tuple[str | None, str, int, str | None], list[int]] = {}
    uses: dict[tuple[str | None, str, int, str | None], UseSplit] = {}
    for charge, keeper in (cut for whole in charges(bill) for cut in cut_by_keeper(whole, vm)):
        for part, use in splitter.parts(charge):
            key = part.run_id, part.line.value, part.since // DAY, keeper
            total = sums.setdefault(key, [0, 0])
            total[0] += part.cost
            total[1] += part.time
            if use is not None:
                uses[key] = uses.get(key, UseSplit()).plus(use)
    parts = tuple(ChargeSum(*key[:3], cost, time, uses.get(key), user=key[3]) for key, (cost, time) in sums.items())
    return Paid(low=bill.low, high=bill.high, gpu=gpu_of(vm), spot=bool(vm.facts.spot), parts=parts)


def _use_on(paid: Paid) -> UseSplit | None:
    """The split of a machine's busy time; None: no run on it has samples."""
    known = [part.use for part in paid.parts if part.use is not None]
    busy = [part for part in paid.parts if part.line == Line.BUSY.value]
    time, cost = sum(part.time for part in busy), sum(part.cost for part in busy)
    return reduce(UseSplit.plus, known).of(time, cost) if known else None


def _idle_days(paid: Paid) -> tuple[tuple[int, int], ...]:
    """(day, micro-dollars) of idle inside busy time."""
    days = Counter[int]()
    for part in paid.parts:
        days[part.day] += 0 if part.use is None else part.use.idle_cost
    return tuple(sorted((day, cost) for day, cost in days.items() if cost))


Money = tuple[int | None, bytes | None]  # a run's cost in micro-dollars (None: unknown), its `Against`


def costed(
    costs: Costs, moved: dict[str, bytes], changed: set[str], known: Callable[[str], Money]
) -> tuple[dict[str, Money], tuple[VmRow, ...]]:
    """(money of runs, rows of machines) that a catch-up can have changed: every poll adds to a billed machine and its
    runs. `moved` maps machine ids to stored machines; `changed` runs are always returned; `known` gives a run's stored
    money.
    """
    state, bases = costs.state, _Bases(costs)
    on: dict[str, dict[str, None]] = {run_id: {} for run_id in changed}
    for vm_id in moved:
        for run_id in costs.payers(state.vms[vm_id]):
            if bases.differ(run_id, vm_id, known(run_id)[1]):
                on.setdefault(run_id, {})[vm_id] = None
    money: dict[str, Money] = {}
    for run_id, machines in on.items():
        run = state.runs.get(run_id)
        if run is None:
            continue
        before = known(run_id)
        wanted = dict.fromkeys((*stored_machines_of(run, before[1]), *machines))
        now = _money(costs, bases, run, [vm for vm_id in wanted if (vm := state.vms.get(vm_id)) is not None])
        if run_id in changed or now != before:
            money[run_id] = now
    return money, tuple(_row(costs, state.vms[vm_id], folded) for vm_id, folded in moved.items())


class _Bases:
    """The bases of runs' comparisons with the provider's figure, as comparable numbers."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._machines: dict[str, int] = {}

    def of(self, run_id: str, vm_id: str) -> int:
        start = self._machines.get(vm_id)
        if start is None:
            vm = self._costs.state.vms[vm_id]
            start = self._machines[vm_id] = crc32(_encode((vm.prices, vm.facts.total_blocks, silent_from(vm))))
        paid = self._costs.paid_by(run_id, vm_id)
        return crc32(
            _encode([(charge.line.value, charge.since, charge.until, charge.cost, charge.hourly) for charge in paid]),
            start,
        )

    def differ(self, run_id: str, vm_id: str, against: bytes | None) -> bool:
        """True if the stored comparison has another basis."""
        return against is None or decode_against(against).machines.get(vm_id) != self.of(run_id, vm_id)


def stored_machines_of(run: Run, against: bytes | None) -> tuple[str, ...]:
    """The machines a run is linked to, and those of `against`, its stored comparison: it was there before a retry."""
    were = () if against is None else decode_against(against).machines
    return tuple(dict.fromkeys((*were, *run.links.values())))


def _money(costs: Costs, bases: _Bases, run: Run, vms: list[Vm]) -> Money:
    there = {vm.vm_id: vm for vm in sorted(vms, key=lambda vm: vm.first_position)}
    mine = [charge for vm_id in there for charge in costs.paid_by(run.run_id, vm_id)]
    cost = costs.of_run(run.run_id, there)
    if not mine and run.cost is None:
        return cost, None
    submissions = {
        (occupancy.run_id, occupancy.job): vm
        for vm in there.values()
        for occupancy in vm.occupancies
        if occupancy.run_id == run.run_id
    }
    part = msgspec.structs.replace(costs.state, vms=Inventory(there), runs=Inventory({run.run_id: run}))
    reconciled = reconcile_run(run, mine, part, submissions)
    machines = {vm_id: bases.of(run.run_id, vm_id) for vm_id in there}
    causes = tuple((line.cause.value, line.amount) for line in reconciled.lines)
    use = None if run.use is None else UseSplitter(costs.state).total(mine)
    ours, theirs = reconciled.ours, reconciled.theirs
    return cost, _encode(Against(machines=machines, ours=ours, theirs=theirs, causes=causes, use=use))


def _row(costs: Costs, vm: Vm, folded: bytes) -> VmRow:
    bill, facts = costs.bill(vm.vm_id), vm.facts
    counted = msgspec.structs.replace(bill, intervals=()) if is_kept(vm) else bill  # its time is the machine's beneath
    paid = paid_of(vm, counted, UseSplitter(costs.state))
    days = days_of(vm, counted, lambda run_id: _user(costs, run_id))
    return VmRow(
        gpu=gpu_of(vm),
        vm_id=vm.vm_id,
        provider_id=vm.provider_id,
        name=facts.name,
        billed=vm.billed and vm.archive is None,
        ended_at=None if bill.open and vm.archive is None else bill.until,
        object=msgspec.json.encode(vm_object(vm, bill, _use_on(paid))),
        created=vm.created,
        cost=bill.cost,
        last_at=vm.last_at,
        kind=_kind(vm),
        spans=_encode(_stretches(bill)),
        folded=folded,
        paid=_encode(paid),
        days=_encode(msgspec.structs.replace(days, idle_inside=_idle_days(paid))),
        archive=vm.archive,
        hidden=vm.hidden,
    )


def vm_marks(vms: Iterable[Vm]) -> Iterator[Mark]:
    for vm in vms:
        subject = f"vm/{vm.vm_id}"
        yield Mark(position=vm.first_position, at=vm.first_at, kind="vm_started", subject=subject)
        for step in vm.steps:
            if step.after is VmState.TERMINATED:
                yield Mark(position=step.position, at=step.at, kind="vm_ended", subject=subject)


def _user(costs: Costs, run_id: str) -> str:
    run = costs.state.runs.get(run_id)
    return "unknown" if run is None else user_of(run)


def _kind(vm: Vm) -> str:
    """Backend, GPU and count, spot, priced, live: the keys of price estimates."""
    facts, part = vm.facts, "" if vm.archive is None else "archive/"
    gpu = f"{(facts.gpu or '').casefold()}:{facts.gpu_count}"
    return f"{part}{facts.backend}/{gpu}/{bool(facts.spot)}/{bool(vm.prices)}"


def _stretches(bill: Bill) -> list[tuple[int, int, int]]:
    """The bill in as few stretches as its prices allow; a last one of no length holds the rounding."""
    stretches: list[tuple[int, int, int]] = []
    hourly = None
    for interval in bill.intervals:
        until = bill.until if interval.until is None else interval.until
        if stretches and interval.hourly == hourly:
            since, _, cost = stretches[-1]
            stretches[-1] = (since, until, cost + interval.cost)
        else:
            stretches.append((interval.since, until, interval.cost))
        hourly = interval.hourly
    if bill.rounding and stretches:
        since, until, cost = stretches[-1]
        stretches[-1] = (since, until, cost - bill.rounding)
        stretches.append((until, until, bill.rounding))
    return stretches
