"""The bill of a machine that a listener keeps, cut by the kernels on it: each pays from its start to its end by the
listener's times. What is left of the listener's own time is idle, and no run pays it.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from engine.fold.vm import Phase, Vm
from engine.money.bill import Bill, Interval, Line, portions

_NEVER: Final = 1 << 62


class Stay(NamedTuple):
    """One kernel on the machine."""

    run_id: str
    since: int
    until: int


def stays_of(vm: Vm) -> list[Stay]:
    """The kernels that ran on a listener's machine, in order; one runs at a time."""
    found: list[Stay] = []
    for one in sorted(vm.occupancies, key=lambda one: one.started_at or 0):
        if one.started_at is not None:
            since = max(one.started_at, found[-1].until if found else 0)
            found.append(Stay(one.run_id, since, max(since, _NEVER if one.until is None else one.until)))
    return found


def cut_by_kernels(bill: Bill, listener: str, stays: list[Stay]) -> Bill:
    """The same bill to the micro-dollar, the listener's busy time given to its kernels."""
    sinces = [stay.since for stay in stays]
    edges = sorted({edge for stay in stays for edge in stay[1:]})
    found: list[Interval] = []
    for one in bill.intervals:
        until = bill.until if one.until is None else one.until
        if one.phase is not Phase.BUSY or until == one.since or all(run_id != listener for run_id, _, _ in one.parts):
            found.append(one)
            continue
        inside = edges[bisect_right(edges, one.since) :]
        cuts = [one.since, *(edge for edge in inside if edge < until), until]
        found += _pieces(one, cuts, listener, [_at(stays, sinces, start) for start in cuts[:-1]])
    return replace(bill, intervals=tuple(found))


def _at(stays: list[Stay], sinces: list[int], moment: int) -> str | None:
    place = bisect_right(sinces, moment) - 1
    return stays[place].run_id if place >= 0 and stays[place].until > moment else None


def _pieces(one: Interval, cuts: list[int], listener: str, kernels: list[str | None]) -> list[Interval]:
    """An interval cut at those moments, and the kernel of each piece instead of the listener."""
    alone = all(run_id == listener for run_id, _, _ in one.parts)
    costs = [portions(cost, cuts) for _, _, cost in one.parts]
    times = [portions(time, cuts) for time in one.times]
    lows, highs = portions(one.low, cuts), portions(one.high, cuts)
    rounding = one.cost - sum(cost for _, _, cost in one.parts)
    last, found = len(kernels) - 1, []
    for place, (kernel, (since, until)) in enumerate(zip(kernels, pairwise(cuts), strict=True)):
        parts = []
        for (run_id, line, _), paid, time in zip(one.parts, costs, times, strict=True):
            who = (kernel, Line.IDLE if kernel is None else Line.BUSY) if run_id == listener else (run_id, line)
            parts.append(((*who, paid[place]), time[place]))
        parts.sort(key=lambda part: part[0][0] is None)
        cost = sum(part[2] for part, _ in parts) + (rounding if place == last else 0)
        found.append(
            replace(
                one,
                phase=Phase.IDLE if alone and kernel is None else Phase.BUSY,
                since=since,
                until=one.until if place == last else until,
                cost=cost,
                low=min(cost, lows[place]),
                high=max(cost, highs[place]),
                parts=tuple(part for part, _ in parts),
                times=tuple(time for _, time in parts),
            )
        )
    return found
