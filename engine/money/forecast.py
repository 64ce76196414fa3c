"""The cost of a month ahead: a band around the best guess, from the days of this record alone. A day costs a level that
may wander and rise or fall, plus what its weekday adds, plus chance. How far it wanders and how steeply it rises is not
known: every pair of `_WANDERING` and `_SLOPES` predicts each day from those before, and the better pairs weigh more.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log, sqrt
from typing import Annotated, Final

from msgspec import Meta

from steno.engine.money.daily import day_text, month_days
from steno.engine.state.policy import DAY
from steno.engine.wire import Shape, Time, Usd
from steno.events.clock import format_time

LEVEL: Final = 80  # percent of months that the band is meant to hold
FEWEST: Final = 7  # whole days that a forecast needs: a week
CHECKED: Final = 60  # earlier days whose forecasts are compared with what came
_AHEAD: Final = 366  # days within which a budget is used up, or its date is not given
_WINDOW: Final = 56  # days that count
_FADING: Final = 0.95  # what the error of a day counts beside that of the next
_WANDERING: Final = (0.0, 0.01, 0.05, 0.25, 1.0)  # how far the level moves a day: its variance in that of a day
_SLOPES: Final = (-0.04, -0.02, 0.0, 0.02, 0.04)  # of the mean, a day
_STEEP: Final = 50.0  # what the logarithm of a fit loses for a slope of 1
_LEAST: Final = 0.02  # of the mean: no day is known better
_WIDE: Final = (1.44, 1.106, 0.865)  # Student's quantile for 85 % by powers of 1 ÷ degrees: the never seen happens too
Band = tuple[int, int, int]  # low, best, high, in micro-dollars
_Days = Annotated[tuple[str | None, ...], Meta(min_length=3, max_length=3)]  # a schema of any tool can say it
_NO_DAYS: Final[_Days] = (None, None, None)


class MonthForecast(Shape, frozen=True):
    """The cost of a month and the day on which the budget is used up, by this record's own days."""

    month: str  # YYYY-MM, UTC
    known_to: Time | None  # the newest poll: what comes later is guessed
    spent_usd: Usd
    low_usd: Usd | None
    best_usd: Usd | None
    high_usd: Usd | None
    level_percent: int  # so many of 100 such bands are meant to hold the cost
    checked: int  # earlier days whose forecast can be compared with what came
    held: int  # those whose band held it, to the end of their month or to yesterday
    unknown: str | None  # why there is no forecast
    used_up: Annotated[_Days, Meta(description="Earliest, likely and latest day on which the budget is used up.")]
    used_up_unknown: str | None  # why there is no likely day


def month_forecast(spent: Mapping[int, int], known: int | None, now: int, left: int | None) -> MonthForecast:
    """`spent`: day since 1970 → micro-dollars, of a record that knows all up to `known`; `left`: of the budget."""
    month, today = day_text(now // DAY)[:7], (now if known is None else known) // DAY
    days, first = month_days(month), min(spent, default=today) + 1  # the day before is not known as a whole
    whole = [spent.get(day, 0) for day in range(first, today)]
    so_far = sum(cost for day, cost in spent.items() if days.first <= day <= days.last)
    unknown = None
    if known is None or today < days.first:
        last = "there is no poll" if known is None else f"the newest poll is of {format_time(known)[:10]}"
        unknown = f"{last}; `steno up` polls"
    elif today > days.last:
        unknown = f"the newest poll is of {format_time(known)[:10]}, but the clock of this machine shows {month}"
    elif len(whole) < FEWEST:
        unknown = f"it needs {FEWEST} whole days, and this record has {len(whole)}"
    low = best = high = None
    used_up, checked, held, no_date = _NO_DAYS, 0, 0, unknown
    if known is not None and unknown is None:
        rest = 1 - known % DAY / DAY
        low, best, high = (so_far + cost for cost in _until(whole, today, days.last, rest))
        checked, held = hit_rate(whole, today)
        used_up, no_date = _used_up(whole, today, rest, left)
    return MonthForecast(month, known, so_far, low, best, high, LEVEL, checked, held, unknown, used_up, no_date)


def hit_rate(whole: Sequence[int], today: int) -> tuple[int, int]:
    """(earlier days that had a forecast, those whose band held what came to the end of their month, or yesterday)."""
    checked = held = 0
    first = today - len(whole)
    for day in range(max(first + FEWEST, today - CHECKED), today):
        count, end = day - first, min(today - 1, month_days(day_text(day)[:7]).last)
        low, _, high = _until(whole[:count], day, end)
        checked += 1
        held += low <= sum(whole[count : end - first + 1]) <= high
    return checked, held


def outlook(whole: Sequence[int], today: int, rest: float = 1.0) -> Iterator[Band]:
    """The cost of the `rest` of today, of that and tomorrow, and so on without an end, after these whole days."""
    costs = [float(cost) for cost in whole[-_WINDOW:]]
    first, scale = today - len(costs), sum(costs) / len(costs) or 1.0
    adds = _weekdays(costs, first)
    levels = [cost - adds[(first + place) % 7] for place, cost in enumerate(costs)]
    fits = [_fit(levels, slope * scale, wandering, scale) for wandering in _WANDERING for slope in _SLOPES]
    top = max(fit[0] for fit in fits)
    shares = [exp(fit[0] - top) / sum(exp(other[0] - top) for other in fits) for fit in fits]
    degrees = (1 - _FADING ** (len(costs) - 1)) / (1 - _FADING) - 1
    wide = sum(term / degrees**power for power, term in enumerate(_WIDE))
    length = lengths = walk = climbed = added = 0.0
    low, best, count = 0, 0, 0
    while True:
        part, count = 1.0 if count else rest, count + 1
        walk += 2 * part * lengths + count * part * part
        lengths, length, climbed = lengths + count * part, length + part, climbed + count * part
        added += part * adds[(today + count - 1) % 7]
        means = [level * length + slope * climbed + added for _, level, slope, *_ in fits]
        mean = sum(share * own for share, own in zip(shares, means, strict=True))
        variance = 0.0
        for share, own, (*_, of_day, doubt, wandering) in zip(shares, means, fits, strict=True):
            variance += share * (of_day * (doubt * length**2 + length + wandering * walk) + (own - mean) ** 2)
        best, half = max(best, round(mean)), round(wide * sqrt(variance))
        low = max(low, best - half)
        yield low, best, best + half


def _until(whole: Sequence[int], today: int, last: int, rest: float = 1.0) -> Band:
    return next(band for day, band in enumerate(outlook(whole, today, rest), today) if day == last)


def _used_up(whole: Sequence[int], today: int, rest: float, left: int | None) -> tuple[_Days, str | None]:
    if left is None or left <= 0:
        return _NO_DAYS, "no budget is set (budget.total)" if left is None else "nothing is left"
    bands = list(zip(range(today, today + _AHEAD), outlook(whole, today, rest), strict=False))
    late, likely, early = (
        next((day_text(day) for day, band in bands if band[bound] >= left), None) for bound in range(3)
    )
    return (early, likely, late), f"not within {_AHEAD} days" if likely is None else None


def _weekdays(costs: Sequence[float], first: int) -> list[float]:
    """The part that each weekday adds to the mean of its week, smaller if few weeks are known; by day modulo 7."""
    if len(costs) < 2 * 7:
        return [0.0] * 7
    adds: list[list[float]] = [[] for _ in range(7)]
    for place in range(3, len(costs) - 3):
        adds[(first + place) % 7].append(costs[place] - sum(costs[place - 3 : place + 4]) / 7)
    means = [sum(values) / (len(values) + 1) for values in adds]
    return [mean - sum(means) / 7 for mean in means]


def _fit(costs: Sequence[float], slope: float, wandering: float, scale: float) -> tuple[float, ...]:
    """By Kalman's filter: (log of the fit, level, slope, variance of a day, that of the level in it, wandering)."""
    level, doubt = costs[0], 1.0
    errors = logs = count = 0.0
    for cost in costs[1:]:
        level, doubt = level + slope, doubt + wandering
        error, width = cost - level, doubt + 1
        errors, logs = _FADING * errors + error * error / width, _FADING * logs + log(width)
        count, level, doubt = _FADING * count + 1, level + error * doubt / width, doubt / width
    variance = max(errors / count, (_LEAST * scale) ** 2)
    fit = -(count * log(variance) + logs) / 2 - _STEEP * abs(slope / scale)
    return fit, level, slope, variance, doubt, wandering
