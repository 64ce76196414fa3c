"""How long starts and idle shutdowns took and what a task cost, against their targets."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.money.costs import Costs
from engine.policy import MINUTE
from engine.states import VmReason, VmState
from events.clock import SECOND

SLACK: Final = MINUTE
"""What an idle shutdown may take beyond its timeout: the poll that sees it, one more, and the tear-down."""

Unit = Literal["time", "money"]


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. Times are microseconds, money micro-dollars; None where nothing was measured."""

    name: str
    what: str
    unit: Unit
    count: int
    median: int | None
    mean: int | None
    p95: int | None
    """The nearest rank: 95 % of the values are at most this."""
    worst: int | None
    target: str
    """As the documents say it."""
    limit: int
    met: bool | None
    """Times: the 95th percentile is within the limit; money: the mean is."""


def performance(costs: Costs) -> tuple[Measure, ...]:
    """Every figure there is a target for."""
    state, by_run = costs.state, costs.of_runs()
    runs = [run for run in state.runs.values() if run.start is not None]
    cold = [run for run in runs if run.start == "cold"]
    warm = [run for run in runs if run.start == "warm"]
    ended = [run for run in runs if run.terminal]
    whole = sum(bill.cost for bill in costs.bills().values())
    return (
        _times("cold start", "submitted → running, machine made for it", map(_start, cold), "< 5 min", 5 * MINUTE),
        _times("warm start", "submitted → running, machine there", map(_start, warm), "< 10 s", 10 * SECOND),
        _times("cold total", "submitted → ended", map(_total, cold), "2–6 min", 6 * MINUTE),
        _times("warm total", "submitted → ended", map(_total, warm), "< 30 s", 30 * SECOND),
        _times(
            "idle shutdown",
            "seen idle → ended, of machines that idled too long",
            map(_shutdown, state.vms.values()),
            "10 min",
            10 * MINUTE + SLACK,
        ),
        _money("cost per task", "its own machine time", [by_run[run.run_id] for run in ended if run.run_id in by_run]),
        _money(
            "cost per task, idle included",
            "every machine's bill over finished tasks",
            [(whole + len(ended) // 2) // len(ended)] * len(ended) if ended else [],
        ),
    )


def _start(run: Run) -> int | None:
    """A run the provider tried again says nothing: its `started_at` is the last attempt's."""
    if run.started_at is None or run.submitted_at is None or run.retried:
        return None
    return max(0, run.started_at - run.submitted_at)


def _total(run: Run) -> int | None:
    if not run.terminal or run.finished_at is None or run.submitted_at is None or run.retried:
        return None
    return max(0, run.finished_at - run.submitted_at)


def _shutdown(vm: Vm) -> int | None:
    """From the poll that first showed it idle for the last time to its end, if idling was why it went."""
    by_us = vm.reason is VmReason.STOPPED_BY_POLICY and vm.told is not None and vm.told.by == "idle"
    if (
        vm.state is not VmState.TERMINATED
        or vm.finished_at is None
        or not (by_us or vm.reason is VmReason.IDLE_TIMEOUT)
    ):
        return None
    idle = [step.at for step in vm.steps if step.after is VmState.IDLE and step.before is not VmState.DRAINING]
    return max(0, vm.finished_at - idle[-1]) if idle else None


def _times(name: str, what: str, values: Iterable[int | None], target: str, limit: int) -> Measure:
    known = [value for value in values if value is not None]
    return _measure(name, what, "time", known, target, limit)


def _money(name: str, what: str, values: list[int]) -> Measure:
    return _measure(name, what, "money", values, "$0.05", 50_000)


def _measure(name: str, what: str, unit: Unit, values: list[int], target: str, limit: int) -> Measure:
    ordered = sorted(values)
    count = len(ordered)
    p95 = _rank(ordered, 95)
    mean = (2 * sum(ordered) + count) // (2 * count) if count else None
    judged = mean if unit == "money" else p95
    return Measure(
        name=name,
        what=what,
        unit=unit,
        count=count,
        median=_rank(ordered, 50),
        mean=mean,
        p95=p95,
        worst=ordered[-1] if count else None,
        target=target,
        limit=limit,
        met=None if judged is None else judged <= limit,
    )


def _rank(ordered: list[int], percent: int) -> int | None:
    """The nearest-rank percentile."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
