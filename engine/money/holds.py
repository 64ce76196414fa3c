"""Which runs were on a machine when, and how much of it each had."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from engine.fold.vm import Occupancy, Vm, VmDate

_NEVER: Final = 1 << 62


class Hold(NamedTuple):
    """One run on the machine."""

    run_id: str
    since: int
    until: int
    blocks: int
    """Of the machine's `total_blocks`."""
    forgotten: bool = False
    """`until` is when we lost sight of the run: the machine may have been busy with it longer."""


class Holds:
    """The holds of a machine. Where it takes one run at a time they follow one another, and are found by halving."""

    __slots__ = ("_holds", "_in_turn", "_sinces", "_untils")

    def __init__(self, holds: Sequence[Hold], *, in_turn: bool) -> None:
        self._holds = holds
        self._in_turn = in_turn
        self._sinces = [hold.since for hold in holds] if in_turn else []
        self._untils = [hold.until for hold in holds] if in_turn else []

    def shifts(self, created: int) -> list[VmDate]:
        """When the runs' own times make the machine busy and idle, in order of time.

        A run that was submitted before the machine was created does not say when it was ready.
        """
        found: list[VmDate] = []
        over: int | None = None
        for hold in sorted(self._holds, key=lambda hold: hold.since):
            if hold.forgotten:
                continue
            if over is None or hold.since >= over:
                if over is not None:
                    found.append(VmDate(at=over, before="busy", after="idle"))
                if over is not None or hold.since > created:
                    found.append(VmDate(at=hold.since, before="idle", after="busy"))
                over = hold.until
            over = max(over, hold.until)
        if over is not None and over < _NEVER:
            found.append(VmDate(at=over, before="busy", after="idle"))
        return found

    def between(self, after: int, before: int) -> Sequence[Hold]:
        """Those that ended behind `after` and began before `before`, in order."""
        if self._in_turn:
            return self._holds[bisect_right(self._untils, after) : bisect_left(self._sinces, before)]
        return [hold for hold in self._holds if hold.since < before and hold.until > after]

    def at(self, moment: int) -> Sequence[Hold]:
        """Those there at a moment, in order."""
        if self._in_turn:
            place = bisect_right(self._sinces, moment) - 1
            return self._holds[place : place + 1] if place >= 0 and self._untils[place] > moment else ()
        return [hold for hold in self._holds if hold.since <= moment < hold.until]

    def left(self, after: int, moment: int) -> Sequence[Hold]:
        """The one that ended last, behind `after` and not behind `moment`."""
        if self._in_turn:
            place = bisect_right(self._untils, moment) - 1
            return self._holds[place : place + 1] if place >= 0 and self._untils[place] > after else ()
        ended = [hold for hold in self._holds if after < hold.until <= moment]
        return sorted(ended, key=lambda hold: hold.until)[-1:]


def blocks_of(vm: Vm) -> int:
    """How many runs a machine takes at once."""
    return max(1, vm.facts.total_blocks or 1)


def order_of(one: Occupancy) -> tuple[int, int]:
    """The order in which runs came."""
    return one.seen_at, one.since


def held(occupancies: Iterable[Occupancy], total: int, before: Iterable[Hold] = ()) -> list[Hold]:
    """Who was on a machine of so many blocks, in the order in which they came, behind who came `before` them.

    A run begins when it was submitted, or at the newest sight of the machine without it. Where a machine takes one run
    at a time, the next begins when the one before has left: what lies before in its submission was waiting for it.
    """
    found = [*before]
    for one in occupancies:
        since, until = one.since, _NEVER if one.until is None else max(one.since, one.until)
        if one.free_at is not None and one.free_at < until:
            since = max(since, one.free_at)
        if total == 1 and found:
            last = found[-1]
            handover = max(last.since, min(last.until, one.seen_at))
            found[-1] = last._replace(until=handover)
            since = max(since, handover)
        blocks = _blocks(one.blocks, total)
        found.append(Hold(one.run_id, since, max(since, until), blocks, forgotten=one.forgotten))
    return found


def _blocks(blocks: int | None, total: int) -> int:
    return max(1, min(total, 1 if blocks is None else blocks))
