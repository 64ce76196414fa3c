"""The cost of runs a day: with a new machine for each, or with a machine that idles between them. P: provisioning, R:
one run, I: the idle timeout, g: the gap between two runs, n: runs in a row. Without reuse each run pays P + R. With
reuse a series pays P + n·R + (n−1)·g + I. Times are microseconds, money is micro-dollars.
"""

from typing import Final, Literal

import msgspec

from steno.engine.state.policy import DAY, HOUR, MINUTE
from steno.events.clock import SECOND

Pattern = Literal["a new machine each", "one batch a day", "evenly spread"]
PATTERNS: Final[tuple[Pattern, ...]] = ("a new machine each", "one batch a day", "evenly spread")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    hourly: int  # of one machine
    idle_timeout: int | None  # None: never ended
    runs_per_day: int = 30
    run: int = 7 * MINUTE
    provisioning: int = 2 * MINUTE
    warm_start: int = 10 * SECOND
    days: int = 30  # in a month
    budget: int | None = None


class Month(msgspec.Struct, frozen=True, kw_only=True):
    pattern: Pattern
    machine_time: int
    cost: int
    saved: int  # of the cost of a new machine for each run; negative: it costs more
    budget_months: float | None  # that the budget lasts; None: for ever, or there is none


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    cold: int  # cost of one run with the start of its machine
    warm: int  # … on a machine that is there
    months: tuple[Month, ...]
    pays_from: int | None  # the least number of runs in a row for which reuse is cheaper; None: no number is


def estimate(given: Workload) -> Estimate:
    times = [(pattern, given.days * machine_time(given, pattern)) for pattern in PATTERNS]
    alone = cost_of(times[0][1], given.hourly)
    months = [
        Month(
            pattern=pattern,
            machine_time=time,
            cost=cost,
            saved=alone - cost,
            budget_months=None if given.budget is None or not cost else round(given.budget / cost, 1),
        )
        for pattern, time in times
        for cost in (cost_of(time, given.hourly),)
    ]
    return Estimate(
        cold=cost_of(given.provisioning + given.run, given.hourly),
        warm=cost_of(given.warm_start + given.run, given.hourly),
        months=tuple(months),
        pays_from=pays_from(given),
    )


def cost_of(time: int, hourly: int) -> int:
    """To the nearest micro-dollar."""
    return (2 * time * hourly + HOUR) // (2 * HOUR)


def machine_time(given: Workload, pattern: Pattern) -> int:
    """The machine time of a day. One batch: back to back on one machine. Evenly spread: one run every 24 h ÷ runs, at
    all hours; a machine that never idles for its whole timeout is never off, and runs that need more than a day need
    more machines.
    """
    runs = given.runs_per_day
    if pattern == "a new machine each":
        return runs * (given.provisioning + given.run)
    if given.idle_timeout is None:
        return max(DAY, runs * given.run)
    if pattern == "one batch a day":
        return series_time(given, runs)
    gap = DAY // runs - given.run
    return max(DAY, runs * given.run) if gap <= given.idle_timeout else series_time(given, runs, gap)


def series_time(given: Workload, runs: int, gap: int = 0) -> int:
    """The time of a series of runs on one machine. A gap beyond the idle timeout ends it: then each pays P + R + I."""
    idle = given.idle_timeout or 0
    if gap > idle:
        return runs * (given.provisioning + given.run + idle)
    return given.provisioning + runs * given.run + (runs - 1) * gap + idle


def pays_from(given: Workload) -> int | None:
    """Back to back: (n−1)·P > I."""
    if given.idle_timeout is None or given.provisioning == 0:
        return None
    return given.idle_timeout // given.provisioning + 2
