"""The bills of a world, and who pays for which part of which machine. A run pays its share of busy time, and the
provisioning of the machine that its cold start made. The rest of a bill has lines of its own: idle, terminating,
unconfirmed, provisioning or busy for no known run, and the backend's rounding. The lines of a machine sum to its cost
exactly.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from engine.fold.archives import until_of
from engine.fold.lazy_things import some_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.kernel.listener_run import KERNELS, is_kept, listener_machine
from engine.money.bill import Bill, BillCache, Line, bill_vm, portions
from engine.money.kernels import cut_by_kernels, stays_of
from engine.money.prices import Book


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One sum of a machine's bill. Micro-dollars."""

    vm_id: str
    line: Line
    run_id: str | None
    since: int
    until: int
    time: int  # its share of the machine's time between the two; the shares of a machine sum to its life
    cost: int
    hourly: int  # the price in force, of the whole machine


class Costs:
    """The bills of one world and what its runs pay of them, each computed on demand. Belongs to the world's owner, who
    calls `moved` after the world changed. What no later poll changes of a long bill stays in the cache.
    """

    def __init__(self, state: WorldState, cache: BillCache | None = None) -> None:
        self.state = state
        self._cache = BillCache() if cache is None else cache
        self._book = Book.of(state)
        self._bills: dict[str, Bill] = {}
        self._charges: dict[str, dict[str | None, list[Charge]]] = {}

    def moved(self) -> None:
        """The world has changed: drop its old costs."""
        self._book = Book.of(self.state)
        self._bills.clear()
        self._charges.clear()

    def bill(self, vm_id: str) -> Bill:
        """The bill of one machine. An open one is costed to the newest poll of any live source, in an archive to the
        archive's last.
        """
        found = self._bills.get(vm_id)
        if found is None:
            found = self._bills[vm_id] = self.bill_of(self.state.vms[vm_id])
        return found

    def bill_of(self, vm: Vm) -> Bill:
        """As `bill`, of a machine that need not be kept in memory."""
        found = bill_vm(vm, until=until_of(self.state, vm), book=self._book, cache=self._cache)
        for run_id, kept in self._kept_on(vm):
            found = cut_by_kernels(found, run_id, stays_of(kept))
        return found

    def _kept_on(self, vm: Vm) -> Iterator[tuple[str, Vm]]:
        """The listeners' runs that were on a machine, and the kernels' machine of each."""
        if any(name.startswith(f"{KERNELS}/") for name in self.state.sources):
            for run_id in runs_on(vm):
                if (kept := self.state.vms.get(listener_machine(run_id))) is not None:
                    yield run_id, kept

    def payers(self, vm: Vm) -> tuple[str, ...]:
        """The runs that pay for a machine, kernels included."""
        kernels = (run_id for _, kept in self._kept_on(vm) for run_id in runs_on(kept))
        return tuple(dict.fromkeys((*runs_on(vm), *kernels)))

    def beneath(self, vm_ids: Iterable[str]) -> tuple[str, ...]:
        """The machines on which those of them are that listeners keep."""
        kept = (vm for vm_id in vm_ids if is_kept(vm := self.state.vms[vm_id]))
        runs = (run for vm in kept if (run := self.state.runs.get(vm.provider_id)) is not None)
        return tuple(dict.fromkeys(vm_id for run in runs for vm_id in run.links.values()))

    def bills(self) -> dict[str, Bill]:
        """The bill of every machine, in order of first sight."""
        return {vm_id: self.bill(vm_id) for vm_id in self.state.vms}

    def charges(self) -> Iterator[Charge]:
        """Every sum of every machine, machines in order of first sight."""
        for vm_id in self.state.vms:
            yield from self._of(vm_id)

    def _of(self, vm_id: str) -> Iterator[Charge]:
        """A machine's sums; none of a listener's machine, which is a part of the one beneath."""
        return iter(()) if is_kept(self.state.vms[vm_id]) else charges(self.bill(vm_id))

    def paid_by(self, run_id: str, vm_id: str) -> list[Charge]:
        """What a run pays of a machine's bill, in order of time."""
        by_run = self._charges.get(vm_id)
        if by_run is None:
            by_run = self._charges[vm_id] = {}
            for charge in self._of(vm_id):
                by_run.setdefault(charge.run_id, []).append(charge)
        return by_run.get(run_id, [])

    def of_run(self, run_id: str, machines: Iterable[str] | None = None) -> int | None:
        """What a run costs so far, micro-dollars: 0 if it ended without a machine, None while its machine is unknown
        or no source says since when it was there. `machines`: those it was on, if the caller knows them.
        """
        state = self.state
        run = state.runs.get(run_id)
        if run is None:
            return None
        if run.tasks:
            known = [cost for one in run.tasks if (cost := self.of_run(one)) is not None]
            return sum(known) if known else None
        if machines is None:  # a requeued run has no link to its earlier machines
            machines = dict.fromkeys(run.links.values())
            if run.requeues:
                later = some_of(state.vms, lambda brief: brief.at >= run.first_at)
                machines = (vm.vm_id for vm in later if run_id in vm.runs)
        found = [vm_id for vm_id in machines if (vm := state.vms.get(vm_id)) is not None and run_id in self.payers(vm)]
        if not found:
            return 0 if _never_had_one(run) else None
        there = list(dict.fromkeys((*found, *self.beneath(found))))
        cost = sum(charge.cost for vm_id in there for charge in self.paid_by(run_id, vm_id))
        return None if not cost and any(run_id in _undated(state.vms[vm_id]) for vm_id in found) else cost

    def of_runs(self) -> dict[str, int]:
        """run_id → micro-dollars, of every run whose cost is known; see `of_run`."""
        costs = {run.run_id: 0 for run in self.state.runs.values() if _never_had_one(run)}
        costs |= dict.fromkeys((run_id for vm in self.state.vms.values() for run_id in runs_on(vm)), 0)
        for charge in self.charges():
            if charge.run_id is not None:
                costs[charge.run_id] += charge.cost
        for run_id in (run_id for vm in self.state.vms.values() for run_id in _undated(vm)):
            if not costs.get(run_id):
                costs.pop(run_id, None)
        return costs


def _undated(vm: Vm) -> set[str]:
    """The runs that had left it before the poll that first showed them there: nothing dates when they came."""
    return {one.run_id for one in vm.occupancies if one.until is not None and one.since > one.until}


def runs_on(vm: Vm) -> tuple[str, ...]:
    """The runs that pay for a machine, in order."""
    made_for = () if vm.made_for is None else (vm.made_for,)
    return tuple(dict.fromkeys((*(one.run_id for one in vm.occupancies), *made_for)))


def charges(bill: Bill) -> Iterator[Charge]:
    last = len(bill.intervals) - 1
    for index, interval in enumerate(bill.intervals):
        vm_id, hourly, since = bill.vm_id, interval.hourly, interval.since
        until = bill.until if interval.until is None else interval.until
        for (run_id, line, cost), time in zip(interval.parts, interval.times, strict=True):
            yield Charge(
                vm_id=vm_id, line=line, run_id=run_id, since=since, until=until, time=time, cost=cost, hourly=hourly
            )
        if index == last and bill.rounding:
            line, cost = Line.ROUNDING, bill.rounding
            yield Charge(
                vm_id=vm_id, line=line, run_id=None, since=until, until=until, time=0, cost=cost, hourly=hourly
            )


def cut_at(charge: Charge, moments: Iterable[int]) -> list[Charge]:
    """A charge cut at moments inside it; the parts sum to it exactly. What has no length belongs to its own moment."""
    inside = sorted({moment for moment in moments if charge.since < moment < charge.until})
    if not inside:
        return [charge]
    edges = [charge.since, *inside, charge.until]
    return [
        msgspec.structs.replace(charge, since=start, until=end, cost=cost, time=time)
        for (start, end), cost, time in zip(
            pairwise(edges), portions(charge.cost, edges), portions(charge.time, edges), strict=True
        )
    ]


def _never_had_one(run: Run) -> bool:
    """Whether it ended, its jobs were seen, and none of them ever had a machine."""
    jobs = run.facts.jobs if run.terminal and run.facts is not None else ()
    attempts = [one for job in jobs for one in job.attempts]
    return bool(attempts) and all(one.hostname is None and one.price is None for one in attempts)
