"""What starts, idling, reuse and a month cost by calculation, beside the estimates that are usually given for them.

P: provisioning, R: one run, I: the idle timeout, g: the gap between two runs, n: runs in a row. Without reuse each run
pays P + R. With reuse a series pays P + n·R + (n−1)·g + I.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, Literal

import msgspec

from engine.money.prices import HOUR
from engine.money.words import usd
from engine.policy import DOLLAR, MINUTE
from events.clock import SECOND, span

Pattern = Literal["no reuse", "one batch a day", "evenly spread"]
PATTERNS: Final[tuple[Pattern, ...]] = ("one batch a day", "no reuse", "evenly spread")
DAY: Final = 24 * HOUR
CENT: Final = DOLLAR // 100
MONTHS: Final = {10: (15, 30, 8), 50: (75, 150, 5), 200: (300, 400, 3)}
"""Tasks a day → (estimated dollars a month, from and to; months the grant is said to last)."""
GAPS: Final = (0, 15 * SECOND, 30 * SECOND, 60 * SECOND, 120 * SECOND)
"""Between runs, for the estimate of a saving."""


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the calculation starts from. Times are microseconds."""

    hourly: int = 1_990_000
    """Micro-dollars an hour of one machine."""
    provisioning: int = 2 * MINUTE
    provisioning_longest: int = 5 * MINUTE
    run: int = 30 * SECOND
    warm_start: int = 10 * SECOND
    idle_timeout: int = 5 * MINUTE
    """Of the worked example."""
    idle_timeout_configured: int = 10 * MINUTE
    """Of the monthly figures."""
    runs: int = 3
    """Of the worked example."""
    tasks_a_day: tuple[int, ...] = (10, 50, 200)
    days: int = 30
    """In a month."""
    grant: int = 1400 * DOLLAR


class ClaimVerdict(StrEnum):
    """How an estimate compares with the calculation."""

    HOLDS = "holds"  # to the digits it is printed with
    PARTLY = "partly"  # under a condition it does not name
    WRONG = "wrong"
    ADDED = "added"  # there is no estimate


class Claim(msgspec.Struct, frozen=True):
    """One estimate, and what the calculation gives."""

    topic: str
    said: str
    """The estimate."""
    formula: str
    """The calculation with its numbers."""
    result: str
    amount: int | None
    """The result in micro-dollars, where it is money."""
    verdict: ClaimVerdict
    why: str = ""
    """The correction, or the condition; empty where the estimate holds."""


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
    """The limit of the saving of ever longer series, in parts per thousand: (P − g) ÷ (P + R)."""
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
    machine never idles for its whole timeout it is never off.
    """
    idle = inputs.idle_timeout_configured
    match pattern:
        case "no reuse":
            time = time_without_reuse(inputs, tasks)
        case "one batch a day":
            time = time_with_reuse(inputs, tasks, idle=idle)
        case "evenly spread":
            gap = DAY // tasks - inputs.run if tasks > 0 else 0
            always_on = max(DAY, tasks * inputs.run) if tasks > 0 else 0
            time = always_on if gap <= idle else time_with_reuse(inputs, tasks, gap, idle)
    return cost_of(time * inputs.days, inputs.hourly)


# -- the estimates -----------------------------------------------------------------------------------------------------


def _single(inputs: Inputs) -> Iterator[Claim]:
    """One start, one idle time."""
    low, high = (cost_of(time, inputs.hourly) for time in (inputs.provisioning, inputs.provisioning_longest))
    holds = (_cents(low) == 17, _cents(high) == 17)
    yield Claim(
        "cold start",
        "2-5 minutes, ~$0.17",
        f"{_product(inputs.provisioning, inputs)} … {_product(inputs.provisioning_longest, inputs)}",
        f"{_dollars(low)} … {_dollars(high)}",
        high,
        ClaimVerdict.HOLDS if all(holds) else ClaimVerdict.PARTLY if any(holds) else ClaimVerdict.WRONG,
        "" if all(holds) else f"$0.17 is the price of {span(_time_for(17 * CENT, inputs))}; the range starts lower",
    )
    used = inputs.warm_start + inputs.run
    start, whole = cost_of(inputs.warm_start, inputs.hourly), cost_of(used, inputs.hourly)
    warm_holds = 3 in (_cents(start), _cents(whole))
    yield Claim(
        "warm start",
        "< 10 seconds, ~$0.03",
        f"{_product(inputs.warm_start, inputs)}; with its run {_product(used, inputs)}",
        f"{_dollars(start)}; with its run {_dollars(whole)}",
        start,
        ClaimVerdict.HOLDS if warm_holds else ClaimVerdict.WRONG,
        "" if warm_holds else f"$0.03 is the price of {span(_time_for(3 * CENT, inputs))}",
    )
    yield _printed("provisioning", "~2 minutes ≈ $0.07", 7, inputs.provisioning, inputs, why="another price or time")
    why = "for each machine that idles out, and the machine's tear-down comes on top"
    yield _printed("idle ceiling", "5 minutes, ~$0.17 at most", 17, inputs.idle_timeout, inputs, why=why)
    timeout = inputs.idle_timeout_configured
    amount = cost_of(timeout, inputs.hourly)
    yield Claim(
        "idle ceiling as configured",
        "10 minutes (no figure given)",
        _product(timeout, inputs),
        _dollars(amount),
        amount,
        ClaimVerdict.ADDED,
        "what a machine really idles for at most",
    )


def _example(inputs: Inputs) -> Iterator[Claim]:
    """The worked example: runs with and without reuse."""
    runs, each = inputs.runs, f"{span(inputs.provisioning)} + {span(inputs.run)}"
    without, with_it = time_without_reuse(inputs, runs), time_with_reuse(inputs, runs)
    series = f"{span(inputs.provisioning)} + {runs} × {span(inputs.run)} + {span(inputs.idle_timeout)} = "
    for topic, said, cents, time, formula in (
        (f"{runs} runs without reuse", "(2 min + 0.5 min) × 3 ≈ $0.25", 25, without, f"({each}) × {runs} = "),
        (f"{runs} runs with reuse", "2 min + 1.5 min + 5 min ≈ $0.28", 28, with_it, series),
    ):
        yield _printed(topic, said, cents, time, inputs, why="other inputs", formula=formula)
    apart, together = cost_of(without, inputs.hourly), cost_of(with_it, inputs.hourly)
    dearer = together > apart
    yield Claim(
        f"what reuse saves in {runs} runs",
        "presented as cost optimization",
        f"{_dollars(apart)} − {_dollars(together)}",
        _dollars(apart - together),
        apart - together,
        ClaimVerdict.WRONG if dearer else ClaimVerdict.HOLDS,
        f"with reuse it costs {_tenths(-saving(inputs, runs))} % more" if dearer else "",
    )


def _reuse(inputs: Inputs) -> Iterator[Claim]:
    """From how many runs on reuse pays, and whether it ever saves as much as estimated."""
    for idle in dict.fromkeys((inputs.idle_timeout, inputs.idle_timeout_configured)):
        least = break_even(inputs, idle=idle)
        yield Claim(
            f"runs from which reuse pays, idle timeout {span(idle)}",
            "not given",
            f"(n − 1) × {span(inputs.provisioning)} > {span(idle)}, runs back to back",
            "never" if least is None else f"{least} runs in a row",
            None,
            ClaimVerdict.ADDED,
            "every gap between two runs counts against it: (n − 1) × (provisioning − gap) > idle timeout",
        )
    timeout = span(inputs.idle_timeout)
    for gap in GAPS:
        most, least = most_saved(inputs, gap), runs_to_save(inputs, 600, gap)
        limit = f"below {_tenths(most)} %" if most > 0 else "nothing saved"
        reached = "never" if least is None else f"from {least} runs in a row on (idle timeout {timeout})"
        yield Claim(
            f"60–80 % saving, gap between runs {span(gap)}",
            "60-80% cost reduction vs pure serverless",
            f"({span(inputs.provisioning)} − {span(gap)}) ÷ ({span(inputs.provisioning)} + {span(inputs.run)})",
            f"{limit}; 60 % {reached}",
            None,
            ClaimVerdict.WRONG if least is None else ClaimVerdict.PARTLY,
            "the gap eats it" if least is None else "the limit is reached by no series; short series save nothing",
        )


def _month(inputs: Inputs, tasks: int) -> Iterator[Claim]:
    """A month of so many tasks a day, and how long the grant lasts."""
    costs = {pattern: month(inputs, tasks, pattern) for pattern in PATTERNS}
    low, high, months = MONTHS.get(tasks, (None, None, None))
    known = low is not None and high is not None and months is not None
    verdict, why = (ClaimVerdict.ADDED, "")
    if low is not None and high is not None:
        verdict, why = _within(costs, low * DOLLAR, high * DOLLAR)
    yield Claim(
        f"a month of {tasks} tasks a day",
        f"${low}-{high}" if known else "not given",
        f"{inputs.days} days, idle timeout {span(inputs.idle_timeout_configured)}",
        "; ".join(f"{name} {_dollars(cost)}" for name, cost in costs.items()),
        costs["no reuse"],
        verdict,
        why,
    )
    if low is None or high is None or months is None:
        return
    shortest, longest = (_months(inputs.grant, cost * DOLLAR) for cost in (high, low))
    truly = ", ".join(f"{name} {_tenths(_months(inputs.grant, cost))}" for name, cost in costs.items())
    holds = shortest <= months * 10 <= longest
    yield Claim(
        f"how long the grant lasts at {tasks} tasks a day",
        f"{months} months",
        f"{usd(inputs.grant)} ÷ ${low}-{high} a month",
        f"{_tenths(shortest)} … {_tenths(longest)} months; by pattern: {truly}",
        None,
        ClaimVerdict.HOLDS if holds else ClaimVerdict.WRONG,
        "" if holds else f"{months} months would be {_dollars(inputs.grant // months)} a month",
    )


def _within(costs: dict[Pattern, int], low: int, high: int) -> tuple[ClaimVerdict, str]:
    """Whether any pattern costs an amount in a range."""
    inside = [name for name, cost in costs.items() if low <= cost <= high]
    if inside:
        return ClaimVerdict.PARTLY, f"true for: {', '.join(inside)}"
    if min(costs.values()) <= high and low <= max(costs.values()):
        return ClaimVerdict.PARTLY, "between the patterns"
    return ClaimVerdict.WRONG, "no pattern gives it"


def _printed(topic: str, said: str, cents: int, time: int, inputs: Inputs, *, why: str, formula: str = "") -> Claim:
    """An estimate that holds if the calculation gives as many cents."""
    amount = cost_of(time, inputs.hourly)
    holds = _cents(amount) == cents
    verdict = ClaimVerdict.HOLDS if holds else ClaimVerdict.WRONG
    return Claim(topic, said, formula + _product(time, inputs), _dollars(amount), amount, verdict, "" if holds else why)


def _product(time: int, inputs: Inputs) -> str:
    return f"{span(time)} × {usd(inputs.hourly)}/h"


def _dollars(amount: int) -> str:
    """To four decimals below ten dollars, else to the cent."""
    step = 100 if abs(amount) < 10 * DOLLAR else CENT
    return usd((2 * amount + step) // (2 * step) * step)


def _cents(amount: int) -> int:
    """Half up."""
    return (2 * amount + CENT) // (2 * CENT)


def _time_for(amount: int, inputs: Inputs) -> int:
    """How long a machine runs for so much money, to the second."""
    return round(amount * HOUR / max(1, inputs.hourly) / SECOND) * SECOND


def _months(grant: int, monthly: int) -> int:
    """Tenths of months."""
    return grant * 10 // max(1, monthly)


def _tenths(number: int) -> str:
    return f"{number // 10}.{number % 10}"
