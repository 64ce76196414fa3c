"""The calculated cost of starts, idling, reuse and a month, beside the usual estimates of them. P: provisioning, R: one
run, I: the idle timeout, g: the gap between two runs, n: runs in a row. Without reuse each run pays P + R. With reuse a
series pays P + n·R + (n−1)·g + I.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from engine.amounts import usd
from engine.policy import CENT, DAY, DOLLAR, HOUR, MINUTE
from events.clock import SECOND, span

Pattern = Literal["no reuse", "one batch a day", "evenly spread"]
PATTERNS: Final[tuple[Pattern, ...]] = ("one batch a day", "no reuse", "evenly spread")
MONTHS: Final = {10: (15, 30, 8), 50: (75, 150, 5), 200: (300, 400, 3)}
"""Tasks a day → (estimated dollars a month, from and to; months the grant is said to last)."""
GAPS: Final = (0, 15 * SECOND, 30 * SECOND, 60 * SECOND, 120 * SECOND)  # between runs, for the estimate of a saving


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the calculation. Times are microseconds."""

    hourly: int = 1_990_000  # micro-dollars an hour of one machine
    provisioning: int = 2 * MINUTE
    provisioning_longest: int = 5 * MINUTE
    run: int = 30 * SECOND
    warm_start: int = 10 * SECOND
    idle_timeout: int = 5 * MINUTE  # of the worked example
    idle_timeout_configured: int = 10 * MINUTE  # of the monthly figures
    runs: int = 3  # of the worked example
    tasks_a_day: tuple[int, ...] = (10, 50, 200)
    days: int = 30  # in a month
    grant: int = 1400 * DOLLAR


class ClaimVerdict(StrEnum):
    """How an estimate compares with the calculation."""

    HOLDS = "holds"  # to the digits it is printed with
    PARTLY = "partly"  # under a condition it does not name
    WRONG = "wrong"
    ADDED = "added"  # there is no estimate


class Claim(NamedTuple):
    """One estimate (`said`), and the calculated value: in micro-dollars if that is money (`amount`)."""

    topic: str
    said: str
    formula: str  # the calculation with its numbers
    result: str
    amount: int | None
    verdict: ClaimVerdict
    why: str  # the correction, or the condition; empty if the estimate holds


def project(inputs: Inputs | None = None) -> tuple[Claim, ...]:
    """Every estimate: starts and idling, the worked example, reuse, months."""
    given = Inputs() if inputs is None else inputs
    months = (claim for tasks in given.tasks_a_day for claim in _month(given, tasks))
    return (*_single(given), *_example(given), *_reuse(given), *months)


# -- the formulas ------------------------------------------------------------------------------------------------------


def cost_of(time: int, hourly: int) -> int:
    """Micro-dollars, to the nearest."""
    return (2 * time * hourly + HOUR) // (2 * HOUR)


def time_without_reuse(inputs: Inputs, runs: int) -> int:
    """Machine time of so many runs, each on a new machine that ends with it: n·(P + R)."""
    return runs * (inputs.provisioning + inputs.run)


def time_with_reuse(inputs: Inputs, runs: int, gap: int = 0) -> int:
    """Machine time of a series of runs on one machine: P + n·R + (n−1)·g + I. A gap beyond the idle timeout ends the
    machine: then each run pays P + R + I.
    """
    if runs <= 0:
        return 0
    if gap > inputs.idle_timeout:
        return runs * (inputs.provisioning + inputs.run + inputs.idle_timeout)
    return inputs.provisioning + runs * inputs.run + (runs - 1) * gap + inputs.idle_timeout


def break_even(inputs: Inputs, gap: int = 0) -> int | None:
    """The least number of runs in a row for which reuse is cheaper: (n−1)·(P − g) > I. None: it never is."""
    saved = inputs.provisioning - gap
    return None if saved <= 0 or gap > inputs.idle_timeout else inputs.idle_timeout // saved + 2


def saving(inputs: Inputs, runs: int, gap: int = 0) -> int:
    """What reuse saves, in parts per thousand of the cost without it, to the nearest; negative if it costs more."""
    without = time_without_reuse(inputs, runs)
    saved = without - time_with_reuse(inputs, runs, gap)
    return (2000 * saved + without) // (2 * without) if without else 0


def most_saved(inputs: Inputs, gap: int = 0) -> int:
    """The limit of the saving of ever longer series, in parts per thousand: (P − g) ÷ (P + R)."""
    return (inputs.provisioning - gap) * 1000 // max(1, inputs.provisioning + inputs.run)


def runs_to_save(inputs: Inputs, part: int, gap: int = 0) -> int | None:
    """The least number of runs in a row that saves so many parts per thousand; None: no number does.
    Solved for n: n·(1000·(P − g) − part·(P + R)) ≥ 1000·(P − g + I).
    """
    gained = 1000 * (inputs.provisioning - gap) - part * (inputs.provisioning + inputs.run)
    owed = 1000 * (inputs.provisioning - gap + inputs.idle_timeout)
    return None if gap > inputs.idle_timeout or gained <= 0 else max(1, -(-owed // gained))


def month(inputs: Inputs, tasks: int, pattern: Pattern) -> int:
    """Micro-dollars of a month with so many tasks a day, at the configured idle timeout. One batch a day: back to back
    on one machine. Evenly spread: one every 24 h ÷ tasks, round the clock; a machine that never idles for its whole
    timeout is never off.
    """
    inputs = replace(inputs, idle_timeout=inputs.idle_timeout_configured)
    if pattern == "no reuse":
        time = time_without_reuse(inputs, tasks)
    elif pattern == "one batch a day" or tasks <= 0:
        time = time_with_reuse(inputs, tasks)
    else:
        gap = DAY // tasks - inputs.run
        always = max(DAY, tasks * inputs.run)
        time = always if gap <= inputs.idle_timeout else time_with_reuse(inputs, tasks, gap)
    return cost_of(time * inputs.days, inputs.hourly)


# -- the estimates -----------------------------------------------------------------------------------------------------


def _claim(
    topic: str,
    said: str,
    formula: str,
    result: str | int,
    verdict: ClaimVerdict | bool,
    why: str,
    amount: int | None = None,
) -> Claim:
    """`verdict`: a bool says whether it holds; if it does, `why` is dropped. A `result` in micro-dollars is money."""
    if isinstance(verdict, bool):
        verdict = ClaimVerdict.HOLDS if verdict else ClaimVerdict.WRONG
    if isinstance(result, int):
        amount, result = result, _dollars(result)
    return Claim(topic, said, formula, result, amount, verdict, "" if verdict is ClaimVerdict.HOLDS else why)


def _single(given: Inputs) -> Iterator[Claim]:
    low, high = (cost_of(time, given.hourly) for time in (given.provisioning, given.provisioning_longest))
    holds = {_cents(low) == 17, _cents(high) == 17}
    formula = f"{_product(given.provisioning, given)} … {_product(given.provisioning_longest, given)}"
    result, verdict = f"{_dollars(low)} … {_dollars(high)}", ClaimVerdict.PARTLY if len(holds) > 1 else holds.pop()
    why = f"$0.17 is the price of {_time_for(17 * CENT, given)}; the range starts lower"
    yield _claim("cold start", "2-5 minutes, ~$0.17", formula, result, verdict, why, high)
    used = given.warm_start + given.run
    start, whole = cost_of(given.warm_start, given.hourly), cost_of(used, given.hourly)
    formula = f"{_product(given.warm_start, given)}; with its run {_product(used, given)}"
    result, holds_so = f"{_dollars(start)}; with its run {_dollars(whole)}", 3 in (_cents(start), _cents(whole))
    why = f"$0.03 is the price of {_time_for(3 * CENT, given)}"
    yield _claim("warm start", "< 10 seconds, ~$0.03", formula, result, holds_so, why, start)
    yield _printed("provisioning", "~2 minutes ≈ $0.07", 7, given.provisioning, given, "another price or time")
    why = "for each machine that idles out, and the machine's tear-down comes on top"
    yield _printed("idle ceiling", "5 minutes, ~$0.17 at most", 17, given.idle_timeout, given, why)
    topic, said, timeout = "idle ceiling as configured", "10 minutes (no figure given)", given.idle_timeout_configured
    why, cost = "what a machine really idles for at most", cost_of(timeout, given.hourly)
    yield _claim(topic, said, _product(timeout, given), cost, ClaimVerdict.ADDED, why)


def _example(inputs: Inputs) -> Iterator[Claim]:
    runs, made, each = inputs.runs, span(inputs.provisioning), span(inputs.run)
    without, with_it = time_without_reuse(inputs, runs), time_with_reuse(inputs, runs)
    said, formula = "(2 min + 0.5 min) × 3 ≈ $0.25", f"({made} + {each}) × {runs} = "
    yield _printed(f"{runs} runs without reuse", said, 25, without, inputs, "other inputs", formula)
    said, formula = "2 min + 1.5 min + 5 min ≈ $0.28", f"{made} + {runs} × {each} + {span(inputs.idle_timeout)} = "
    yield _printed(f"{runs} runs with reuse", said, 28, with_it, inputs, "other inputs", formula)
    apart, together = cost_of(without, inputs.hourly), cost_of(with_it, inputs.hourly)
    topic, said = f"what reuse saves in {runs} runs", "presented as cost optimization"
    formula, why = f"{_dollars(apart)} − {_dollars(together)}", f"{_tenths(-saving(inputs, runs))} % more"
    yield _claim(topic, said, formula, apart - together, together <= apart, f"with reuse it costs {why}")


def _reuse(inputs: Inputs) -> Iterator[Claim]:
    made, each, timeout = span(inputs.provisioning), span(inputs.run), span(inputs.idle_timeout)
    for idle in dict.fromkeys((inputs.idle_timeout, inputs.idle_timeout_configured)):
        least = break_even(replace(inputs, idle_timeout=idle))
        topic, formula = f"runs from which reuse pays, idle timeout {span(idle)}", f"(n − 1) × {made} > {span(idle)}"
        result = "never" if least is None else f"{least} runs in a row"
        why = "every gap between two runs counts against it: (n − 1) × (provisioning − gap) > idle timeout"
        yield _claim(topic, "not given", f"{formula}, runs back to back", result, ClaimVerdict.ADDED, why)
    for gap in GAPS:
        most, least = most_saved(inputs, gap), runs_to_save(inputs, 600, gap)
        limit = f"below {_tenths(most)} %" if most > 0 else "nothing saved"
        topic, said = f"60–80 % saving, gap between runs {span(gap)}", "60-80% cost reduction vs pure serverless"
        reached, verdict, why = "never", ClaimVerdict.WRONG, "the gap eats it"
        if least is not None:
            reached = f"from {least} runs in a row on (idle timeout {timeout})"
            verdict, why = ClaimVerdict.PARTLY, "the limit is reached by no series; short series save nothing"
        formula = f"({made} − {span(gap)}) ÷ ({made} + {each})"
        yield _claim(topic, said, formula, f"{limit}; 60 % {reached}", verdict, why)


def _month(inputs: Inputs, tasks: int) -> Iterator[Claim]:
    costs = {pattern: month(inputs, tasks, pattern) for pattern in PATTERNS}
    topic = f"a month of {tasks} tasks a day"
    formula = f"{inputs.days} days, idle timeout {span(inputs.idle_timeout_configured)}"
    result = "; ".join(f"{name} {_dollars(cost)}" for name, cost in costs.items())
    if tasks not in MONTHS:
        yield _claim(topic, "not given", formula, result, ClaimVerdict.ADDED, "", costs["no reuse"])
        return
    low, high, months = MONTHS[tasks]
    inside = [name for name, cost in costs.items() if low * DOLLAR <= cost <= high * DOLLAR]
    verdict, why = ClaimVerdict.PARTLY, f"true for: {', '.join(inside)}"
    if not inside and min(costs.values()) <= high * DOLLAR and low * DOLLAR <= max(costs.values()):
        why = "between the patterns"
    elif not inside:
        verdict, why = ClaimVerdict.WRONG, "no pattern gives it"
    yield _claim(topic, f"${low}-{high}", formula, result, verdict, why, costs["no reuse"])
    # In tenths of months.
    sums = (high * DOLLAR, low * DOLLAR, *costs.values())
    shortest, longest, *each = (inputs.grant * 10 // max(1, cost) for cost in sums)
    truly = ", ".join(f"{name} {_tenths(lasts)}" for name, lasts in zip(costs, each, strict=True))
    topic, formula = f"how long the grant lasts at {tasks} tasks a day", f"{usd(inputs.grant)} ÷ ${low}-{high} a month"
    result = f"{_tenths(shortest)} … {_tenths(longest)} months; by pattern: {truly}"
    why = f"{months} months would be {_dollars(inputs.grant // months)} a month"
    yield _claim(topic, f"{months} months", formula, result, shortest <= months * 10 <= longest, why)


def _printed(topic: str, said: str, cents: int, time: int, inputs: Inputs, why: str, formula: str = "") -> Claim:
    """An estimate that holds if the calculation gives the same cents."""
    amount = cost_of(time, inputs.hourly)
    return _claim(topic, said, formula + _product(time, inputs), amount, _cents(amount) == cents, why)


def _product(time: int, inputs: Inputs) -> str:
    return f"{span(time)} × {usd(inputs.hourly)}/h"


def _dollars(amount: int) -> str:
    """To four decimals below ten dollars, else to the cent."""
    step = 100 if abs(amount) < 10 * DOLLAR else CENT
    return usd((2 * amount + step) // (2 * step) * step)


def _cents(amount: int) -> int:
    """Half up."""
    return (2 * amount + CENT) // (2 * CENT)


def _time_for(amount: int, inputs: Inputs) -> str:
    """How long a machine runs for that much money, to the second."""
    return span(round(amount * HOUR / max(1, inputs.hourly) / SECOND) * SECOND)


def _tenths(number: int) -> str:
    return f"{number // 10}.{number % 10}"
