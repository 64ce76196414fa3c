"""Spend and use of machines by day (UTC): the days of one bill, and the sums of many bills for charts. A bill's days
sum to it exactly, and so do the stacks of any of the three groupings.
"""

from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from functools import lru_cache
from heapq import nsmallest
from itertools import pairwise
from typing import Annotated, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from steno.engine.money.bill import Bill
from steno.engine.money.costs import charges, cut_at, cut_by_keeper
from steno.engine.money.report import midnights
from steno.engine.state.policy import DAY
from steno.engine.state.vm import Phase, Vm
from steno.engine.wire import Cell, Shape, Tabled, Usd, dollars
from steno.events.clock import SECOND

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
    """The cost of a machine on one day for one purpose."""

    day: int  # UTC, since 1970
    user: str | None  # who submitted the runs that pay, or kept the machine; None: nobody pays
    line: str
    cost: int  # micro-dollars


class DayUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How long one machine was billed and busy on one day, microseconds."""

    day: int
    billed: int
    busy: int


class MachineDays(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A machine's bill by day."""

    spend: tuple[DaySpend, ...] = ()
    use: tuple[DayUse, ...] = ()
    idle_inside: tuple[tuple[int, int], ...] = ()  # (day, micro-dollars) of busy time in which the GPUs were idle


def days_of(vm: Vm, bill: Bill, user: Callable[[str], str]) -> MachineDays:
    """The days of a machine's bill; `user` names who submitted a run."""
    spend: dict[tuple[int, str | None, str], int] = {}
    for charge, keeper in (part for whole in charges(bill) for part in cut_by_keeper(whole, vm)):
        who = keeper if charge.run_id is None else user(charge.run_id)
        for part in cut_at(charge, midnights(charge.since, charge.until)):
            key = (part.since // DAY, who, part.line.value)
            spend[key] = spend.get(key, 0) + part.cost
    use: dict[int, list[int]] = {}
    for interval in bill.intervals:
        end = bill.until if interval.until is None else interval.until
        edges = [interval.since, *midnights(interval.since, end), end]
        for start, stop in pairwise(edges):
            used = use.setdefault(start // DAY, [0, 0])
            used[0] += stop - start
            used[1] += stop - start if interval.phase is Phase.BUSY else 0
    in_order = sorted(spend.items(), key=lambda entry: (entry[0][0], entry[0][1] or "", entry[0][2]))
    return MachineDays(
        spend=tuple(DaySpend(*key, cost) for key, cost in in_order),
        use=tuple(DayUse(day, *used) for day, used in sorted(use.items()) if used[0]),
    )


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
    """A part of every day's stack."""

    key: Annotated[str, Meta(description="A purpose, a GPU or a user; in parentheses what no run pays, or the rest.")]
    total_usd: Usd
    daily: Annotated[tuple[str, ...], Meta(description="US dollars of each day of `days`, six decimals.")]


class Spend(Tabled, frozen=True, kw_only=True):
    """The cost of machines by day. The series of a day sum to it exactly, and the days to the total."""

    by: Stack
    days: tuple[str, ...]  # without gaps
    daily: Annotated[tuple[str, ...], Meta(description="US dollars of each day, six decimals.")]
    total_usd: Usd
    series: tuple[Series, ...]  # the most expensive first, what no run pays and the rest last

    def table(self) -> Iterator[tuple[Cell, ...]]:
        yield "day", *(series.key for series in self.series), "total"
        for place, day in enumerate(self.days):
            yield day, *(series.daily[place] for series in self.series), self.daily[place]
        yield "total", *(dollars(series.total_usd) for series in self.series), dollars(self.total_usd)


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
        for strip in (*self.strips, self.total):
            for day, (billed, busy) in zip(self.days, strip.days, strict=True):
                yield day, strip.key, strip.label, billed, busy, round(100 * busy / billed, 1) if billed else None


def spend_of(machines: Iterable[BilledMachine], by: Stack, span: DayRange) -> Spend:
    """The spend of machines in a range of days, which begins with the first that has any."""
    sums: dict[str, dict[int, int]] = {}
    for machine in machines:
        for spent in machine.days.spend:
            if span.first <= spent.day <= span.last:
                key = _series(by, machine.gpu, spent)
                by_day = sums.setdefault(key, {})
                by_day[spent.day] = by_day.get(spent.day, 0) + spent.cost
    order = sorted(sums, key=lambda key: (key.startswith("("), -sum(sums[key].values()), key))
    if len(order) > SERIES:
        paid = [key for key in order if not key.startswith("(")]
        rest = paid[max(1, SERIES - 1 - (len(order) - len(paid))) :]
        sums[OTHER] = {}
        for key in rest:
            for day, cost in sums[key].items():
                sums[OTHER][day] = sums[OTHER].get(day, 0) + cost
        order = [key for key in order if key not in rest] + [OTHER]
    days = _without_gaps((day for by_day in sums.values() for day in by_day), span)
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


def utilisation_of(machines: Iterable[BilledMachine], by: Strip, span: DayRange) -> Utilisation:
    """Busy and billed time of machines in a range of days, which begins with the first that has any."""
    sums: dict[str, dict[int, list[int]]] = {} if by == "gpu" else {OTHER: {}}
    labels: dict[str, str] = {}
    used: list[tuple[int, str, BilledMachine]] = []  # (time billed, negative, id, machine)
    for machine in machines:
        by_day = sums.setdefault(machine.gpu, {}) if by == "gpu" else sums[OTHER]
        if length := _add(by_day, machine, span):
            used.append((-length, machine.vm_id, machine))
    whole: dict[int, list[int]] = {}
    for by_day in sums.values():
        for day, (length, busy) in by_day.items():
            total = whole.setdefault(day, [0, 0])
            total[0] += length
            total[1] += busy
    if by == "vm":  # sums for each of thousands of machines cost more than all else
        alone = nsmallest(MACHINES, used, key=lambda entry: entry[:2])
        for _, key, machine in alone:
            labels[key], sums[key] = machine.name or key, {}
            _add(sums[key], machine, span)
            _add(sums[OTHER], machine, span, sign=-1)
        labels[OTHER] = f"{len(used) - len(alone)} other machines"
        if len(used) == len(alone):
            del sums[OTHER]
    order = sorted(sums, key=lambda key: (key == OTHER, -sum(length for length, _ in sums[key].values()), key))
    days = _without_gaps(whole, span)
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


def month_days(month: str) -> DayRange:
    """The days of a month in UTC. Raises `ValueError`: the text is not `YYYY-MM`."""
    first = date.fromisoformat(f"{month}-01" if len(month) == len("2026-11") else "")
    since = (first - date(1970, 1, 1)).days
    return DayRange(since, since + monthrange(first.year, first.month)[1] - 1)


def _series(by: Stack, gpu: str, spent: DaySpend) -> str:
    if by == "gpu":
        return gpu
    return spent.line if by == "line" else f"({spent.line})" if spent.user is None else spent.user


def _without_gaps(days: Iterable[int], span: DayRange) -> range:
    first = min(days, default=None)
    return range(0) if first is None else range(first, span.last + 1)


def _add(sums: dict[int, list[int]], machine: BilledMachine, span: DayRange, *, sign: int = 1) -> int:
    """Add a machine's days in a range, or take them away; how long it was billed on them."""
    whole = 0
    for use in machine.days.use:
        if span.first <= use.day <= span.last:
            times = sums.get(use.day)
            if times is None:
                times = sums[use.day] = [0, 0]
            times[0] += sign * use.billed
            times[1] += sign * use.busy
            whole += use.billed
    return whole


def _strip(key: str, label: str, by_day: dict[int, list[int]], days: Iterable[int]) -> UseStrip:
    return UseStrip(
        key=key,
        label=label,
        billed_seconds=sum(billed for billed, _ in by_day.values()) / SECOND,
        busy_seconds=sum(busy for _, busy in by_day.values()) / SECOND,
        days=tuple((billed / SECOND, busy / SECOND) for billed, busy in (by_day.get(day, (0, 0)) for day in days)),
    )
