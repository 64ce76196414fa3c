"""One who listens: a place in the ring, a clock for heartbeats, and no queue."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

HEARTBEAT: Final = 15.0
"""Seconds of silence after which a comment is sent."""
STUCK: Final = 30.0
"""Seconds a client may take for one piece before it is dropped."""
PIECE: Final = 64 << 10
"""Bytes after which what is sent at once is cut."""


class Dropped(StrEnum):
    """Why a client was dropped."""

    BEHIND = "behind"  # the ring has let go of what it would have got next
    STUCK = "stuck"  # it did not take what was sent


class Listener:
    """One client's state; used by the event loop's thread alone."""

    __slots__ = ("_drop", "_loop", "_silent_since", "_timer", "_waiter", "closed", "dropped", "place", "taking_since")

    def __init__(self, loop: asyncio.AbstractEventLoop, place: int, drop: Callable[[], None]) -> None:
        """`drop` ends the connection of a client that does not take what is sent."""
        self.place = place
        """The last position it had before it reached the ring."""
        self._loop = loop
        self._drop = drop
        self._waiter: asyncio.Future[None] | None = None
        self._silent_since = loop.time()
        self._timer: asyncio.TimerHandle | None = loop.call_later(HEARTBEAT, self._tick)
        self.taking_since: float | None = None
        """Since when what was given is being sent; None: nothing is."""
        self.closed = False
        self.dropped: Dropped | None = None

    async def wait(self) -> None:
        """Until there may be something to send."""
        if self.closed:
            return
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """There may be something."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Nothing more is to be sent."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def gives(self) -> None:
        """Something is sent from now on."""
        self.taking_since = self._silent_since = self._loop.time()

    def given(self) -> None:
        """It was sent."""
        self.taking_since = None

    @property
    def heartbeat_due(self) -> bool:
        """Whether it has been silent for long."""
        return self._loop.time() - self._silent_since >= HEARTBEAT - 0.001

    def check(self) -> None:
        """Drop it if it is stuck."""
        if self.taking_since is not None and self._loop.time() - self.taking_since > STUCK and self.dropped is None:
            self.dropped = Dropped.STUCK
            self.close()
            self._drop()

    def _tick(self) -> None:
        left = self._silent_since + HEARTBEAT - self._loop.time()
        if self.taking_since is None and left <= 0.001:
            self.wake()
            left = HEARTBEAT
        self._timer = self._loop.call_later(max(left, 0.1), self._tick)


def cancelling(task: asyncio.Task[Any] | None) -> Callable[[], None]:
    """What drops a client by cancelling the task that serves it."""

    def cancel() -> None:
        if task is not None:
            task.cancel()

    return cancel
