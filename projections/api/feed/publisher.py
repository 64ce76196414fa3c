"""Hands the frames of the live world to the event loop, by a bounded queue, and counts what passes."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from engine.fold.change import Change
from engine.fold.world_codec import WorldState
from events.clock import SECOND, Clock
from events.store.record import Record
from projections.api.feed.frames import Frame, FrameMaker
from projections.api.feed.listener import FRAMES
from projections.api.tally import Tally

_log: Final = logging.getLogger("steno.feed")


class Published(NamedTuple):
    """Frames up to a position. Those behind `after` are all there are, so what others had before must end there."""

    after: int
    until: int
    frames: Sequence[Frame]


class Publisher(FrameMaker):
    """An observer of the live world. Its methods belong to the world's owner, `take` to the event loop's thread.

    Args:
        wake: called where there is something to take and nobody was told since the last was taken.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        super().__init__()
        self.tally = Tally()
        self.trouble: str | None = None  # why frames are missing; None: none are
        self._clock = clock
        self._wake = wake
        self._position: int | None = None
        """The last position that frames were made of; None before the first."""
        self._until = 0
        self._changes: list[Change] = []
        self._lock = threading.Lock()
        self._queue: list[Published] = []
        self._queued = 0  # frames in the queue

    # -- an observer: see `engine.live.live_world.Observer`

    def start(self, record: Record, state: WorldState, position: int) -> None:
        """The world stands at `position`; what was missed up to there is made again from the record when asked for."""
        super().start(record, state, position)
        if self._position is None:
            self.tally.begin(record, state, position)
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
        self.trouble = f"bug in Steno: {type(error).__name__}: {error}"
        _log.error("%s", self.trouble)

    # -- the queue

    def _put(self, published: Published) -> None:
        with self._lock:
            if self._queued + len(published.frames) > FRAMES:
                # The loop does not keep up: listeners are dropped there, come back, and are told from the record.
                self._queue, self._queued, published = [], 0, Published(published.until, published.until, ())
            self._queue.append(published)
            self._queued += len(published.frames)
            first = len(self._queue) == 1
        if first:
            self._wake()

    def take(self) -> list[Published]:
        """What was not taken yet, in order."""
        with self._lock:
            found, self._queue, self._queued = self._queue, [], 0
        return found
