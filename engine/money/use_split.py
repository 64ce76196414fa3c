"""Busy time of runs and its money, split by what the GPUs did: beside the bills, which it does not change.

Each charge is cut at midnights before it is split, so that the days of a run sum to the run to the micro-dollar.
"""

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import NamedTuple

from steno.engine.money.bill import Line, split
from steno.engine.money.costs import Charge, Costs, cut_at
from steno.engine.money.report import midnights
from steno.engine.state.gpu_use import UseStretch, stretches, times_within
from steno.engine.state.world import World


class UseSplit(NamedTuple):
    """Parts of busy time (microseconds) and of its cost (micro-dollars), each exact in sum."""

    working_time: int = 0
    idle_time: int = 0  # idle inside busy time
    unknown_time: int = 0
    working_cost: int = 0
    idle_cost: int = 0
    unknown_cost: int = 0

    def plus(self, other: "UseSplit") -> "UseSplit":
        return UseSplit(*map(add, self, other))

    def of(self, time: int, cost: int) -> "UseSplit":
        """The split of a busy time and its cost of which these are parts; the rest is unknown."""
        return self.plus(UseSplit(unknown_time=time - sum(self[:3]), unknown_cost=cost - sum(self[3:])))


class UseSplitter:
    """Splits the charges of one state of the world; reads the log of each run once."""

    def __init__(self, state: World) -> None:
        self._state = state
        self._known: dict[str, list[UseStretch] | None] = {}

    def parts(self, charge: Charge) -> list[tuple[Charge, UseSplit | None]]:
        """A charge by day, each part with its split; None: it is not busy time of a run with samples."""
        days, of = cut_at(charge, midnights(charge.since, charge.until)), self._stretches(charge)
        return [(day, None if of is None else _split(day, of)) for day in days]

    def total(self, charges: Iterable[Charge]) -> UseSplit | None:
        """The split of all busy time in some charges; None: no run in them has samples."""
        busy = [charge for charge in charges if charge.line is Line.BUSY]
        sampled = [charge for charge in busy if self._stretches(charge) is not None]
        if not sampled:
            return None
        uses = (use for charge in sampled for _, use in self.parts(charge) if use is not None)
        known = reduce(UseSplit.plus, uses, UseSplit())
        return known.of(sum(charge.time for charge in busy), sum(charge.cost for charge in busy))

    def _stretches(self, charge: Charge) -> list[UseStretch] | None:
        if charge.line is not Line.BUSY or charge.run_id is None:
            return None
        if charge.run_id not in self._known:
            run = self._state.runs.get(charge.run_id)
            self._known[charge.run_id] = None if run is None or run.use is None else list(stretches(run.use))
        return self._known[charge.run_id]


def split_of_run(costs: Costs, run_id: str) -> UseSplit | None:
    """The split of a run's busy time; None: it has no samples, or was never busy."""
    run = costs.state.runs.get(run_id)
    if run is None or run.use is None:
        return None
    _, there = costs.machines_of(run)
    return UseSplitter(costs.state).total(charge for vm_id in there for charge in costs.paid_by(run_id, vm_id))


def _split(charge: Charge, of: list[UseStretch]) -> UseSplit:
    weights = times_within(of, charge.since, charge.until)
    if not any(weights):  # a charge without length
        return UseSplit().of(charge.time, charge.cost)
    return UseSplit(*split(charge.time, weights), *split(charge.cost, weights))
