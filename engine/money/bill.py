"""The bill of one machine: its life in intervals, each at the price then in force, with low and high bounds."""

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.money.life import (
    Holds,
    RunOccupancy,
    blocks_of,
    certain_end,
    certain_start,
    holds_of,
    life_end,
    order_of,
    possible_end,
    possible_start,
)
from steno.engine.money.prices import HIGH, LOW, Book, Tariff, exact, rung_at
from steno.engine.money.spans import Begun, Slice, slices
from steno.engine.state.changes import VmStep
from steno.engine.state.policy import HOUR, Billing
from steno.engine.state.states import VmState
from steno.engine.state.vm import Occupancy, Phase, Vm, VmDate


class Line(StrEnum):
    """The purpose of a sum of money."""

    PROVISIONING = "provisioning"  # of a machine made for a known run
    BUSY = "busy"  # a known run's own time
    IDLE = "idle"
    TERMINATING = "terminating"
    UNCONFIRMED = "unconfirmed"
    UNATTRIBUTED = "unattributed"  # busy or provisioning for no run we know of, or blocks nobody used
    ROUNDING = "rounding"  # the backend's minimum and granularity


_OWN_LINES: Final = {Phase.IDLE: Line.IDLE, Phase.TERMINATING: Line.TERMINATING, Phase.UNCONFIRMED: Line.UNCONFIRMED}


class Interval(Struct, frozen=True, kw_only=True):
    """A part of a machine's life in one phase, at one price, with the same runs on it. Money is micro-dollars."""

    phase: Phase
    since: int
    until: int | None  # None: it goes on; costed to the bill's `until`
    hourly: int  # the price in force
    cost: int  # rounded so that the intervals of a bill sum to its cost
    low: int  # the phase began as late and ended as early as can be, at the lower price
    high: int  # the phase began as early and ended as late as can be, at the higher price
    parts: tuple[tuple[str | None, Line, int], ...]
    """(run, line, micro-dollars), those without a run last; they sum to `cost` without the backend's rounding."""
    times: tuple[int, ...]  # the share of each part in the interval's length, by blocks; they sum to it


class Bill(Struct, frozen=True, kw_only=True):
    """The cost of one machine. Times are microseconds UTC, money micro-dollars."""

    vm_id: str
    intervals: tuple[Interval, ...] = ()  # contiguous, from `since` to `until`
    since: int
    until: int  # the end of its life, or of what is known of it if it is `open`
    open: bool
    charged: int = 0  # microseconds charged: the life, rounded as its backend does
    rounding: int = 0  # the part of `cost` that this rounding adds, in the last interval
    cost: int = 0
    low: int = 0
    high: int = 0
    hourly: int | None
    """The price in force at `until`, even if no interval has begun at it; None: no price was ever given."""


OPEN: Final = 32  # phases computed again with each poll, before they are settled too
_MACHINES: Final = 64  # machines cached


class PhaseStart(NamedTuple):
    """Where a phase begins, after so many intervals of `total` micro-dollars × HOUR."""

    begun: Begun
    intervals: int
    total: int


class SettledPart(NamedTuple):
    """The beginning of a machine's life, and all it was computed from."""

    mark: PhaseStart
    intervals: tuple[Interval, ...]
    steps: tuple[VmStep, ...]  # past steps, and the step after them
    occupancies: tuple[Occupancy, ...]  # runs that have left, the last of which came when this was over
    holds: tuple[RunOccupancy, ...]  # the last of these runs, and earlier runs that may still matter
    dates: tuple[VmDate, ...]  # what the provider dated up to the last past step
    basis: tuple[object, ...]  # what else it was computed from


class BillCache:
    """The parts of the bills of some machines that no later poll changes: saves time and changes no result. Before a
    part is used, everything it was computed from is compared with the machine as it is now. So a machine that runs for
    months is billed from its last few phases on.
    """

    def __init__(self, phases: int = OPEN) -> None:
        self._kept: dict[str, SettledPart] = {}
        self.phases = phases  # how many stay open; more are settled at twice as many

    def opened(self, vm: Vm, certain: int, basis: tuple[object, ...]) -> tuple[SettledPart | None, list[RunOccupancy]]:
        """Where to continue the bill of a machine that certainly existed up to `certain` (None: at its beginning), and
        the runs that may matter from there on; the last of them came since.
        """
        kept, blocks = self._kept.get(vm.vm_id), blocks_of(vm)
        if kept is not None and kept.basis == basis and _is_of(kept, vm, certain):
            since, behind = kept.mark.begun.since, len(kept.occupancies)
            tail = vm.occupancies[behind:]
            if _in_order(vm.occupancies[max(0, behind - 1) :]) and all(stay.seen_at > since for stay in tail):
                holds = holds_of(tail, blocks, kept.holds)
                if all(hold.since > since for hold in holds[len(kept.holds) :]):
                    return kept, holds
        return None, holds_of(sorted(vm.occupancies, key=order_of), blocks)

    def keep(
        self,
        vm: Vm,
        certain: int,
        basis: tuple[object, ...],
        opened: tuple[SettledPart | None, list[RunOccupancy]],
        marks: list[PhaseStart],
        bill: list[Interval],
    ) -> None:
        """Settle what can be settled by now. `marks`: those met since it was `opened`, in order; `bill`: the whole
        bill. Settles up to before the arrival of the last run that left, since the next begins no sooner;
        later if many phases have passed since and all runs have left.
        """
        if len(marks) <= 2 * self.phases:
            return
        settled, holds = opened
        behind = 0 if settled is None else len(settled.occupancies)
        tail = vm.occupancies[behind:]
        if not _in_order(tail):
            return
        gone = next((place for place, stay in enumerate(tail) if stay.until is None), len(tail))
        before = holds[: len(holds) - len(tail) + gone]
        fit = [
            mark for mark in marks[: -self.phases] if mark.begun.edge.at <= certain and mark.begun.step < len(vm.steps)
        ]
        early = [mark for mark in fit if before and mark.begun.since <= before[-1].since]
        if gone == len(tail) and len(fit) - len(early) > 2 * self.phases:
            early = fit
        if not early:
            return
        begun = early[-1].begun
        if before and behind + gone:
            # Only how it ended: what came after it is computed again.
            last = vm.occupancies[behind + gone - 1]
            before[-1] = before[-1]._replace(until=max(before[-1].since, last.since, last.until or 0))
        entered = min(begun.edge.low, begun.edge.at)
        self._kept.pop(vm.vm_id, None)
        self._kept[vm.vm_id] = SettledPart(
            mark=early[-1],
            intervals=tuple(bill[: early[-1].intervals]),
            steps=vm.steps[: begun.step],
            occupancies=vm.occupancies[: behind + gone],
            holds=(*(hold for hold in before[:-1] if hold.until > entered), *before[-1:]),
            dates=_up_to(vm.dates, begun.since),
            basis=basis,
        )
        for forgotten in list(self._kept)[:-_MACHINES]:
            self._kept.pop(forgotten, None)


def _is_of(kept: SettledPart, vm: Vm, certain: int) -> bool:
    behind = len(kept.steps)
    return (
        kept.mark.begun.edge.at <= certain
        and len(vm.steps) > behind
        and kept.steps == vm.steps[:behind]
        and kept.occupancies == vm.occupancies[: len(kept.occupancies)]
        and kept.dates == _up_to(vm.dates, kept.mark.begun.since)
    )


def _up_to(dates: tuple[VmDate, ...], moment: int) -> tuple[VmDate, ...]:
    return dates[: bisect_right(dates, moment, key=lambda date: date.at)]


def _in_order(occupancies: Sequence[Occupancy]) -> bool:
    return all(order_of(earlier) <= order_of(other) for earlier, other in pairwise(occupancies))


def bill_vm(vm: Vm, *, until: int, book: Book, cache: BillCache | None = None) -> Bill:
    """The bill of one machine; an open one is costed to `until`. The cost is rounded at every edge of the sum so far,
    not interval by interval: so the intervals sum to it exactly, and a later poll changes nothing before. The cache
    changes no result.
    """
    cache = BillCache() if cache is None else cache
    tariff, end, blocks = book.tariff(vm), life_end(vm, until), blocks_of(vm)
    began, certain = certain_start(vm), certain_end(vm, until)
    goes_on = vm.state is not VmState.TERMINATED
    basis = (vm.created, began, vm.made_for, blocks, tariff)
    opened = settled, holds = cache.opened(vm, certain, basis)
    begun, total, intervals = None, 0, list[Interval]()
    if settled is not None:
        begun, total, intervals = settled.mark.begun, settled.mark.total, list(settled.intervals)
    marks: list[PhaseStart] = []
    span = None
    for mark, cut in slices(vm, until, Holds(holds, in_turn=blocks == 1), begun):
        if mark is not None and span is not None and cut.span is not span:
            marks.append(PhaseStart(mark, len(intervals), total))
        span = cut.span
        for piece in _priced(cut, tariff):
            before, total = total, total + exact(tariff, piece.since, piece.until)
            intervals.append(_interval(piece, tariff, _rounded(total) - _rounded(before), began, certain))
    if not intervals:  # no poll has shown it
        return Bill(vm_id=vm.vm_id, since=vm.created, until=end, open=True, hourly=vm.facts.price)
    cache.keep(vm, certain, basis, opened, marks, intervals)
    billing = book.billing(vm, end)
    rounding = _rounding(billing, tariff, vm.created, end)
    cost = _rounded(total) + rounding
    low = _rounded(exact(tariff, began, certain, LOW)) + _rounding(billing, tariff, began, certain)
    earliest, possible = possible_start(vm), possible_end(vm, until)
    to_end = _rounded(exact(tariff, vm.created, end, HIGH))
    high = _rounded(exact(tariff, earliest, possible, HIGH)) + _rounding(billing, tariff, earliest, possible)
    high = max(high, to_end + rounding)
    last = intervals[-1]
    last_until = None if goes_on else last.until
    intervals[-1] = replace(last, until=last_until, cost=last.cost + rounding, high=last.high + high - to_end)
    return Bill(
        vm_id=vm.vm_id,
        intervals=tuple(intervals),
        since=vm.created,
        until=end,
        open=goes_on,
        charged=_charged(billing, end - vm.created),
        rounding=rounding,
        cost=cost,
        low=min(low, cost),
        high=max(high, cost),
        hourly=rung_at(tariff, end).best if goes_on else last.hourly,
    )


def life_cost(vm: Vm, *, until: int, book: Book, since: int | None = None) -> int:
    """The `cost` of `bill_vm`, without intervals; with `since`, only of the life from then on. The backend's rounding
    belongs to the end of the life.
    """
    if not vm.billed and vm.state is not VmState.TERMINATED:
        return 0
    end = life_end(vm, until)
    start = vm.created if since is None else max(since, vm.created)
    if end < start:
        return 0
    if (hourly := book.fixed(vm)) is not None:  # most machines; the budget asks for each of them at every round
        return _rounded((end - start) * hourly)
    tariff = book.tariff(vm)
    return _rounded(exact(tariff, start, end)) + _rounding(book.billing(vm, end), tariff, vm.created, end)


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """A sum of money split by weights, exactly: what flooring leaves goes to the largest remainders."""
    whole = sum(weights)
    if whole <= 0:
        return [0 for _ in weights]
    if len(weights) == 1:
        return [amount]
    parts = [amount * weight // whole for weight in weights]
    order = sorted(range(len(parts)), key=lambda index: -(amount * weights[index] % whole))
    for index in order[: amount - sum(parts)]:
        parts[index] += 1
    return parts


def portions(amount: int, edges: Sequence[int]) -> list[int]:
    """A sum of money or time split by the stretches between edges, exactly: rounded half up at every edge."""
    length = edges[-1] - edges[0]
    sums = [(2 * amount * (edge - edges[0]) + length) // (2 * length) for edge in edges]
    return [after - before for before, after in pairwise(sums)]


def _priced(cut: Slice, tariff: Tariff) -> list[Slice]:
    if len(tariff) == 1:
        return [cut]
    prices = {rung.since: rung.best for rung in tariff if cut.since < rung.since < cut.until}
    edges, price = [cut.since], rung_at(tariff, cut.since).best
    for moment, hourly in prices.items():
        if hourly != price:
            edges.append(moment)
            price = hourly
    return [cut._replace(since=start, until=end) for start, end in zip(edges, [*edges[1:], cut.until], strict=True)]


def _interval(piece: Slice, tariff: Tariff, cost: int, began: int, certain: int) -> Interval:
    """The interval of one slice; its bounds are those of its phase where it touches the phase's edges."""
    span = piece.span
    low_start = max(began, span.entered_high, piece.since) if piece.since == span.since else max(began, piece.since)
    low_end = min(piece.until, certain, span.left_low)
    high_start = min(piece.since, span.entered_low) if piece.since == span.since else piece.since
    runs: dict[str, int] = {}
    for run_id, blocks in piece.runs:
        runs[run_id] = runs.get(run_id, 0) + blocks
    line = Line.PROVISIONING if piece.phase is Phase.PROVISIONING else Line.BUSY
    lines: list[tuple[str | None, Line]] = [(run_id, line) for run_id in runs]
    weights = list(runs.values())
    if not runs or sum(weights) < piece.of:
        lines.append((None, _OWN_LINES.get(piece.phase, Line.UNATTRIBUTED)))
        weights.append(piece.of - sum(weights))
    paid, times = split(cost, weights), split(piece.until - piece.since, weights)
    return Interval(
        phase=piece.phase,
        since=piece.since,
        until=piece.until,
        hourly=rung_at(tariff, piece.since).best,
        cost=cost,
        low=min(cost, exact(tariff, low_start, low_end, LOW) // HOUR),
        high=max(cost, -(-exact(tariff, high_start, piece.until, HIGH) // HOUR)),
        parts=tuple([(*payer, part) for payer, part in zip(lines, paid, strict=True)]),
        times=tuple(times),
    )


def _rounded(total: int) -> int:
    """Micro-dollars × HOUR as micro-dollars, half up."""
    return (total + HOUR // 2) // HOUR


def _charged(billing: Billing, life: int) -> int:
    least = max(life, billing.minimum)
    return -(-least // billing.granularity) * billing.granularity if billing.granularity > 0 else least


def _rounding(billing: Billing, tariff: Tariff, since: int, until: int) -> int:
    """The micro-dollars that the backend's rounding adds, at the price in force at the end."""
    return _rounded((_charged(billing, until - since) - (until - since)) * rung_at(tariff, until).best)
