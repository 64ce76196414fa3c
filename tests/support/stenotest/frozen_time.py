"""This machine's clock in the hands of a test: freezegun at the edge, where `SystemClock` asks the time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest import mock

from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory, TickingDateTimeFactory

from steno.events import clock


class Hands:
    """Moves the clock that everything in this process reads."""

    def __init__(self, frozen: TickingDateTimeFactory | FrozenDateTimeFactory) -> None:
        self._frozen = frozen

    def later(self, seconds: float) -> None:
        """So many seconds pass at once."""
        self._frozen.move_to(self._frozen() + timedelta(seconds=seconds))  # a clock that runs would tick from its start


@contextmanager
def time_in_hand(at: str | None = None, *, runs: bool = False) -> Iterator[Hands]:
    """The clock stands at `at` (ISO 8601, UTC; None: now); with `runs` it goes on from there by itself.

    Timers of asyncio, sleeps and file times stay real. Servers and threads of this process need `runs`. Import what
    defines pydantic models before: they take the class of dates they find.
    """
    start = datetime.now(UTC) if at is None else datetime.fromisoformat(at)
    with freeze_time(start, tick=runs, real_asyncio=True, ignore=["_pytest.timing"]) as frozen:
        booted = time.time_ns() // 1000 - clock.boot_time()
        with mock.patch.object(clock, "boot_time", side_effect=lambda: time.time_ns() // 1000 - booted):
            yield Hands(frozen)
