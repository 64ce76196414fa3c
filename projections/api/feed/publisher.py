"""Hands frames of the live world to the event loop through a bounded queue, and counts events."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from engine.fold.change import Change
from engine.fold.world_codec import WorldState
from events.clock import SECOND, Clock
from events.errors import reported
from events.store.record import Record
from projections.api.feed.frames import Frame, FrameMaker
from projections.api.feed.listener import FRAMES
from projections.api.tally import Tally

_log: Final = logging.getLogger("steno.feed")


class Published(NamedTuple):
    """All frames in `(after, position]`; before `after`, frames may be missing."""

    after: int
    until: int
    frames: Sequence[Frame]


class Publisher(FrameMaker):
    """An observer of the live world. The world's owner calls its methods, the event loop's thread calls `take`. `wake`
    is called on new frames, once between two calls of `take`.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        super().__init__()
        self.tally = Tally()
        self.trouble: str | None = None  # why frames are missing; None: none are
        self._clock = clock
        self._wake = wake
        self._position: int | None = None  # the last position with frames; None before the first
        self._until = 0
        self._changes: list[Change] = []
        self._lock = threading.Lock()
        self._queue: list[Published] = []
        self._queued = 0  # frames in the queue

    # -- an observer: see `engine.live.live_world.Observer`

    def start(self, record: Record, state: WorldState, position: int) -> None:
        """The world is at `position`; missed frames are rebuilt from the record on demand."""
        super().start(record, state, position)
        if self._position is None:
            self.tally.begin(record, position)
        if self._position != position:
            self._position = position
            self._put(Published(position, position, ()))

    def begin(self, after: int, until: int, *, more: bool = True) -> tuple[int, ...]:
        self._until, self._changes = until, []
        return super().begin(after, until, more=more)

    def changed(self, position: int, changes: tuple[Change, ...]) -> None:
        self._changes += changes
        super().changed(position, changes)

    def end(self) -> None:
        after = self._until if self._position is None else self._position
        self._position = self._until
        self._put(Published(after, self._until, self.frames))
        self.tally.take(self.record, self.events, self._changes, self.state)
        if self.trouble is None:
            now = self._clock.now()
            for one in self.events:
                self.tally.publishing.observe(max(0, now - one.recorded_at) / SECOND)
        self.trouble = None

    def failed(self, error: Exception) -> None:
        self.trouble = reported(error)
        _log.error("%s", self.trouble)

    # -- the queue

    def _put(self, published: Published) -> None:
        with self._lock:
            if self._queued + len(published.frames) > FRAMES:
                # The loop is too slow: it drops listeners, which reconnect and read from the record.
                self._queue, self._queued, published = [], 0, Published(published.until, published.until, ())
            self._queue.append(published)
            self._queued += len(published.frames)
            first = len(self._queue) == 1
        if first:
            self._wake()

    def take(self) -> list[Published]:
        """The frames since the last call, in order."""
        with self._lock:
            found, self._queue, self._queued = self._queue, [], 0
        return found
