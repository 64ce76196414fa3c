"""Spend and use of machines by day (UTC): the days of one bill, and the sums of many bills for charts. A bill's days
sum to it exactly, and so do the stacks of any of the three groupings.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from functools import lru_cache
from heapq import nsmallest
from itertools import pairwise
from typing import Annotated, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from engine.fold.vm import Phase
from engine.money.bill import Bill
from engine.money.costs import charges, cut_at
from engine.money.report import midnights
from engine.money.tables import Cell, Tabled, dollars
from engine.policy import DAY
from engine.wire import Shape, Usd
from events.clock import SECOND

Stack = Literal["line", "gpu", "user"]
Strip = Literal["gpu", "vm"]
STACKS: Final[tuple[Stack, ...]] = get_args(Stack)
STRIPS: Final[tuple[Strip, ...]] = get_args(Strip)
SERIES: Final = 7  # series of a chart; the rest is summed as `OTHER`
MACHINES: Final = 60  # strips of machines shown, those billed longest
OTHER: Final = "(other)"
RANGE: Final = 30  # days that a chart shows unless it is told otherwise
MOST_DAYS: Final = 3660


class DaySpend(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one machine cost on one day for one purpose."""

    day: int  # UTC, since 1970
    user: str | None  # who submitted the runs that pay; None: no run pays
    line: str
    cost: int  # micro-dollars


class DayUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How long one machine was billed and busy on one day, microseconds."""

    day: int
    billed: int
    busy: int


class MachineDays(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One machine's bill by day."""

    spend: tuple[DaySpend, ...] = ()
    use: tuple[DayUse, ...] = ()


def days_of(bill: Bill, user: Callable[[str], str]) -> MachineDays:
    """The days of one bill; `user` names who submitted a run."""
    spend: dict[tuple[int, str | None, str], int] = {}
    for charge in charges(bill):
        who = None if charge.run_id is None else user(charge.run_id)
        for part in cut_at(charge, midnights(charge.since, charge.until)):
            key = (part.since // DAY, who, part.line.value)
            spend[key] = spend.get(key, 0) + part.cost
    use: dict[int, list[int]] = {}
    for one in bill.intervals:
        end = bill.until if one.until is None else one.until
        edges = [one.since, *midnights(one.since, end), end]
        for start, stop in pairwise(edges):
            found = use.setdefault(start // DAY, [0, 0])
            found[0] += stop - start
            found[1] += stop - start if one.phase is Phase.BUSY else 0
    in_order = sorted(spend.items(), key=lambda one: (one[0][0], one[0][1] or "", one[0][2]))
    return MachineDays(
        spend=tuple(DaySpend(*key, cost) for key, cost in in_order),
        use=tuple(DayUse(day, *found) for day, found in sorted(use.items()) if found[0]),
    )


# -- sums of many ------------------------------------------------------------------------------------------------------


class BilledMachine(msgspec.Struct, frozen=True, gc=False):
    """A machine whose days are summed."""

    vm_id: str
    name: str | None
    gpu: str  # `MI300X:2`; `none`
    days: MachineDays


class DayRange(NamedTuple):
    """Days since 1970, the first and the last included."""

    first: int
    last: int


class Series(Shape, frozen=True, kw_only=True):
    """One part of every day's stack."""

    key: Annotated[str, Meta(description="A purpose, a GPU or a user; in parentheses what no run pays, or the rest.")]
    total_usd: Usd
    daily: Annotated[tuple[str, ...], Meta(description="US dollars of each day of `days`, six decimals.")]


class Spend(Tabled, frozen=True, kw_only=True):
    """What machines cost by day. The series of a day sum to it exactly, and the days to the total."""

    by: Stack
    days: tuple[str, ...]  # without gaps
    daily: Annotated[tuple[str, ...], Meta(description="US dollars of each day, six decimals.")]
    total_usd: Usd
    series: tuple[Series, ...]  # the most expensive first, what no run pays and the rest last

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "day", *(one.key for one in self.series), "total"
        for place, day in enumerate(self.days):
            yield day, *(one.daily[place] for one in self.series), self.daily[place]
        yield "total", *(dollars(one.total_usd) for one in self.series), dollars(self.total_usd)


class UseStrip(Shape, frozen=True, kw_only=True):
    """The machines of one GPU, or one machine, day by day."""

    key: str  # a GPU or a machine's id
    label: str
    billed_seconds: float
    busy_seconds: float
    days: Annotated[
        tuple[tuple[float, float], ...], Meta(description="(billed, busy) seconds of each day of the answer's `days`.")
    ]


class Utilisation(Tabled, frozen=True, kw_only=True):
    """How long machines were busy of the time they were billed, by day."""

    by: Strip
    days: tuple[str, ...]
    strips: tuple[UseStrip, ...]  # those billed longest first; of machines at most 60, the rest as `(other)`
    total: UseStrip

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "day", "key", "label", "billed_seconds", "busy_seconds", "busy_percent"
        for one in (*self.strips, self.total):
            for day, (billed, busy) in zip(self.days, one.days, strict=True):
                yield day, one.key, one.label, billed, busy, round(100 * busy / billed, 1) if billed else None


def spend_of(machines: Iterable[BilledMachine], by: Stack, shown: DayRange) -> Spend:
    """The spend of machines in a range of days, which begins with the first that has any."""
    sums: dict[str, dict[int, int]] = {}
    for machine in machines:
        for one in machine.days.spend:
            if shown.first <= one.day <= shown.last:
                key = _series(by, machine.gpu, one)
                found = sums.setdefault(key, {})
                found[one.day] = found.get(one.day, 0) + one.cost
    order = sorted(sums, key=lambda key: (key.startswith("("), -sum(sums[key].values()), key))
    if len(order) > SERIES:
        paid = [key for key in order if not key.startswith("(")]
        rest = paid[max(1, SERIES - 1 - (len(order) - len(paid))) :]
        sums[OTHER] = {}
        for key in rest:
            for day, cost in sums[key].items():
                sums[OTHER][day] = sums[OTHER].get(day, 0) + cost
        order = [key for key in order if key not in rest] + [OTHER]
    days = _without_gaps((day for found in sums.values() for day in found), shown)
    series = tuple(
        Series(
            key=key,
            total_usd=sum(sums[key].values()),
            daily=tuple(dollars(sums[key].get(day, 0)) for day in days),
        )
        for key in order
    )
    daily = [sum(sums[key].get(day, 0) for key in order) for day in days]
    return Spend(
        by=by,
        days=tuple(map(day_text, days)),
        daily=tuple(map(dollars, daily)),
        total_usd=sum(daily),
        series=series,
    )


def utilisation_of(machines: Iterable[BilledMachine], by: Strip, shown: DayRange) -> Utilisation:
    """Busy and billed time of machines in a range of days, which begins with the first that has any."""
    sums: dict[str, dict[int, list[int]]] = {} if by == "gpu" else {OTHER: {}}
    labels: dict[str, str] = {}
    used: list[tuple[int, str, BilledMachine]] = []  # (time billed, negative, id, machine)
    for machine in machines:
        found = sums.setdefault(machine.gpu, {}) if by == "gpu" else sums[OTHER]
        if length := _add(found, machine, shown):
            used.append((-length, machine.vm_id, machine))
    whole: dict[int, list[int]] = {}
    for found in sums.values():
        for day, (length, busy) in found.items():
            total = whole.setdefault(day, [0, 0])
            total[0] += length
            total[1] += busy
    if by == "vm":  # sums for each of thousands of machines cost more than all else
        alone = nsmallest(MACHINES, used, key=lambda one: one[:2])
        for _, key, machine in alone:
            labels[key], sums[key] = machine.name or key, {}
            _add(sums[key], machine, shown)
            _add(sums[OTHER], machine, shown, sign=-1)
        labels[OTHER] = f"{len(used) - len(alone)} other machines"
        if len(used) == len(alone):
            del sums[OTHER]
    order = sorted(sums, key=lambda key: (key == OTHER, -sum(length for length, _ in sums[key].values()), key))
    days = _without_gaps(whole, shown)
    return Utilisation(
        by=by,
        days=tuple(map(day_text, days)),
        strips=tuple(_strip(key, labels.get(key, key), sums[key], days) for key in order if sums[key]),
        total=_strip("total", "all machines", whole, days),
    )


def range_of(since: int | None, until: int | None, now: int) -> DayRange:
    """The days of a range of moments; by default the last `RANGE` days up to `until`, and up to `now`."""
    last = (now if until is None else min(until, now)) // DAY
    first = last - RANGE + 1 if since is None else since // DAY
    return DayRange(max(first, last - MOST_DAYS + 1), last)


@lru_cache(maxsize=4096)
def day_text(day: int) -> str:
    """`2026-11-20`."""
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def _series(by: Stack, gpu: str, one: DaySpend) -> str:
    if by == "gpu":
        return gpu
    return one.line if by == "line" else f"({one.line})" if one.user is None else one.user


def _without_gaps(days: Iterable[int], shown: DayRange) -> range:
    first = min(days, default=None)
    return range(0) if first is None else range(first, shown.last + 1)


def _add(sums: dict[int, list[int]], machine: BilledMachine, shown: DayRange, *, sign: int = 1) -> int:
    """Add a machine's days in a range, or take them away; how long it was billed on them."""
    whole = 0
    for one in machine.days.use:
        if shown.first <= one.day <= shown.last:
            found = sums.get(one.day)
            if found is None:
                found = sums[one.day] = [0, 0]
            found[0] += sign * one.billed
            found[1] += sign * one.busy
            whole += one.billed
    return whole


def _strip(key: str, label: str, found: dict[int, list[int]], days: Iterable[int]) -> UseStrip:
    return UseStrip(
        key=key,
        label=label,
        billed_seconds=sum(billed for billed, _ in found.values()) / SECOND,
        busy_seconds=sum(busy for _, busy in found.values()) / SECOND,
        days=tuple((billed / SECOND, busy / SECOND) for billed, busy in (found.get(day, (0, 0)) for day in days)),
    )
