"""What a month, a batch or one run costs with and without warm reuse, from a few durations: the formulas.

P: making a machine, R: one run, I: the idle timeout, g: the gap between one run's end and the next one's start, n: runs
that follow one another. Without reuse each run pays P + R. With reuse a series pays P + n·R + (n−1)·g + I.
"""

from typing import Literal

import msgspec

from engine.money.prices import HOUR
from engine.policy import DOLLAR, MINUTE
from events.clock import SECOND

Pattern = Literal["no reuse", "one batch a day", "evenly spread"]
DAY = 24 * HOUR


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the calculation starts from; the defaults are those of the first site's documents."""

    hourly: int = 1_990_000
    """Micro-dollars an hour of one machine."""
    provisioning: int = 2 * MINUTE
    provisioning_longest: int = 5 * MINUTE
    run: int = 30 * SECOND
    warm_start: int = 10 * SECOND
    idle_timeout: int = 5 * MINUTE
    """Of the worked example."""
    idle_timeout_configured: int = 10 * MINUTE
    """`AMD_VM_IDLE_TIMEOUT`: of the monthly projections."""
    runs: int = 3
    """Of the worked example."""
    tasks_a_day: tuple[int, ...] = (10, 50, 200)
    days: int = 30
    """In a month."""
    grant: int = 1400 * DOLLAR


def cost_of(time: int, hourly: int) -> int:
    """Micro-dollars, to the nearest."""
    return (2 * time * hourly + HOUR) // (2 * HOUR)


def time_without_reuse(inputs: Inputs, runs: int) -> int:
    """Machine time of so many runs, each on a machine of its own that goes with it: n·(P + R)."""
    return runs * (inputs.provisioning + inputs.run)


def time_with_reuse(inputs: Inputs, runs: int, gap: int = 0, idle: int | None = None) -> int:
    """Machine time of a series of runs that one machine takes: P + n·R + (n−1)·g + I.

    A gap beyond the idle timeout ends the machine: then each run pays P + R + I.
    """
    timeout = inputs.idle_timeout if idle is None else idle
    if runs <= 0:
        return 0
    if gap > timeout:
        return runs * (inputs.provisioning + inputs.run + timeout)
    return inputs.provisioning + runs * inputs.run + (runs - 1) * gap + timeout


def break_even(inputs: Inputs, gap: int = 0, idle: int | None = None) -> int | None:
    """The least number of runs in a row from which reuse is cheaper: (n−1)·(P − g) > I. None: it never is."""
    timeout = inputs.idle_timeout if idle is None else idle
    saved = inputs.provisioning - gap
    return None if saved <= 0 or gap > timeout else timeout // saved + 2


def saving(inputs: Inputs, runs: int, gap: int = 0, idle: int | None = None) -> int:
    """What reuse saves, in parts per thousand of the cost without it, to the nearest; negative where it costs more."""
    without = time_without_reuse(inputs, runs)
    saved = without - time_with_reuse(inputs, runs, gap, idle)
    return (2000 * saved + without) // (2 * without) if without else 0


def most_saved(inputs: Inputs, gap: int = 0) -> int:
    """What ever longer series come near to and never reach, in parts per thousand: (P − g) ÷ (P + R)."""
    return (inputs.provisioning - gap) * 1000 // max(1, inputs.provisioning + inputs.run)


def runs_to_save(inputs: Inputs, part: int, gap: int = 0, idle: int | None = None) -> int | None:
    """The least number of runs in a row that saves so many parts per thousand; None: no number does.

    n·(1000·(P − g) − part·(P + R)) ≥ 1000·(P − g + I), solved for n.
    """
    timeout = inputs.idle_timeout if idle is None else idle
    if gap > timeout:
        return None
    gained = 1000 * (inputs.provisioning - gap) - part * (inputs.provisioning + inputs.run)
    owed = 1000 * (inputs.provisioning - gap + timeout)
    return None if gained <= 0 else max(1, -(-owed // gained))


def month(inputs: Inputs, tasks: int, pattern: Pattern) -> int:
    """Micro-dollars of a month with so many tasks a day, at the configured idle timeout.

    One batch a day: back to back on one machine. Evenly spread: one every 24 h ÷ tasks, round the clock; where the
    machine never idles for its whole timeout it is simply never off.
    """
    idle = inputs.idle_timeout_configured
    match pattern:
        case "no reuse":
            time = time_without_reuse(inputs, tasks)
        case "one batch a day":
            time = time_with_reuse(inputs, tasks, idle=idle)
        case "evenly spread":
            time = _spread(inputs, tasks, idle) if tasks > 0 else 0
    return cost_of(time * inputs.days, inputs.hourly)


def _spread(inputs: Inputs, tasks: int, idle: int) -> int:
    """Machine time of a day with one task every 24 h ÷ tasks."""
    gap = DAY // tasks - inputs.run
    return max(DAY, tasks * inputs.run) if gap <= idle else time_with_reuse(inputs, tasks, gap, idle)
