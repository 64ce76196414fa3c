"""How long to wait before the next round of polls: a pure function of what the last rounds showed."""

from dataclasses import dataclass, replace

from steno.events.clock import SECOND, backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Bounds of the interval, microseconds."""

    fast: int = SECOND  # the shortest pause: the provider's clock ticks in seconds, so more shows nothing new
    slow: int = 15 * SECOND
    """The longest time between the starts of two rounds, unless the polls take longer: half of the 30 s after which a
    source counts as stale, so that an answering source stays fresh.
    """
    share: int = 5
    """Polls may take 1/share of the time, so that a large project is not polled without a pause. `slow` goes first."""
    growth: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The result of the rounds so far."""

    interval: int = 0  # the pause chosen last, from the end of the polls, microseconds
    failures: int = 0  # rounds in a row in which no poll was answered


def after_round(rhythm: Rhythm, pace: Pace, *, answered: bool, moving: bool, took: int) -> Rhythm:
    """The rhythm after one more round. `answered`: the source answered at least one poll of it. `moving`: a run has not
    ended, an intent is open, or something changed in the round. `took`: the time of its polls, microseconds, without
    decisions and effects.
    """
    if not answered:
        failures = rhythm.failures + 1
        # 1, 2, 4 … s: quick enough for a restart of 17 s, slow enough not to load a struggling server.
        return Rhythm(interval=backoff(failures, first=pace.fast, most=pace.slow), failures=failures)
    most = max(pace.fast, pace.slow - took)
    floor = max(pace.fast, min(most, took * (pace.share - 1)))
    if moving or rhythm.failures:
        return Rhythm(interval=floor)
    grown = int(max(rhythm.interval, pace.fast) * pace.growth)
    return replace(rhythm, interval=max(floor, min(most, grown)), failures=0)
