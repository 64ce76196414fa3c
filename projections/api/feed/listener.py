"""The newest frames in a ring, bounded in number and bytes. A listener is a place in the ring, without a queue. Used by
the event loop's thread only. A publisher hands frames of the live world to the event loop through a bounded queue, and
counts events.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple

from steno.engine.state.changes import Change
from steno.engine.state.world import World
from steno.events.clock import SECOND, Clock
from steno.events.errors import reported
from steno.events.store.record import Record
from steno.projections.api.counters import Tally
from steno.projections.api.feed.framer import Frame, FrameMaker

FRAMES: Final = 8192
BYTES: Final = 32 << 20
HEARTBEAT: Final = 14.0  # seconds of silence before a heartbeat, which is at most 1 s late
STUCK: Final = 30.0  # seconds a client may take for one piece before it is dropped
PIECE: Final = 64 << 10  # bytes after which what is sent at once is cut


class Ring:
    """All frames in `(after, position]`."""

    def __init__(self, position: int, *, frames: int = FRAMES, size: int = BYTES) -> None:
        self.after = position
        self.position = position  # the last position it has been given
        self.size = 0  # bytes of all frames
        self._frames: deque[Frame] = deque()
        self._most = frames
        self._bytes = size

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frames: Iterable[Frame], position: int) -> None:
        """Add the frames up to `position` and evict the oldest."""
        for frame in frames:
            self._frames.append(frame)
            self.size += len(frame.data)
        self.position = position
        while len(self) > self._most or (self.size > self._bytes and len(self) > 1):
            oldest = self._frames.popleft()
            self.size -= len(oldest.data)
            self.after = oldest.position

    def behind(self, position: int) -> Iterator[Frame]:
        # most listeners miss only the newest frames, so the walk back is short
        return reversed(list(takewhile(lambda frame: frame.position > position, reversed(self._frames))))


class Dropped(StrEnum):
    """Why a client was dropped."""

    BEHIND = "behind"  # the ring has evicted what it would have got next
    STUCK = "stuck"  # it did not take what was sent


class Listener:
    """The state of a client."""

    def __init__(self, place: int, subject: str | None, drop: Callable[[], None]) -> None:
        """`subject`: only frames of this stream, as `run/<run_id>`; None: all. `drop` ends the connection of a client
        that is stuck.
        """
        self.place = place  # the last position it had
        self.closed = False
        self.dropped: Dropped | None = None
        self._subject = subject
        self._drop = drop
        self._news = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._silent_since = self._now()
        self._taking = False  # whether a piece is being sent

    async def wait(self) -> None:
        self._news.clear()
        if not self.closed:
            await self._news.wait()

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    def pieces(self, frames: Iterable[Frame]) -> Iterator[bytes]:
        """Cut these frames into pieces of whole frames; advances the place."""
        ready: list[bytes] = []
        size = 0
        for frame in frames:
            if frame.position > self.place:
                self.place = frame.position
                if self._subject is None or self._subject in frame.about:
                    ready.append(frame.data)
                    size += len(frame.data)
                    if size >= PIECE:
                        yield b"".join(ready)
                        ready, size = [], 0
        if ready:
            yield b"".join(ready)

    def begins(self) -> None:
        self._taking, self._silent_since = True, self._now()

    def ends(self) -> None:
        self._taking = False

    @property
    def heartbeat_due(self) -> bool:
        return self._now() - self._silent_since >= HEARTBEAT

    def check(self) -> None:
        """Drop the client if it is stuck; wake it if a heartbeat is due."""
        if not self._taking:
            if self.heartbeat_due:
                self.wake()
        elif self._now() - self._silent_since > STUCK and self.dropped is None:
            self.dropped = Dropped.STUCK
            self.close()
            self._drop()


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

    # -- an observer: see `steno.engine.live.live_world.Observer`

    def start(self, record: Record, state: World, position: int) -> None:
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
            for event in self.events:
                self.tally.publishing.observe(max(0, now - event.recorded_at) / SECOND)
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
            taken, self._queue, self._queued = self._queue, [], 0
        return taken
