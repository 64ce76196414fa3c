"""A project for the dashboard to show: its record, and how it goes on."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from stenotest.big import polls

from engine.providers.readings import READINGS
from events.clock import SECOND, SystemClock
from events.store.record import Record

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

HOURS = 2


def told(client: httpx.Client, path: str, **params: Any) -> Any:
    """What a service that has just begun answers, once its read models are there."""
    end = time.monotonic() + 120
    while (answer := client.get(path, params=params)).status_code == 503 and time.monotonic() < end:
        time.sleep(0.05)
    assert answer.status_code == 200, answer.text
    return answer.json()


class Busy:
    """The record of a busy project: two hours of it, up to five minutes ago, and what comes then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        now = SystemClock().now()
        self._story = polls(now - HOURS * 3600 * SECOND)
        self.goes_on((HOURS * 3600 - 300) // 5)

    def goes_on(self, rounds: int = 50) -> int:
        """So many more looks at it, all at once; the head afterwards."""
        with Record.open(self.path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            record.append_polls(tuple(islice(self._story, rounds * 2)))
            return record.head().position
