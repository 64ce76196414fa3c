"""Frames older than the ring, made again from the record: page by page, each once for all who want it."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from projections.api.feed.frames import Frame, Framer
from projections.models.past_worlds import world_before

if TYPE_CHECKING:
    from events.store.record import Record

PAGE: Final = 512
"""Positions of a page."""
_CACHED: Final = 16 << 20
"""Bytes of frames kept for the next who wants them."""
_STEP: Final = 50_000
"""Positions folded between two looks at whether to stop."""
_WALKERS: Final = 2
"""Folds kept where they stand, as each is a whole world."""
_NEAR: Final = 20_000
"""Positions a fold goes on; for what lies farther ahead another begins closer to it."""
_REST: Final = 60.0
"""Seconds after which what nobody wanted is let go of."""
_THREADS: Final = 2


class FramePage(tuple[Frame, ...]):
    """The frames of some positions."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(len(frame.data) for frame in self)


class _Walker:
    """A fold that goes on from page to page."""

    def __init__(self, record: "Record", at_most: int) -> None:
        world, position = world_before(record, at_most)
        self.record = record
        self.framer = Framer(record, world, position)
        self.rests_since = 0.0


class Backfill:
    """Makes pages in threads of its own; asked by the event loop's thread alone."""

    def __init__(self, opened: "Callable[[], Record]") -> None:
        """`opened` opens the record for reading."""
        self._opened = opened
        self._pages: OrderedDict[tuple[int, int], FramePage] = OrderedDict()
        self._size = 0
        self._making: dict[tuple[int, int], asyncio.Future[FramePage]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "feed-backfill")
        self._lock = threading.Lock()
        self._idle: list[_Walker] = []
        """Oldest use first; under the lock."""
        self._closed = False

    async def page(self, after: int, until: int) -> tuple[FramePage, int]:
        """The frames of the page that `after` lies in, no further than `until`, and the position where it ends.

        Raises:
            StenoError: the record cannot be read.
        """
        start = after // PAGE * PAGE
        key = (start, min(start + PAGE, until))
        found = self._pages.get(key)
        if found is not None:
            self._pages.move_to_end(key)
            return found, key[1]
        making = self._making.get(key)
        if making is None:
            loop = asyncio.get_running_loop()
            making = self._making[key] = loop.run_in_executor(self._threads, self._make, *key)
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(making), key[1]

    def rest(self) -> None:
        """Let go of what nobody wanted for a minute; to be called now and then."""
        if any(time.monotonic() - walker.rests_since > _REST for walker in tuple(self._idle)):
            self._pages.clear()
            self._size = 0
            self._threads.submit(self._forget_rested)

    def close(self) -> None:
        """Let go of everything; a page that is being made is finished first."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            walkers, self._idle = self._idle, []
        for walker in walkers:
            walker.record.close()

    def _made(self, key: tuple[int, int], done: "asyncio.Future[FramePage]") -> None:
        self._making.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        page = done.result()
        self._pages[key] = page
        self._size += page.size
        while self._size > _CACHED and len(self._pages) > 1:
            _, old = self._pages.popitem(last=False)
            self._size -= old.size

    # -- in a thread ---

    def _make(self, start: int, until: int) -> FramePage:
        walker = self._taken(start)
        try:
            while walker.framer.position < start:
                if self._closed:
                    raise CancelledError
                walker.framer.skip(min(start, walker.framer.position + _STEP))
            frames = FramePage(walker.framer.advance(until))
        except BaseException:
            walker.record.close()
            raise
        self._put_back(walker)
        return frames

    def _taken(self, start: int) -> _Walker:
        """The walker that has the shortest way to `start`; a new one where none is near."""
        with self._lock:
            there = [walker for walker in self._idle if 0 <= start - walker.framer.position <= _NEAR]
            if there:
                nearest = max(there, key=lambda walker: walker.framer.position)
                self._idle.remove(nearest)
                return nearest
        record = self._opened()
        try:
            return _Walker(record, start)
        except BaseException:
            record.close()
            raise

    def _put_back(self, walker: _Walker) -> None:
        walker.rests_since = time.monotonic()
        with self._lock:
            self._idle.append(walker)
            over = self._idle.pop(0) if len(self._idle) > _WALKERS else None
        if over is not None:
            over.record.close()

    def _forget_rested(self) -> None:
        since = time.monotonic() - _REST
        with self._lock:
            rested = [walker for walker in self._idle if walker.rests_since < since]
            self._idle = [walker for walker in self._idle if walker.rests_since >= since]
        for walker in rested:
            walker.record.close()
