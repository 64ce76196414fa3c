"""Frames older than the ring, rebuilt from the record: page by page, each page once for all listeners."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Final

from steno.events.store.record import Record
from steno.projections.api.feed.framer import Frame, Framer
from steno.projections.read_models.past_worlds import world_before

PAGE: Final = 512  # positions of a page
_CACHED: Final = 16 << 20  # bytes of frames kept for the next who wants them
_STEP: Final = 50_000  # positions folded between two looks at whether to stop
_FOLDS: Final = 2  # folds kept idle, as each is a whole world
_NEAR: Final = 20_000  # positions that a fold advances; farther pages get a new fold
_IDLE: Final = 60.0  # seconds before an unused fold is evicted, and all pages with it
_THREADS: Final = 2

Page = tuple[Frame, ...]


class Backfill:
    """Makes pages in its own threads; called by the event loop's thread only."""

    def __init__(self, opened: "Callable[[], Record]") -> None:
        self._opened = opened
        self._pages: OrderedDict[tuple[int, int], asyncio.Future[Page]] = OrderedDict()
        """Least recently used first; includes pending pages."""
        self._sizes: dict[tuple[int, int], int] = {}  # bytes of the pages that are made
        self._threads = ThreadPoolExecutor(_THREADS, "feed-backfill")
        self._lock = threading.Lock()
        self._idle: list[Framer] = []  # oldest use first; under the lock
        self._closed = False

    async def page(self, after: int, until: int) -> tuple[Page, int]:
        """The frames of the page that contains `after`, up to `until`, and the position where it ends; raises
        `StenoError` if the record cannot be read.
        """
        start = after // PAGE * PAGE
        key = (start, min(start + PAGE, until))
        making = self._pages.get(key)
        if making is None:
            loop = asyncio.get_running_loop()
            making = self._pages[key] = loop.run_in_executor(self._threads, self._make, *key)
            making.add_done_callback(lambda done: self._made(key, done))
        self._pages.move_to_end(key)
        return await asyncio.shield(making), key[1]

    def evict_unused(self) -> None:
        """Evict what was unused for a minute; call it regularly."""
        unused = time.monotonic() - _IDLE
        with self._lock:
            old = [framer for framer in self._idle if framer.used_at < unused]
            self._idle = [framer for framer in self._idle if framer.used_at >= unused]
        if old:
            for key in tuple(self._sizes):
                del self._pages[key], self._sizes[key]
            self._threads.submit(_close, old)

    def close(self) -> None:
        """Evict everything; a page in progress is finished first."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            old, self._idle = self._idle, []
        _close(old)

    def _made(self, key: tuple[int, int], done: "asyncio.Future[Page]") -> None:
        if done.cancelled() or done.exception() is not None:
            del self._pages[key]
            return
        self._sizes[key] = sum(len(frame.data) for frame in done.result())
        for old in [page for page in self._pages if page in self._sizes][:-1]:
            if sum(self._sizes.values()) > _CACHED:
                del self._pages[old], self._sizes[old]

    # -- in a thread ---

    def _make(self, start: int, until: int) -> Page:
        framer = self._framer(start)
        try:
            while framer.position < start:
                if self._closed:
                    raise CancelledError
                framer.skip(min(start, framer.position + _STEP))
            frames = tuple(framer.advance(until))
        except BaseException:
            framer.record.close()
            raise
        framer.used_at = time.monotonic()
        with self._lock:
            self._idle.append(framer)
            old = [self._idle.pop(0)] if len(self._idle) > _FOLDS else []
        _close(old)
        return frames

    def _framer(self, start: int) -> Framer:
        """The idle fold nearest before `start`; a new one if none is near."""
        with self._lock:
            near = [framer for framer in self._idle if 0 <= start - framer.position <= _NEAR]
            if near:
                nearest = max(near, key=lambda framer: framer.position)
                self._idle.remove(nearest)
                return nearest
        record = self._opened()
        try:
            return Framer(record, *world_before(record, start))
        except BaseException:
            record.close()
            raise


def _close(framers: Iterable[Framer]) -> None:
    for framer in framers:
        framer.record.close()
