"""The keys that costs are summed by; starts, idle shutdowns and costs against their targets. Micro-dollars and
microseconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from steno.engine.money.costs import Costs
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.policy import DAY, MINUTE
from steno.engine.state.run import Run
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import Vm
from steno.events.clock import SECOND


def user_of(run: Run) -> str:
    """The submitter: to us, else to the provider; `unknown` if neither is known."""
    if run.terms is not None:
        return run.terms.submitter
    return (None if run.facts is None else run.facts.user) or "unknown"


def gpu_of(vm: Vm) -> str:
    """`MI300X:2`, as a task file asks for it; `none` for a machine without."""
    return f"{vm.facts.gpu}:{vm.facts.gpu_count}" if vm.facts.gpu and vm.facts.gpu_count else "none"


def midnights(since: int, until: int) -> Iterator[int]:
    """Every beginning of a day in UTC after `since` and before `until`."""
    yield from range(since - since % DAY + DAY, until, DAY)


SLACK: Final = MINUTE
"""The longest that an idle shutdown may take beyond its timeout: the poll that sees it, one more, and the tear-down."""
_TASK: Final = ("$0.05", 50_000)  # the target of a task's cost


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure; None: nothing was measured."""

    name: str
    what: str
    unit: Literal["time", "money"]
    count: int
    median: int | None
    mean: int | None
    p95: int | None  # the nearest rank: 95 % of the values are at most this
    worst: int | None
    target: str  # as the documents say it
    limit: int
    met: bool | None  # times: the 95th percentile is within the limit; money: the mean is


def performance(costs: Costs) -> tuple[Measure, ...]:
    """Every figure that has a target."""
    state, by_run = costs.state, costs.of_runs()
    runs = [run for run in state.runs.all() if run.start is not None and gpu_kept(run) is None]
    cold = [run for run in runs if run.start == "cold"]
    warm = [run for run in runs if run.start == "warm"]
    ended = [run for run in runs if run.terminal]
    each = [by_run[run.run_id] for run in ended if run.run_id in by_run]
    whole, count = sum(bill.cost for bill in costs.bills().values()), len(ended)
    shares = [(whole + count // 2) // count] * count if ended else []
    gone = [_shutdown(vm) for vm in state.vms.all()]
    starts, idled = "submitted → running, machine ", "seen idle → ended, of machines that idled too long"
    return (
        _measure("cold start", f"{starts}made for it", [start_time(run) for run in cold], ("< 5 min", 5 * MINUTE)),
        _measure("warm start", f"{starts}there", [start_time(run) for run in warm], ("< 10 s", 10 * SECOND)),
        _measure("cold total", "submitted → ended", [whole_time(run) for run in cold], ("2–6 min", 6 * MINUTE)),
        _measure("warm total", "submitted → ended", [whole_time(run) for run in warm], ("< 30 s", 30 * SECOND)),
        _measure("idle shutdown", idled, gone, ("10 min", 10 * MINUTE + SLACK)),
        _measure("cost per task", "its own machine time", each, _TASK, unit="money"),
        _measure(
            "cost per task, idle included", "every machine's bill over finished tasks", shares, _TASK, unit="money"
        ),
    )


def start_time(run: Run) -> int | None:
    """From its request, or its submission outside Steno, until it ran: microseconds; None: unknown. One the provider
    tried again says nothing: its `started_at` is the last attempt's.
    """
    return _took(run, run.started_at)


def whole_time(run: Run) -> int | None:
    """As `start_time`, until it ended."""
    return _took(run, run.finished_at if run.terminal else None)


def _took(run: Run, until: int | None) -> int | None:
    if until is None or run.waiting_since is None or run.retried:
        return None
    return max(0, until - run.waiting_since)


def _shutdown(vm: Vm) -> int | None:
    """From the poll that first showed it idle for the last time to its end, if idling was the reason."""
    by_us = vm.reason is VmReason.STOPPED_BY_POLICY and vm.told is not None and vm.told.by == "idle"
    idled = by_us or vm.reason is VmReason.IDLE_TIMEOUT
    if vm.state is not VmState.TERMINATED or vm.finished_at is None or not idled:
        return None
    idle = idle_moments(vm)
    return max(0, vm.finished_at - idle[-1]) if idle else None


def idle_moments(vm: Vm) -> list[int]:
    """When polls first showed it idle, each time."""
    return [step.at for step in vm.steps if step.after is VmState.IDLE and step.before is not VmState.DRAINING]


def _measure(
    name: str, what: str, values: Iterable[int | None], target: tuple[str, int], unit: Literal["time", "money"] = "time"
) -> Measure:
    ordered = sorted(value for value in values if value is not None)
    count = len(ordered)
    p95 = rank(ordered, 95)
    mean = (2 * sum(ordered) + count) // (2 * count) if count else None
    judged = mean if unit == "money" else p95
    return Measure(
        name=name,
        what=what,
        unit=unit,
        count=count,
        median=rank(ordered, 50),
        mean=mean,
        p95=p95,
        worst=ordered[-1] if count else None,
        target=target[0],
        limit=target[1],
        met=None if judged is None else judged <= target[1],
    )


def rank(ordered: Sequence[int], percent: int) -> int | None:
    """A percentile by nearest rank; None: there are no values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
