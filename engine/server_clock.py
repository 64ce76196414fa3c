"""The offset of a provider's clock from ours, by the HTTP `Date` of one answer."""

from typing import Final

from events.clock import SECOND, SKEW

RENEWED: Final = SECOND  # how old a `Date` usually is at most

OLDEST: Final = 60 * SECOND  # how old a `Date` is at most: a source silent for so long is blind


def skew_of(server_time: int, started_at: int, observed_at: int, *, known: int = 0) -> int:
    """How far (microseconds) a provider's clock is ahead of ours, negative: behind; 0 if that may be at most 2 s.
    `known` stays if the answer does not contradict it. `server_time` was cut to the second and taken before the end of
    the answer, seldom long before the question. Gives the largest skew that agrees with it: a machine then seems made
    too early rather than too late, and is never billed short.
    """
    least, most = server_time - observed_at, server_time + SECOND + RENEWED - started_at
    if least > SKEW or most < -SKEW - OLDEST:
        return known if known and least - SKEW <= known <= most + SKEW + OLDEST else most
    # The clocks may be equal. Only a fresh date shows that they are no longer as far apart as they were.
    return known if least - SKEW <= known <= most + SKEW or (known > 0 and most < -SKEW) else 0
