"""Who pays for which part of which machine.

A run pays its share of busy time, and the provisioning of the machine that its cold start made. Everything else of a
machine's bill is somebody's line too: idle, terminating, unconfirmed, provisioning for no known run, busy with no
known run, and what the backend's rounding adds. The lines of a machine sum to its cost exactly.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import pairwise

import msgspec

from engine.fold.run import Run
from engine.fold.vm_machine import Phase
from engine.fold.world_codec import WorldState
from engine.money.bill import Bill, Interval


class Line(StrEnum):
    """What a sum of money was for."""

    PROVISIONING = "provisioning"  # of a machine made for a known run
    BUSY = "busy"  # a known run's own time
    IDLE = "idle"
    TERMINATING = "terminating"
    UNCONFIRMED = "unconfirmed"
    UNATTRIBUTED = "unattributed"  # busy or provisioning for no run we know of, or blocks nobody used
    ROUNDING = "rounding"  # the backend's minimum and granularity


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One sum of a machine's bill. Micro-dollars."""

    vm_id: str
    line: Line
    run_id: str | None
    since: int
    until: int
    cost: int
    hourly: int
    """The price in force, of the whole machine."""


_OWN_LINES = {Phase.IDLE: Line.IDLE, Phase.TERMINATING: Line.TERMINATING, Phase.UNCONFIRMED: Line.UNCONFIRMED}


def charges(bill: Bill) -> Iterator[Charge]:
    """The bill of a machine, sum by sum, in order of time."""
    for index, interval in enumerate(bill.intervals):
        rounding = bill.rounding if index + 1 == len(bill.intervals) else 0
        until = bill.until if interval.until is None else interval.until
        for run_id, line, cost in _parts(interval, interval.cost - rounding):
            yield Charge(
                vm_id=bill.vm_id,
                line=line,
                run_id=run_id,
                since=interval.since,
                until=until,
                cost=cost,
                hourly=interval.hourly,
            )
        if rounding:
            yield Charge(
                vm_id=bill.vm_id,
                line=Line.ROUNDING,
                run_id=None,
                since=until,
                until=until,
                cost=rounding,
                hourly=interval.hourly,
            )


def run_costs(state: WorldState, bills: Mapping[str, Bill]) -> dict[str, int]:
    """run_id → micro-dollars, of every run that was on a machine, and 0 of those that ended without one.

    A run whose machine nobody has seen yet is left out: its cost is unknown.
    """
    costs: dict[str, int] = {}
    for vm in state.vms.values():
        for run_id in (*(one.run_id for one in vm.occupancies), *(() if vm.made_for is None else (vm.made_for,))):
            costs.setdefault(run_id, 0)
    for bill in bills.values():
        for charge in charges(bill):
            if charge.run_id is not None:
                costs[charge.run_id] = costs.get(charge.run_id, 0) + charge.cost
    for run in state.runs.values():
        if run.run_id not in costs and _never_had_one(run):
            costs[run.run_id] = 0
    return costs


def _parts(interval: Interval, cost: int) -> Iterator[tuple[str | None, Line, int]]:
    """(run, what for, how much) of one interval without its rounding."""
    paid = Line.PROVISIONING if interval.phase is Phase.PROVISIONING else Line.BUSY
    for share in interval.shares:
        yield share.run_id, paid, share.cost
    rest = cost - sum(share.cost for share in interval.shares)
    if rest or not interval.shares:
        yield None, _OWN_LINES.get(interval.phase, Line.UNATTRIBUTED), rest


def _never_had_one(run: Run) -> bool:
    """Whether it ended and its jobs were seen, none of which ever got a machine."""
    if not run.terminal or run.facts is None or not run.facts.jobs:
        return False
    submissions = [one for job in run.facts.jobs for one in job.submissions]
    return bool(submissions) and all(one.hostname is None and one.price is None for one in submissions)


def cut_at(charge: Charge, moments: Iterable[int]) -> list[Charge]:
    """A charge cut at moments inside it; the parts sum to it exactly. What has no length belongs to its own moment."""
    inside = sorted({moment for moment in moments if charge.since < moment < charge.until})
    if not inside:
        return [charge]
    edges = [charge.since, *inside, charge.until]
    length = charge.until - charge.since
    sums = [(2 * charge.cost * (edge - charge.since) + length) // (2 * length) for edge in edges]
    return [
        msgspec.structs.replace(charge, since=start, until=end, cost=after - before)
        for (start, end), (before, after) in zip(pairwise(edges), pairwise(sums), strict=True)
    ]


def all_charges(state: WorldState, bills: Mapping[str, Bill]) -> Iterator[Charge]:
    """Every sum of every machine, machines in order of first sight."""
    for vm_id in state.vms:
        if vm_id in bills:
            yield from charges(bills[vm_id])
