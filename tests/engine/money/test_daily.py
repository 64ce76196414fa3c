"""Charts by day: no grouping loses or doubles what machines cost and were used for."""

from collections.abc import Sequence
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from steno.engine.money.daily import (
    MACHINES,
    OTHER,
    SERIES,
    STACKS,
    STRIPS,
    BilledMachine,
    DayRange,
    DaySpend,
    DayUse,
    MachineDays,
    spend_of,
    utilisation_of,
)
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

DAYS = st.integers(0, 9)
USES = st.dictionaries(DAYS, st.tuples(st.integers(1, 100), st.integers(0, 100)), max_size=3)
SPENDS = st.dictionaries(
    st.tuples(DAYS, st.none() | st.sampled_from("abcdefghij"), st.sampled_from(["busy", "idle"])), st.integers(1, 10**6)
)
RANGES = st.tuples(DAYS, DAYS).map(lambda ends: DayRange(min(ends), max(ends)))


@st.composite
def fleets(draw: st.DrawFn) -> list[BilledMachine]:
    """Up to 90 machines of four GPUs; the second half of them repeats the days of the first."""
    days = draw(st.lists(st.tuples(USES, SPENDS, st.sampled_from("wxyz")), max_size=45))
    return [machine(number, *spans) for number, spans in enumerate(days * draw(st.integers(1, 2)))]


def machine(
    number: int, uses: dict[int, tuple[int, int]], spends: dict[tuple[int, str | None, str], int], gpu: str = "w"
) -> BilledMachine:
    use = tuple(DayUse(day, billed * SECOND, min(billed, busy) * SECOND) for day, (billed, busy) in uses.items())
    spend = tuple(DaySpend(*key, cost) for key, cost in spends.items())
    return BilledMachine(f"vm-{number:02}", f"m{number}" if number % 2 else None, gpu, MachineDays(spend, use))


MANY = [machine(number, {1: (100 - number, number), 4: (1, 1)}, {}) for number in range(MACHINES + 5)]


@given(fleets(), RANGES)
@example(MANY, DayRange(0, 9))
@example(MANY, DayRange(2, 4))
def test_strips_sum_to_all_machines_and_the_longest_are_shown(fleet: list[BilledMachine], span: DayRange) -> None:
    """By GPU and by machine; at most 60 machines, those billed longest in the range, and the rest as one."""
    for by in STRIPS:
        use = utilisation_of(iter(fleet), by, span)
        whole = [sum(strip.days[place][0] for strip in use.strips) for place in range(len(use.days))]
        assert [billed for billed, _ in use.total.days] == whole
        assert use.total.billed_seconds == sum(map(billed_in(span), fleet))
        lengths = [strip.billed_seconds for strip in use.strips if strip.key != OTHER]
        assert lengths == sorted(lengths, reverse=True)
    used = [machine for machine in fleet if billed_in(span)(machine)]
    longest = sorted(used, key=lambda each: (-billed_in(span)(each), each.vm_id))[:MACHINES]
    others = [OTHER] if len(used) > MACHINES else []
    assert [strip.key for strip in use.strips] == [*(machine.vm_id for machine in longest), *others]
    names = [machine.name or machine.vm_id for machine in longest]
    assert [strip.label for strip in use.strips] == [
        *names,
        *(f"{len(used) - MACHINES} other machines" for _ in others),
    ]


def billed_in(span: DayRange):
    """Seconds that a machine was billed in a range."""
    return lambda machine: sum(use.billed for use in machine.days.use if span.first <= use.day <= span.last) / SECOND


@given(fleets(), RANGES)
def test_stacks_sum_to_the_days_and_these_to_the_total(fleet: list[BilledMachine], span: DayRange) -> None:
    """However they are stacked, to the micro-dollar, in at most seven series and what no run pays."""
    paid = [spent for each in fleet for spent in each.days.spend if span.first <= spent.day <= span.last]
    for by in STACKS:
        spend = spend_of(iter(fleet), by, span)
        assert spend.total_usd == sum(spent.cost for spent in paid)
        assert micros(spend.daily) == spend.total_usd
        assert sum(series.total_usd for series in spend.series) == spend.total_usd
        assert all(micros(series.daily) == series.total_usd for series in spend.series)
        assert len(spend.series) <= SERIES + 1


def micros(amounts: Sequence[str]) -> int:
    return int(sum(map(Decimal, amounts)) * DOLLAR)
