"""How long to wait after failures: pure, so that a replay of the same failures waits the same."""

from events.clock import SECOND

FIRST = 1 * SECOND
"""Wait after the first failure, microseconds."""
LONGEST = 30 * SECOND
"""No wait is longer; a source is called blind after 60 s without an answer, so we ask at least twice before that."""


def backoff(failures: int, jitter: float) -> int:
    """The wait before the next try after `failures` failures in a row, in microseconds; 0 for none.

    Doubles from one second to thirty.

    Args:
        failures: how many answers in a row were none.
        jitter: 0 to 1, drawn by the caller; the wait is between half and all of the doubled time, so that many
            recorders of one server do not come back at once.
    """
    if failures <= 0:
        return 0
    whole = min(LONGEST, FIRST * 2 ** min(failures - 1, 16))
    return int(whole * (0.5 + 0.5 * min(1.0, max(0.0, jitter))))
