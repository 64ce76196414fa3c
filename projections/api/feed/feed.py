"""The feed: publishes the live world's changes to every listener, from any position."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from steno.engine.live.follower import Follower
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.world import World
from steno.events.clock import Clock
from steno.events.store.record import Record
from steno.events.store.store import Where
from steno.events.types import RecordRestored
from steno.projections.api.feed.backfill import Backfill
from steno.projections.api.feed.listener import HEARTBEAT, Dropped, Listener, Publisher, Ring
from steno.projections.api.problems import Problem

PATIENCE: Final = 30.0  # seconds that a caller waits for the first fold of a record
STARTING: Final = "the record is still being read: try again"
SOON: Final = (("Retry-After", "1"),)
BEAT: Final = b": \n\n"
_CHECK: Final = 1.0  # seconds between looks at the clients, and at whether frames are missing
_STEP: Final = 0.1
_SOON: Final = 0.01


class Feed:
    """The record's changes as it grows. `start`, `stop` and the streams belong to the event loop's thread."""

    def __init__(self, path: Where, *, clock: Clock, live: LiveWorld | None = None) -> None:
        """`live`: the world that another thread of this process keeps up to date; None: the feed keeps its own."""
        self.dropped = dict.fromkeys(Dropped, 0)  # clients dropped so far
        self.live = live if live is not None else LiveWorld(READINGS, keep=True)
        self._path = path
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ring: Ring | None = None
        self._backfill = Backfill(self._opened)
        self.listeners: dict[Listener, None] = {}
        self._moved = asyncio.Event()  # set once more is published; then another takes its place
        self._checker: asyncio.TimerHandle | None = None
        self._follower: Follower | None = None
        if live is None:
            self._follower = Follower(path, self.live, clock, ended=lambda: self._later(self._end_streams))
        self._publisher = Publisher(clock, wake=lambda: self._later(self._publish))
        self.tally = self._publisher.tally

    # -- life ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the record; returns at once."""
        self._loop = loop
        self._checker = loop.call_later(_CHECK, self._check)
        self.live.observe(self._publisher)
        if self._follower is not None:
            self._follower.start()

    def stop(self) -> None:
        """End every stream, then the thread; idempotent."""
        self._stopping.set()
        self._end_streams()
        self._moved.set()
        if self._checker is not None:
            self._checker.cancel()
        self.live.observe(None)
        if self._follower is not None:
            self._follower.stop()
        self._backfill.close()

    @property
    def alive(self) -> bool:
        return self._follower is None or self._follower.alive

    @property
    def replaced(self) -> str | None:
        """Why nothing is answered until a restart: another record has replaced this; None: none has."""
        return self._follower.trouble if self._follower is not None and self._follower.over else None

    @property
    def trouble(self) -> str | None:
        """Why the feed does not follow the record now; None: it follows."""
        if self._follower is not None and self._follower.trouble is not None:
            return self._follower.trouble
        return self._publisher.trouble if self.live.is_ready(0) else STARTING

    # -- what others ask ---

    @property
    def position(self) -> int:
        return 0 if self._ring is None else self._ring.position

    @contextmanager
    def state(self) -> Iterator[World]:
        """The engine's world at the head. It blocks the fold: for short looks only. Raises `Problem` if the record is
        still being read, cannot be read, or was replaced.
        """
        if self.replaced is not None:
            raise Problem(503, self.replaced)
        end = time.monotonic() + PATIENCE
        while not self.live.is_ready(_STEP):
            if self._stopping.is_set() or time.monotonic() > end:
                raise Problem(503, STARTING, headers=SOON)
        with self.live.reading() as state:
            if state is None:
                raise Problem(503, self.trouble or STARTING, headers=SOON)
            yield state

    async def ready(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until one can listen; if False, `trouble` may say why."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._stopping.is_set() and (self._ring is None or not self.live.is_ready(0)):
                    await asyncio.sleep(_SOON)
                await asyncio.sleep(0)  # what was put in the queue until then is told first
                over = self._follower is not None and self._follower.over
                return self._ring is not None and not over and not self._stopping.is_set()
        return False

    async def beyond(self, position: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds until `position` is published; True if it is published."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.position < position and not self._stopping.is_set():
                    await self._moved.wait()
        return self.position >= position

    def head(self) -> int:
        """The record's end, which may be beyond `position`. Reads the disk; raises `StenoError` if it cannot."""
        with self._opened() as record:
            return record.head().position

    def knows(self, position: int, sent_id: bytes) -> bool:
        """True if that id was sent for a position, among the newest positions."""
        newest = () if self._ring is None else self._ring.behind(position - 1)
        return any(frame.data.startswith(b"id: %b\n" % sent_id) for frame in newest)

    def last_common(self, position: int, digest: str) -> int:
        """`position`, if the record has that hash there (empty: any). Else the newest position up to which it can have
        the same as a client with that id: as `steno db restore` noted, or at most the record's end. Reads the disk.
        """
        with self._opened() as record:
            head = record.head().position
            if position <= head and record.digest(position).startswith(digest):
                return position
            shared = [head, position - 1]
            for stored in record.read(types={"RecordRestored"}):
                fact = stored.data
                if isinstance(fact, RecordRestored) and fact.common < position <= (fact.lost or position):
                    shared.append(fact.common)
            return min(shared)

    # -- streams ---

    @contextmanager
    def listening(self, after: int | None, drop: Callable[[], None], subject: str | None = None) -> Iterator[Listener]:
        """A listener for `pieces`, if the feed is `ready`; closing it ends the pieces. `after`: the client's last
        position, None: the current one; `drop` ends the connection if a piece is not taken for 30 s; `subject`: one
        stream, as `run/<run_id>`.
        """
        listener = Listener(self.position if after is None else after, subject, drop)
        self.listeners[listener] = None
        if self._stopping.is_set():
            listener.close()
        try:
            yield listener
        finally:
            listener.close()
            self.listeners.pop(listener, None)
            if listener.dropped is not None:
                self.dropped[listener.dropped] += 1

    async def pieces(self, listener: Listener) -> AsyncGenerator[bytes]:
        """The next whole frames or heartbeats, each position once, until the listener is closed or dropped. A dropped
        client must reconnect with its position.
        """
        async for piece in self._older(listener):
            listener.begins()
            yield piece
            listener.ends()
        while (ring := self._ring) is not None and not listener.closed:
            if listener.place < ring.after:
                listener.dropped = Dropped.BEHIND
                return
            piece = next(listener.pieces(ring.behind(listener.place)), b"")
            if piece or listener.heartbeat_due:
                listener.begins()
                yield piece or BEAT
                listener.ends()
            else:
                await listener.wait()

    async def _older(self, listener: Listener) -> AsyncGenerator[bytes]:
        """Frames older than the ring, rebuilt until the ring has the next."""
        while (ring := self._ring) is not None and listener.place < ring.after and not listener.closed:
            making = asyncio.ensure_future(self._backfill.page(listener.place, ring.after))
            try:
                while not (await asyncio.wait({making}, timeout=HEARTBEAT))[0]:
                    yield BEAT
            finally:
                making.cancel()
            if making.cancelled() or making.exception() is not None:
                listener.close()
                return
            frames, reached = making.result()
            for piece in listener.pieces(frames):
                yield piece
            listener.place = reached

    # -- in the loop ---

    def _publish(self) -> None:
        """Publish frames; after a gap, the ring restarts with the first frame behind it."""
        for published in self._publisher.take():
            if self._ring is None or self._ring.position != published.after:
                self._ring = Ring(published.after)
                self._wake_all()
            self._ring.add(published.frames, published.until)
            if published.frames:
                self._wake_all()
        self._moved.set()
        self._moved = asyncio.Event()

    def _wake_all(self) -> None:
        for listener in self.listeners:
            listener.wake()

    def _check(self) -> None:
        """Drop stuck clients, send heartbeats, and observe again after a failure."""
        for listener in tuple(self.listeners):
            listener.check()
        if self._publisher.trouble is not None:
            self.live.observe(self._publisher)
        self._backfill.evict_unused()
        if self._loop is not None:
            self._checker = self._loop.call_later(_CHECK, self._check)

    def _end_streams(self) -> None:
        for listener in tuple(self.listeners):
            listener.close()

    def _later(self, call: Callable[[], None]) -> None:
        """Call in the loop; if the loop is closed, do nothing."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    def _opened(self) -> Record:
        return Record.open(self._path, clock=self._clock, shapes=READINGS.shape)
