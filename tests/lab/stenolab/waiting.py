"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.1


class StillWaiting(AssertionError):
    """It did not become true in time."""


def wait(condition: Callable[[], T | None], *, seconds: float, what: str, pause: float = PAUSE_S) -> T:
    """The first true value of `condition()`; `pause` seconds lie between two looks.

    Raises:
        StillWaiting: none came within `seconds`.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise StillWaiting(f"after {seconds:g} s still waiting for {what}")
        time.sleep(pause)
