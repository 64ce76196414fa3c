"""How far a provider's clock is ahead of ours, by the HTTP `Date` of one answer."""

from typing import Final

from events.clock import SECOND

SKEW: Final = 2 * SECOND  # clocks that differ by no more are equal

RENEWED: Final = SECOND  # how old a `Date` usually is at most

OLDEST: Final = 60 * SECOND
"""How old a `Date` is at most: a source that answers nothing for so long is blind."""


def skew_of(server_time: int, started_at: int, observed_at: int, *, known: int = 0) -> int:
    """How far (microseconds) a provider's clock is ahead of ours, below zero: behind it; 0 where that may be no more
    than 2 s. `known` stays where the answer does not contradict it.

    `server_time` was cut to the second and taken before the end of the answer, seldom long before the question. The
    largest skew that agrees with it is given: a machine seems made rather too early, and is never billed short.
    """
    least, most = server_time - observed_at, server_time + SECOND + RENEWED - started_at
    if least > SKEW or most < -SKEW - OLDEST:
        return known if known and least - SKEW <= known <= most + SKEW + OLDEST else most
    # The clocks may be equal. Only a fresh date shows that they are no longer as far apart as they were.
    return known if least - SKEW <= known <= most + SKEW or (known > 0 and most < -SKEW) else 0
