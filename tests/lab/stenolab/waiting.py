"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class StillWaiting(AssertionError):
    """It did not become true in time."""


def wait(condition: Callable[[], T | None], *, seconds: float, what: str, pause: float = PAUSE_S) -> T:
    """The first true value of `condition()`; `pause` seconds lie between two looks, or a twentieth of the wait so far.

    Raises:
        StillWaiting: none came within `seconds`.
    """
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > seconds:
            raise StillWaiting(f"after {seconds:g} s still waiting for {what}")
        time.sleep(max(pause, min(waited / 20, LONGEST_PAUSE_S)))
