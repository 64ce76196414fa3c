"""Charts by day: no grouping loses or doubles what machines cost and were used for."""

from collections.abc import Sequence
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from engine.money.daily import (
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
from engine.policy import DOLLAR
from events.clock import SECOND

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
    return [machine(number, *one) for number, one in enumerate(days * draw(st.integers(1, 2)))]


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
def test_strips_sum_to_all_machines_and_the_longest_are_shown(fleet: list[BilledMachine], shown: DayRange) -> None:
    """By GPU and by machine; at most 60 machines, those billed longest in the range, and the rest as one."""
    for by in STRIPS:
        found = utilisation_of(iter(fleet), by, shown)
        whole = [sum(one.days[place][0] for one in found.strips) for place in range(len(found.days))]
        assert [billed for billed, _ in found.total.days] == whole
        assert found.total.billed_seconds == sum(map(billed_in(shown), fleet))
        lengths = [one.billed_seconds for one in found.strips if one.key != OTHER]
        assert lengths == sorted(lengths, reverse=True)
    used = [one for one in fleet if billed_in(shown)(one)]
    longest = sorted(used, key=lambda one: (-billed_in(shown)(one), one.vm_id))[:MACHINES]
    others = [OTHER] if len(used) > MACHINES else []
    assert [one.key for one in found.strips] == [*(one.vm_id for one in longest), *others]
    names = [one.name or one.vm_id for one in longest]
    assert [one.label for one in found.strips] == [*names, *(f"{len(used) - MACHINES} other machines" for _ in others)]


def billed_in(shown: DayRange):
    """Seconds that a machine was billed in a range."""
    return lambda one: sum(use.billed for use in one.days.use if shown.first <= use.day <= shown.last) / SECOND


@given(fleets(), RANGES)
def test_stacks_sum_to_the_days_and_these_to_the_total(fleet: list[BilledMachine], shown: DayRange) -> None:
    """However they are stacked, to the micro-dollar, in at most seven series and what no run pays."""
    paid = [one for each in fleet for one in each.days.spend if shown.first <= one.day <= shown.last]
    for by in STACKS:
        found = spend_of(iter(fleet), by, shown)
        assert found.total_usd == sum(one.cost for one in paid)
        assert micros(found.daily) == found.total_usd
        assert sum(one.total_usd for one in found.series) == found.total_usd
        assert all(micros(one.daily) == one.total_usd for one in found.series)
        assert len(found.series) <= SERIES + 1


def micros(amounts: Sequence[str]) -> int:
    return int(sum(map(Decimal, amounts)) * DOLLAR)
