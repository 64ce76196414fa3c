"""The newest frames in a ring, bounded in number and bytes. A listener is a place in the ring, without a queue. Used by
the event loop's thread only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Final

from projections.api.feed.frames import Frame

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
    """One client's state."""

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
        found: list[bytes] = []
        size = 0
        for frame in frames:
            if frame.position > self.place:
                self.place = frame.position
                if self._subject is None or self._subject in frame.about:
                    found.append(frame.data)
                    size += len(frame.data)
                    if size >= PIECE:
                        yield b"".join(found)
                        found, size = [], 0
        if found:
            yield b"".join(found)

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
