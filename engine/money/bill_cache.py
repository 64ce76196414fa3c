"""The part of a machine's bill that no later poll changes: settled once, kept, and gone on from.

It is a memory of `bill_vm` and of nothing else: before it is used, everything it was reckoned from is compared with the
machine as it is now. A machine that runs for months is so billed from its last few phases on.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.fold.vm import Occupancy, Vm, VmDate, VmStep
from engine.money.life import Hold, blocks_of, held, order_of
from engine.money.prices import Tariff
from engine.money.spans import Begun

if TYPE_CHECKING:
    from engine.money.bill import Interval

OPEN: Final = 32
"""Phases reckoned anew with each poll, before they are settled too."""
_MACHINES: Final = 64
"""Machines remembered."""


class PhaseStart(NamedTuple):
    """Where a phase begins."""

    begun: Begun
    intervals: int
    """How many lie before."""
    total: int
    """Micro-dollars × HOUR of these."""


class SettledPart(NamedTuple):
    """The beginning of a machine's life, and all it was reckoned from."""

    mark: PhaseStart
    intervals: tuple["Interval", ...]
    steps: tuple[VmStep, ...]
    """Those that lie behind, and the one after them."""
    occupancies: tuple[Occupancy, ...]
    """Runs that have left, the last of which came when this was over."""
    holds: tuple[Hold, ...]
    """The last of these runs, and those before it that may still matter."""
    created: int
    began: int
    """From where on it was certainly there."""
    made_for: str | None
    blocks: int
    dates: tuple[VmDate, ...]
    """What the provider dated up to the last step behind."""
    tariff: Tariff


class Opened(NamedTuple):
    """Where to go on with a bill."""

    settled: SettledPart | None
    holds: list[Hold]
    """Of all runs that may matter from there on; the last of them are those that came since."""


class BillCache:
    """What is settled of the bills of some machines."""

    __slots__ = ("_kept", "phases")

    def __init__(self, phases: int = OPEN) -> None:
        self._kept: dict[str, SettledPart] = {}
        self.phases = phases
        """How many stay open; more are settled when there are twice as many."""

    def opened(self, vm: Vm, tariff: Tariff, began: int, certain: int) -> Opened:
        """Where to go on with the bill of a machine; at its beginning where what is kept is not about this one.

        `began` and `certain` (microseconds) are from and up to where it was certainly there.
        """
        kept, blocks = self._kept.get(vm.vm_id), blocks_of(vm)
        if kept is not None and _is_of(kept, vm, tariff, blocks, began, certain):
            since, behind = kept.mark.begun.since, len(kept.occupancies)
            tail = vm.occupancies[behind:]
            if _in_order(vm.occupancies[max(0, behind - 1) :]) and all(one.seen_at > since for one in tail):
                holds = held(tail, blocks, kept.holds)
                if all(hold.since > since for hold in holds[len(kept.holds) :]):
                    return Opened(kept, holds)
        return Opened(None, held(sorted(vm.occupancies, key=order_of), blocks))

    def keep(
        self,
        vm: Vm,
        tariff: Tariff,
        began: int,
        certain: int,
        at: Opened,
        marks: list[PhaseStart],
        bill: list["Interval"],
    ) -> None:
        """Settle what can be settled by now: `marks` are those met since `at`, in order; `bill` is the whole."""
        if len(marks) <= 2 * self.phases:
            return
        behind = 0 if at.settled is None else len(at.settled.occupancies)
        tail = vm.occupancies[behind:]
        if not _in_order(tail):
            return
        gone = next((place for place, one in enumerate(tail) if one.until is None), len(tail))
        before = at.holds[: len(at.holds) - len(tail) + gone]
        mark = self._chosen(vm, certain, marks, before, every=gone == len(tail))
        if mark is None:
            return
        entered_low = min(mark.begun.edge.low, mark.begun.edge.at)
        if before and behind + gone:
            # How it ended alone: who came behind it is reckoned anew.
            last = vm.occupancies[behind + gone - 1]
            before[-1] = before[-1]._replace(until=max(before[-1].since, last.since, last.until or 0))
        self._kept.pop(vm.vm_id, None)
        self._kept[vm.vm_id] = SettledPart(
            mark=mark,
            intervals=tuple(bill[: mark.intervals]),
            steps=vm.steps[: mark.begun.step],
            occupancies=vm.occupancies[: behind + gone],
            holds=(*(hold for hold in before[:-1] if hold.until > entered_low), *before[-1:]),
            created=vm.created,
            began=began,
            dates=_up_to(vm.dates, mark.begun.since),
            made_for=vm.made_for,
            blocks=blocks_of(vm),
            tariff=tariff,
        )
        for forgotten in list(self._kept)[:-_MACHINES]:
            self._kept.pop(forgotten, None)

    def _chosen(
        self, vm: Vm, certain: int, marks: list[PhaseStart], before: list[Hold], *, every: bool
    ) -> PhaseStart | None:
        """Up to where to settle: before the last run that has left came, since the next begins no sooner than it did;
        where many phases have gone by since and all runs have left (`every`), later.
        """
        fit = [
            mark for mark in marks[: -self.phases] if mark.begun.edge.at <= certain and mark.begun.step < len(vm.steps)
        ]
        came = before[-1].since if before else None
        early = [mark for mark in fit if came is not None and mark.begun.since <= came]
        if every and len(fit) - len(early) > 2 * self.phases:
            return fit[-1]
        return early[-1] if early else None


def _is_of(kept: SettledPart, vm: Vm, tariff: Tariff, blocks: int, began: int, certain: int) -> bool:
    """Whether the beginning of this machine's life is the one that was settled."""
    behind = len(kept.steps)
    return (
        kept.mark.begun.edge.at <= certain
        and len(vm.steps) > behind
        and (kept.created, kept.began, kept.made_for, kept.blocks) == (vm.created, began, vm.made_for, blocks)
        and kept.tariff == tariff
        and kept.steps == vm.steps[:behind]
        and kept.occupancies == vm.occupancies[: len(kept.occupancies)]
        and kept.dates == _up_to(vm.dates, kept.mark.begun.since)
    )


def _up_to(dates: tuple[VmDate, ...], moment: int) -> tuple[VmDate, ...]:
    return dates[: bisect_right(dates, moment, key=lambda date: date.at)]


def _in_order(occupancies: Sequence[Occupancy]) -> bool:
    return all(order_of(one) <= order_of(other) for one, other in pairwise(occupancies))
