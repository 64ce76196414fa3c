"""Waiting for something to become true."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 600.0
"""It ends a hang and judges no speed: ten times what the slowest of our machines ever needed for one wait."""
LONGEST_PAUSE_S = 1.0
BREATH_S = 0.4
"""At most so long between two looks that are dear; they take a third of a core."""


class StillWaiting(AssertionError):
    """It did not become true in time."""


def wait(
    condition: Callable[[], T | None],
    what: str = "what the test claims",
    *,
    seconds: float = LIMIT_S,
    pause: float = 0.02,
) -> T:
    """The first true value of `condition()`; `pause` seconds lie between two looks, or a twentieth of the wait so far,
    or twice what a look takes.

    `seconds` is given only where even `LIMIT_S` is too short: a whole queue of runs.

    Raises:
        StillWaiting: none came.
    """
    begin = time.monotonic()
    while True:
        looked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        waited = now - begin
        if waited > seconds:
            raise StillWaiting(f"after {seconds:g} s still waiting for {what}")
        time.sleep(max(pause, min(waited / 20, LONGEST_PAUSE_S), min(2 * (now - looked), BREATH_S)))
