"""The forecast of a month: its band over replayed histories, its hit rate, the day on which a budget is used up."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno.engine.money.daily import day_text, month_days
from steno.engine.money.forecast import CHECKED, FEWEST, LEVEL, MonthForecast, hit_rate, month_forecast
from steno.engine.state.policy import DAY
from steno.engine.wire import DOLLAR

FIRST, LAST = month_days("2026-11")
Costs = Callable[[Random, int], float]  # dollars of a day after the month's first
BEFORE = 45  # days before the month that the long records know


def steady(chance: Random, _: int) -> float:
    return chance.gauss(100, 12)


def workdays(chance: Random, day: int) -> float:
    return chance.gauss(120, 15) if (FIRST + day) % 7 < 5 else chance.gauss(20, 8)


def bursty(chance: Random, _: int) -> float:
    return chance.lognormvariate(4.5, 0.5) if chance.random() < 0.35 else chance.uniform(0, 5)


def growing(chance: Random, day: int) -> float:
    return 150 + 2.5 * day + chance.gauss(0, 12)


def falling(chance: Random, day: int) -> float:
    return 200 - 3 * day + chance.gauss(0, 15)


def expensive_before(chance: Random, day: int) -> float:
    return steady(chance, day) + (900 if day == -9 else 0)


def expensive_within(chance: Random, day: int) -> float:
    return steady(chance, day) + (900 if day == 5 else 0)


def heavy(chance: Random, _: int) -> float:
    return chance.lognormvariate(3, 1)


def idle_at_times(chance: Random, day: int) -> float:
    return 0.0 if day % 4 == 0 else steady(chance, day)


HISTORIES: dict[str, tuple[Costs, int]] = {  # and the days before the month that its record knows
    **{
        costs.__name__: (costs, BEFORE)
        for costs in (steady, workdays, bursty, growing, falling, expensive_before, expensive_within, heavy)
    },
    "few days known": (steady, 0),
    "few days known, idle at times": (idle_at_times, 0),
}


def history(name: str, seed: int = 1) -> dict[int, int]:
    costs, before = HISTORIES[name]
    chance = Random(f"{name} {seed}")
    return {FIRST + day: max(0, round(costs(chance, day) * DOLLAR)) for day in range(-before, LAST - FIRST + 1)}


def seen(spent: dict[int, int], day: int, left: int | None = None) -> MonthForecast:
    """The forecast at the first moment of a day."""
    return month_forecast({known: cost for known, cost in spent.items() if known < day}, day * DAY, day * DAY, left)


def holds(spent: dict[int, int], day: int) -> bool:
    ahead = seen(spent, day)
    assert (ahead.low_usd, ahead.high_usd) != (None, None)
    return (ahead.low_usd or 0) <= sum(spent[each] for each in range(FIRST, LAST + 1)) <= (ahead.high_usd or 0)


@pytest.mark.parametrize("day", [9, 13, 18, 23, 28])
def test_the_band_holds_the_true_month_in_eight_of_ten_histories(day: int) -> None:
    """Whatever process the days come from."""
    held = [name for name in HISTORIES if holds(history(name), FIRST + day)]
    assert len(held) >= 8, held


def test_over_many_histories_the_band_holds_as_often_as_it_claims() -> None:
    held = [
        holds(history(name, seed), FIRST + day) for name in HISTORIES for seed in range(2, 6) for day in (10, 17, 24)
    ]
    assert sum(held) * 100 >= LEVEL * len(held)


def test_a_band_is_narrow_where_the_days_are_alike_and_shrinks() -> None:
    """A band that holds everything would say nothing."""
    spent = history("steady")
    widths = [
        (ahead.high_usd or 0) - (ahead.low_usd or 0) for ahead in (seen(spent, FIRST + day) for day in (2, 15, 29))
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[1] < 0.2 * sum(spent[day] for day in range(FIRST, LAST + 1))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 10**10), min_size=FEWEST, max_size=40), st.integers(0, DAY - 1), st.integers(1, 10**12))
def test_any_days_give_an_ordered_band_from_what_is_spent_on(costs: list[int], moment: int, left: int) -> None:
    """low ≤ best ≤ high, never below what is spent; the same days give the same band."""
    spent = dict(enumerate([0, *costs, costs[0] // 2], LAST - len(costs) - 8))
    known = max(spent) * DAY + moment
    ahead = month_forecast(spent, known, known, left)
    assert ahead.low_usd is not None
    assert ahead.best_usd is not None
    assert ahead.high_usd is not None
    assert ahead.spent_usd <= ahead.low_usd <= ahead.best_usd <= ahead.high_usd
    assert ahead == month_forecast(spent, known, known, left)
    dates = [day for day in ahead.used_up if day is not None]
    assert dates == sorted(dates)
    assert (ahead.used_up[1] is None) == (ahead.used_up_unknown is not None)


def test_the_hit_rate_is_that_of_the_forecasts_of_earlier_days() -> None:
    """Each earlier day's own forecast, made of what was known then, against what its month came to."""
    spent, today, held = history("bursty"), LAST + 1, 0
    for day in range(today - CHECKED, today):
        ahead, month = seen(spent, day), month_days(day_text(day)[:7])
        cost = sum(spent.get(each, 0) for each in range(month.first, month.last + 1))
        held += (ahead.low_usd or 0) <= cost <= (ahead.high_usd or 0)
    assert 0 < held < CHECKED
    assert hit_rate([spent[day] for day in range(min(spent) + 1, today)], today) == (CHECKED, held)


def test_a_steady_record_says_when_its_budget_is_used_up() -> None:
    """Ten days of 100 dollars are left."""
    spent = dict.fromkeys(range(FIRST - 20, FIRST + 10), 100 * DOLLAR)
    ahead = seen(spent, FIRST + 10, left=1_000 * DOLLAR - 1)
    assert ahead.used_up[1] == "2026-11-20"
    assert ahead.used_up_unknown is None
    assert seen(spent, FIRST + 10).used_up_unknown == "no budget is set (budget.total)"
    assert seen(spent, FIRST + 10, left=0).used_up_unknown == "nothing is left"
    assert seen(spent, FIRST + 10, left=10**15).used_up_unknown == "not within 366 days"


@pytest.mark.parametrize(
    ("known", "now", "why"),
    [
        (None, FIRST + 9, "there is no poll"),
        (FIRST - 2, FIRST + 9, "the newest poll is of 2026-10-30"),
        (FIRST + 3, FIRST + 9, "it needs 7 whole days, and this record has 5"),
        (FIRST + 35, FIRST + 9, "the newest poll is of 2026-12-06, but the clock of this machine shows 2026-11"),
    ],
)
def test_what_cannot_be_known_is_unknown_with_its_reason(known: int | None, now: int, why: str) -> None:
    """No poll, none of this month or one after it, too few days: no figure is made up, and the search ends."""
    spent = {} if known is None else dict.fromkeys(range(FIRST - 3, min(known, FIRST + 3)), DOLLAR)
    ahead = month_forecast(spent, None if known is None else known * DAY, now * DAY, None)
    assert ahead.unknown is not None
    assert ahead.unknown.startswith(why)
    assert (ahead.low_usd, ahead.best_usd, ahead.high_usd, ahead.checked) == (None, None, None, 0)
