"""The bills of a world, and who pays for which part of which machine. A run pays its share of busy time, and the
provisioning of the machine that its cold start made. The rest of a bill has lines of its own: idle, terminating,
unconfirmed, provisioning or busy for no known run, and the backend's rounding. The lines of a machine sum to its cost
exactly.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from steno.engine.money.bill import Bill, BillCache, Interval, Line, bill_vm, portions
from steno.engine.money.life import NEVER, Holds, RunOccupancy
from steno.engine.money.prices import Book
from steno.engine.state.archives import until_of
from steno.engine.state.kernel_mark import KERNELS, is_kept, listener_machine
from steno.engine.state.run import Run
from steno.engine.state.vm import Phase, Vm
from steno.engine.state.world import World


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of a machine's bill, in micro-dollars."""

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

    def __init__(self, state: World, book: Book | None = None) -> None:
        """`book`: the prices; None: those of the world."""
        self.state = state
        self._cache = BillCache()
        self._book = Book.of(state) if book is None else book
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
        bill = self._bills.get(vm_id)
        if bill is None:
            bill = self._bills[vm_id] = self.bill_of(self.state.vms[vm_id])
        return bill

    def bill_of(self, vm: Vm) -> Bill:
        """As `bill`, of a machine that need not be kept in memory."""
        bill = bill_vm(vm, until=until_of(self.state, vm), book=self._book, cache=self._cache)
        for run_id, kept in self._kept_on(vm):
            bill = cut_by_kernels(bill, run_id, stays_of(kept))
        return bill

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
        return {vm_id: self.bill(vm_id) for vm_id in self.state.vms.ids()}

    def charges(self) -> Iterator[Charge]:
        """Every sum of every machine, machines in order of first sight."""
        for vm_id in self.state.vms.ids():
            yield from self._of(vm_id)

    def _of(self, vm_id: str) -> Iterator[Charge]:
        """A machine's sums; none of a listener's machine, which is a part of the one beneath."""
        return iter(()) if is_kept(self.state.vms[vm_id]) else charges(self.bill(vm_id))

    def paid_by(self, run_id: str, vm_id: str) -> list[Charge]:
        """The sums of a machine's bill that a run pays, in order of time."""
        by_run = self._charges.get(vm_id)
        if by_run is None:
            by_run = self._charges[vm_id] = {}
            for charge in self._of(vm_id):
                by_run.setdefault(charge.run_id, []).append(charge)
        return by_run.get(run_id, [])

    def of_run(self, run_id: str, machines: Iterable[str] | None = None) -> int | None:
        """The cost of a run so far, micro-dollars: 0 if it ended without a machine, None while its machine is unknown
        or no source says since when it was there. `machines`: those it was on, if the caller knows them.
        """
        state = self.state
        run = state.runs.get(run_id)
        if run is None:
            return None
        if run.tasks:
            known = [cost for task in run.tasks if (cost := self.of_run(task)) is not None]
            return sum(known) if known else None
        paid, there = self.machines_of(run, machines)
        if not paid:
            return 0 if _never_had_one(run) else None
        cost = sum(charge.cost for vm_id in there for charge in self.paid_by(run_id, vm_id))
        return None if not cost and any(run_id in _undated(state.vms[vm_id]) for vm_id in paid) else cost

    def machines_of(self, run: Run, machines: Iterable[str] | None = None) -> tuple[list[str], list[str]]:
        """(the machines that a run pays for, those and the machines beneath); `machines`: as in `of_run`."""
        state = self.state
        if machines is None:  # a requeued run has no link to its earlier machines
            machines = dict.fromkeys(run.links.values())
            if run.requeues:
                later = (*state.vms.open(), *state.vms.ended_since(run.first_at))
                machines = (vm.vm_id for vm in later if run.run_id in vm.runs)
        there = ((vm_id, state.vms.get(vm_id)) for vm_id in machines)
        paid = [vm_id for vm_id, vm in there if vm is not None and run.run_id in self.payers(vm)]
        return paid, list(dict.fromkeys((*paid, *self.beneath(paid))))

    def of_runs(self) -> dict[str, int]:
        """run_id → micro-dollars, of every run whose cost is known; see `of_run`."""
        costs = {run.run_id: 0 for run in self.state.runs.all() if _never_had_one(run)}
        costs |= dict.fromkeys((run_id for vm in self.state.vms.all() for run_id in runs_on(vm)), 0)
        for charge in self.charges():
            if charge.run_id is not None:
                costs[charge.run_id] += charge.cost
        for run_id in (run_id for vm in self.state.vms.all() for run_id in _undated(vm)):
            if not costs.get(run_id):
                costs.pop(run_id, None)
        return costs


def _undated(vm: Vm) -> set[str]:
    """The runs that had left it before the poll that first showed them there: nothing dates when they came."""
    return {stay.run_id for stay in vm.occupancies if stay.until is not None and stay.since > stay.until}


def runs_on(vm: Vm) -> tuple[str, ...]:
    """The runs that pay for a machine, in order."""
    made_for = () if vm.made_for is None else (vm.made_for,)
    return tuple(dict.fromkeys((*(stay.run_id for stay in vm.occupancies), *made_for)))


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


def cut_by_keeper(charge: Charge, vm: Vm) -> list[tuple[Charge, str | None]]:
    """A charge cut at the edges of the times for which the machine was kept, each part with its keeper. The parts sum
    to the charge exactly.
    """
    parts = cut_at(charge, (edge for span in vm.keeps for edge in (span.since, span.until))) if vm.keeps else [charge]
    return [(part, keeper_of(part, vm)) for part in parts]


def keeper_of(charge: Charge, vm: Vm) -> str | None:
    """The user who pays for it because they had the machine kept: what no run pays of idle time. None: nobody does."""
    idle = charge.run_id is None and charge.line is Line.IDLE
    return kept.by if idle and (kept := vm.kept(charge.since)) is not None else None


def _never_had_one(run: Run) -> bool:
    """True if it ended, its jobs were seen, and none of them ever had a machine."""
    jobs = run.facts.jobs if run.terminal and run.facts is not None else ()
    attempts = [attempt for job in jobs for attempt in job.attempts]
    return bool(attempts) and all(attempt.hostname is None and attempt.price is None for attempt in attempts)


# -- a machine that a listener keeps: each kernel on it pays from its start to its end by the listener's times; no run
# pays the rest of the listener's own time, which is idle


def stays_of(vm: Vm) -> list[RunOccupancy]:
    """The kernels that ran on a listener's machine, in order; one runs at a time."""
    stays: list[RunOccupancy] = []
    for stay in sorted(vm.occupancies, key=lambda occupancy: occupancy.started_at or 0):
        if stay.started_at is not None:
            since = max(stay.started_at, stays[-1].until if stays else 0)
            until = max(since, NEVER if stay.until is None else stay.until)
            stays.append(RunOccupancy(stay.run_id, since, until, blocks=1))
    return stays


def cut_by_kernels(bill: Bill, listener: str, stays: list[RunOccupancy]) -> Bill:
    """The same bill to the micro-dollar, the listener's busy time given to its kernels."""
    holds, edges = Holds(stays, in_turn=True), sorted({edge for stay in stays for edge in (stay.since, stay.until)})
    intervals: list[Interval] = []
    for interval in bill.intervals:
        until = bill.until if interval.until is None else interval.until
        if (
            interval.phase is not Phase.BUSY
            or until == interval.since
            or all(run_id != listener for run_id, _, _ in interval.parts)
        ):
            intervals.append(interval)
            continue
        inside = edges[bisect_right(edges, interval.since) :]
        cuts = [interval.since, *(edge for edge in inside if edge < until), until]
        kernels = [next((hold.run_id for hold in holds.at(start)), None) for start in cuts[:-1]]
        intervals += _pieces(interval, cuts, listener, kernels)
    return replace(bill, intervals=tuple(intervals))


def _pieces(whole: Interval, cuts: list[int], listener: str, kernels: list[str | None]) -> list[Interval]:
    """An interval cut at those moments, and the kernel of each piece instead of the listener."""
    alone = all(run_id == listener for run_id, _, _ in whole.parts)
    costs = [portions(cost, cuts) for _, _, cost in whole.parts]
    times = [portions(time, cuts) for time in whole.times]
    lows, highs = portions(whole.low, cuts), portions(whole.high, cuts)
    rounding = whole.cost - sum(cost for _, _, cost in whole.parts)
    last, pieces = len(kernels) - 1, []
    for place, (kernel, (since, until)) in enumerate(zip(kernels, pairwise(cuts), strict=True)):
        parts = []
        for (run_id, line, _), paid, time in zip(whole.parts, costs, times, strict=True):
            who = (kernel, Line.IDLE if kernel is None else Line.BUSY) if run_id == listener else (run_id, line)
            parts.append(((*who, paid[place]), time[place]))
        parts.sort(key=lambda part: part[0][0] is None)
        cost = sum(part[2] for part, _ in parts) + (rounding if place == last else 0)
        pieces.append(
            replace(
                whole,
                phase=Phase.IDLE if alone and kernel is None else Phase.BUSY,
                since=since,
                until=whole.until if place == last else until,
                cost=cost,
                low=min(cost, lows[place]),
                high=max(cost, highs[place]),
                parts=tuple(part for part, _ in parts),
                times=tuple(time for _, time in parts),
            )
        )
    return pieces
