"""The cost figures of the first site's documents, each computed again: what they say, what comes out, the verdict."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from engine.money.model import (
    Inputs,
    Pattern,
    break_even,
    cost_of,
    month,
    most_saved,
    runs_to_save,
    saving,
    time_with_reuse,
    time_without_reuse,
)
from engine.money.prices import HOUR
from engine.money.words import usd
from engine.policy import DOLLAR
from events.clock import SECOND
from events.duration import span

CENT: Final = DOLLAR // 100


class Verdict(StrEnum):
    """What is to be thought of a figure."""

    HOLDS = "holds"  # to the digits it is printed with
    PARTLY = "partly"  # under a condition it does not name
    WRONG = "wrong"
    ADDED = "added"  # the documents do not say it


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the documents."""

    topic: str
    seeds: str
    """What the documents say."""
    formula: str
    """The calculation with its numbers."""
    result: str
    amount: int | None
    """The result in micro-dollars, where it is money."""
    verdict: Verdict
    why: str
    """The correction, or the condition; empty where it holds."""


MONTHS: Final = {
    10: (15 * DOLLAR, 30 * DOLLAR, 8),
    50: (75 * DOLLAR, 150 * DOLLAR, 5),
    200: (300 * DOLLAR, 400 * DOLLAR, 3),
}
"""Tasks a day → (dollars a month, from and to; months the grant is said to last)."""

PATTERNS: Final[tuple[Pattern, ...]] = ("one batch a day", "no reuse", "evenly spread")
GAPS: Final = (0, 15 * SECOND, 30 * SECOND, 60 * SECOND, 120 * SECOND)
"""Between runs, for the claim of a saving."""


def project(inputs: Inputs | None = None) -> tuple[Claim, ...]:
    """Every cost figure of the documents, in their order."""
    given = Inputs() if inputs is None else inputs
    return (
        *_single(given),
        *_example(given),
        *_reuse(given),
        *(claim for tasks in given.tasks_a_day for claim in _month(given, tasks)),
    )


def _single(inputs: Inputs) -> Iterator[Claim]:
    """One start, one idle time."""
    low, high = (cost_of(time, inputs.hourly) for time in (inputs.provisioning, inputs.provisioning_longest))
    cold_holds = _cents(low) == _cents(high) == 17
    yield Claim(
        topic="cold start",
        seeds="2-5 minutes, ~$0.17",
        formula=f"{_product(inputs.provisioning, inputs)} … {_product(inputs.provisioning_longest, inputs)}",
        result=f"{_dollars(low)} … {_dollars(high)}",
        amount=high,
        verdict=Verdict.HOLDS if cold_holds else Verdict.PARTLY if 17 in (_cents(low), _cents(high)) else Verdict.WRONG,
        why="" if cold_holds else f"$0.17 is the price of {span(_time_for(17 * CENT, inputs))}; the range starts lower",
    )
    used = inputs.warm_start + inputs.run
    start, whole = cost_of(inputs.warm_start, inputs.hourly), cost_of(used, inputs.hourly)
    warm_holds = 3 in (_cents(start), _cents(whole))
    yield Claim(
        topic="warm start",
        seeds="< 10 seconds, ~$0.03",
        formula=f"{_product(inputs.warm_start, inputs)}; with its run {_product(used, inputs)}",
        result=f"{_dollars(start)}; with its run {_dollars(whole)}",
        amount=start,
        verdict=Verdict.HOLDS if warm_holds else Verdict.WRONG,
        why="" if warm_holds else f"$0.03 is the price of {span(_time_for(3 * CENT, inputs))}",
    )
    provisioning = cost_of(inputs.provisioning, inputs.hourly)
    formula = _product(inputs.provisioning, inputs)
    yield _printed("provisioning", "~2 minutes ≈ $0.07", 7, formula, provisioning, "another price or time")
    for topic, seeds, cents, timeout in (
        ("idle ceiling", "5 minutes, ~$0.17 at most", 17, inputs.idle_timeout),
        ("idle ceiling as configured", "10 minutes (no figure given)", None, inputs.idle_timeout_configured),
    ):
        amount, formula = cost_of(timeout, inputs.hourly), _product(timeout, inputs)
        why = "for each machine that idles out, and the machine's tear-down comes on top"
        if cents is None:
            yield _claim(topic, seeds, formula, amount, Verdict.ADDED, "what a machine really idles for at most")
        else:
            yield _printed(topic, seeds, cents, formula, amount, why)


def _example(inputs: Inputs) -> Iterator[Claim]:
    """The worked example: runs with and without reuse."""
    runs = inputs.runs
    without, with_it = time_without_reuse(inputs, runs), time_with_reuse(inputs, runs)
    apart, together = cost_of(without, inputs.hourly), cost_of(with_it, inputs.hourly)
    yield _printed(
        f"{runs} runs without reuse",
        "(2 min + 0.5 min) × 3 ≈ $0.25",
        25,
        f"({span(inputs.provisioning)} + {span(inputs.run)}) × {runs} = {_product(without, inputs)}",
        apart,
        "other inputs",
    )
    yield _printed(
        f"{runs} runs with reuse",
        "2 min + 1.5 min + 5 min ≈ $0.28",
        28,
        f"{span(inputs.provisioning)} + {runs} × {span(inputs.run)} + {span(inputs.idle_timeout)} = "
        f"{_product(with_it, inputs)}",
        together,
        "other inputs",
    )
    dearer = together > apart
    yield _claim(
        f"what reuse saves in {runs} runs",
        "presented as cost optimization",
        f"{_dollars(apart)} − {_dollars(together)}",
        apart - together,
        Verdict.WRONG if dearer else Verdict.HOLDS,
        f"with reuse it costs {_percent(-saving(inputs, runs))} more" if dearer else "",
    )


def _reuse(inputs: Inputs) -> Iterator[Claim]:
    """From how many runs on reuse pays, and whether it ever saves what is claimed."""
    for idle in dict.fromkeys((inputs.idle_timeout, inputs.idle_timeout_configured)):
        least = break_even(inputs, idle=idle)
        yield Claim(
            topic=f"runs from which reuse pays, idle timeout {span(idle)}",
            seeds="not given",
            formula=f"(n − 1) × {span(inputs.provisioning)} > {span(idle)}, runs back to back",
            result="never" if least is None else f"{least} runs in a row",
            amount=None,
            verdict=Verdict.ADDED,
            why="every gap between two runs counts against it: (n − 1) × (provisioning − gap) > idle timeout",
        )
    timeout = span(inputs.idle_timeout)
    for gap in GAPS:
        most, least = most_saved(inputs, gap), runs_to_save(inputs, 600, gap)
        limit = f"below {_percent(most)}" if most > 0 else "nothing saved"
        reached = "never" if least is None else f"from {least} runs in a row on (idle timeout {timeout})"
        yield Claim(
            topic=f"60–80 % saving, gap between runs {span(gap)}",
            seeds="60-80% cost reduction vs pure serverless",
            formula=f"({span(inputs.provisioning)} − {span(gap)}) ÷ ({span(inputs.provisioning)} + {span(inputs.run)})",
            result=f"{limit}; 60 % {reached}",
            amount=None,
            verdict=Verdict.WRONG if least is None else Verdict.PARTLY,
            why="the gap eats it" if least is None else "the limit is reached by no series; short series save nothing",
        )


def _month(inputs: Inputs, tasks: int) -> Iterator[Claim]:
    """A month of so many tasks a day, and how long the grant lasts."""
    costs = {pattern: month(inputs, tasks, pattern) for pattern in PATTERNS}
    seeds = MONTHS.get(tasks)
    verdict, why = (Verdict.ADDED, "") if seeds is None else _held(costs, seeds[0], seeds[1])
    yield Claim(
        topic=f"a month of {tasks} tasks a day",
        seeds="not given" if seeds is None else f"${seeds[0] // DOLLAR}-{seeds[1] // DOLLAR}",
        formula=f"{inputs.days} days, idle timeout {span(inputs.idle_timeout_configured)}",
        result="; ".join(f"{name} {_dollars(cost)}" for name, cost in costs.items()),
        amount=costs["no reuse"],
        verdict=verdict,
        why=why,
    )
    if seeds is None:
        return
    low, high = (_months(inputs.grant, cost) for cost in (seeds[1], seeds[0]))
    truly = ", ".join(f"{name} {_tenths(_months(inputs.grant, cost))}" for name, cost in costs.items())
    holds = low <= seeds[2] * 10 <= high
    yield Claim(
        topic=f"how long the grant lasts at {tasks} tasks a day",
        seeds=f"{seeds[2]} months",
        formula=f"{usd(inputs.grant)} ÷ ${seeds[0] // DOLLAR}-{seeds[1] // DOLLAR} a month",
        result=f"{_tenths(low)} … {_tenths(high)} months; by pattern: {truly}",
        amount=None,
        verdict=Verdict.HOLDS if holds else Verdict.WRONG,
        why="" if holds else f"{seeds[2]} months would be {_dollars(inputs.grant // seeds[2])} a month",
    )


def _held(costs: dict[Pattern, int], low: int, high: int) -> tuple[Verdict, str]:
    """Whether a range of dollars a month is what any pattern gives."""
    inside = [name for name, cost in costs.items() if low <= cost <= high]
    if inside:
        return Verdict.PARTLY, f"true for: {', '.join(inside)}"
    if min(costs.values()) <= high and low <= max(costs.values()):
        return Verdict.PARTLY, "between the patterns"
    return Verdict.WRONG, "no pattern gives it"


def _printed(topic: str, seeds: str, cents: int, formula: str, amount: int, why: str) -> Claim:
    """A figure that holds if it comes out to the cent."""
    holds = _cents(amount) == cents
    return _claim(topic, seeds, formula, amount, Verdict.HOLDS if holds else Verdict.WRONG, "" if holds else why)


def _claim(topic: str, seeds: str, formula: str, amount: int, verdict: Verdict, why: str) -> Claim:
    return Claim(
        topic=topic, seeds=seeds, formula=formula, result=_dollars(amount), amount=amount, verdict=verdict, why=why
    )


def _product(time: int, inputs: Inputs) -> str:
    return f"{span(time)} × {usd(inputs.hourly)}/h"


def _dollars(amount: int) -> str:
    """To four decimals below ten dollars, else to the cent."""
    step = 100 if abs(amount) < 10 * DOLLAR else CENT
    return usd((2 * amount + step) // (2 * step) * step)


def _cents(amount: int) -> int:
    """Half up."""
    return (2 * amount + CENT) // (2 * CENT)


def _percent(part: int) -> str:
    """Parts per thousand as percent."""
    return f"{_tenths(part)} %"


def _time_for(amount: int, inputs: Inputs) -> int:
    """How long a machine runs for so much money, to the second."""
    return round(amount * HOUR / max(1, inputs.hourly) / SECOND) * SECOND


def _months(grant: int, monthly: int) -> int:
    """Tenths of months."""
    return grant * 10 // max(1, monthly)


def _tenths(number: int) -> str:
    return f"{number // 10}.{number % 10}"
