"""The feed: what the live world says, told to everybody who listens, from wherever they were."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from engine.live.follower import Follower
from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from events.clock import Clock
from events.store.record import Record
from events.store.store import Where
from projections.api.feed.backfill import Backfill, FramePage
from projections.api.feed.frames import Frame
from projections.api.feed.listener import HEARTBEAT, PIECE, Dropped, Listener, cancelling
from projections.api.feed.publisher import Publisher
from projections.api.feed.ring import Ring
from projections.api.problems import Problem

if TYPE_CHECKING:
    from engine.fold.world_codec import WorldState
    from engine.live.live_world import ChangeSet
    from projections.api.operations.meters import Meters

PATIENCE: Final = 30.0
"""Seconds somebody waits for the first fold of a record."""
STARTING: Final = "the record is still being read: try again"
SOON: Final = (("Retry-After", "1"),)
_BEAT: Final = b": \n\n"
_CHECK: Final = 1.0
"""Seconds between looks at clients that are stuck, and at whether frames are missing."""
_STEP: Final = 0.1
_SOON: Final = 0.01


class Feed:
    """What the record says, as it grows. `start`, `stop` and the streams belong to the event loop's thread."""

    def __init__(self, path: Where, *, clock: Clock, live: LiveWorld | None = None) -> None:
        """`live`: the world that another thread of this process keeps up to date; None: the feed keeps one itself."""
        self.dropped = dict.fromkeys(Dropped, 0)
        """Clients dropped so far."""
        self._path = path
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ring: Ring | None = None
        self._ready: asyncio.Event | None = None
        self._backfill: Backfill | None = None
        self._listeners: dict[Listener, None] = {}
        self._waiting: dict[asyncio.Future[bool], int] = {}
        self._checker: asyncio.TimerHandle | None = None
        self.live = live if live is not None else LiveWorld(READINGS, keep=True)
        self._follower: Follower | None = None
        if live is None:
            self._follower = Follower(path, self.live, clock, ended=lambda: self._later(self._end_streams))
        self._publisher = Publisher(clock, wake=lambda: self._later(self._publish))

    # -- life ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the record from now on; returns at once."""
        self._loop = loop
        self._ready = asyncio.Event()
        self._backfill = Backfill(self._opened)
        self._checker = loop.call_later(_CHECK, self._check)
        self.live.observe(self._publisher)
        if self._follower is not None:
            self._follower.start()

    def stop(self) -> None:
        """End every stream, then the thread; called again, it does nothing."""
        self._stopping.set()
        for listener in tuple(self._listeners):
            listener.close()
        for waiter in tuple(self._waiting):
            if not waiter.done():
                waiter.set_result(False)
        if self._ready is not None:
            self._ready.set()
        if self._checker is not None:
            self._checker.cancel()
            self._checker = None
        self.live.observe(None)
        if self._follower is not None:
            self._follower.stop()
        if self._backfill is not None:
            backfill, self._backfill = self._backfill, None
            backfill.close()

    @property
    def alive(self) -> bool:
        """Whether the thread that keeps the world up to date is there."""
        return self._follower is None or self._follower.alive

    @property
    def trouble(self) -> str | None:
        """Why the feed does not follow the record now; None: it does."""
        if self._follower is not None and self._follower.trouble is not None:
            return self._follower.trouble
        return self._publisher.trouble if self.live.is_ready(0) else STARTING

    @property
    def meters(self) -> Meters:
        """What is counted while the service runs."""
        return self._publisher.meters

    # -- what others ask ---

    @property
    def position(self) -> int:
        """The last position published to listeners."""
        return 0 if self._ring is None else self._ring.position

    @property
    def clients(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    @contextmanager
    def state(self) -> Iterator[WorldState]:
        """The engine's own world at the head; the fold waits meanwhile, so for short looks only.

        Raises:
            Problem: the record is still being read, or cannot be read.
        """
        end = time.monotonic() + PATIENCE
        while not self.live.is_ready(_STEP):
            if self._stopping.is_set() or time.monotonic() > end:
                raise Problem(503, STARTING, headers=SOON)
        with self.live.reading() as state:
            if state is None:
                raise Problem(503, self.trouble or STARTING, headers=SOON)
            yield state

    def listen(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with every new position, in the thread that folds; what is returned ends that."""

        def told(found: ChangeSet) -> None:
            callback(found.until)

        self.live.subscribe(told)
        return lambda: self.live.unsubscribe(told)

    async def ready(self, timeout: float) -> bool:
        """Whether one can listen, at the latest in `timeout` seconds; if not, `trouble` may say why."""
        if self._ready is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
                while not (self.live.is_ready(0) or self._stopping.is_set()):
                    await asyncio.sleep(_SOON)
                await asyncio.sleep(0)  # what was put in the queue until then is told first
        except TimeoutError:
            return False
        over = self._follower is not None and self._follower.over
        return self._ring is not None and not over and not self._stopping.is_set()

    async def beyond(self, position: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds until `position` is published; whether it is."""
        if self._ring is not None and self._ring.position >= position:
            return True
        if self._loop is None or self._stopping.is_set():
            return False
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiting[waiter] = position
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(waiter, None)

    def head(self) -> int:
        """Where the record ends, which may be beyond `position`; asks the disk.

        Raises:
            StenoError: it cannot be read.
        """
        with self._opened() as record:
            return record.head().position

    # -- streams ---

    async def frames(self, after: int | None, subject: str | None = None) -> AsyncGenerator[bytes]:
        """The frames behind `after` (None: from now on) in order, each position once, with heartbeats between them.

        One piece may hold several whole frames. It ends when the server stops, or when who listens is too slow: that
        one must come back and say where it was. A piece that is not taken for 30 seconds cancels the task.

        Args:
            subject: only frames that concern this stream, as `run/<run_id>`.
        """
        if not await self.ready(PATIENCE):
            return
        with self.listening(after, cancelling(asyncio.current_task())) as listener:
            async for piece in self.pieces(listener, subject):
                yield piece

    @contextmanager
    def listening(self, after: int | None, drop: Callable[[], None]) -> Iterator[Listener]:
        """One who listens, to be handed to `pieces`; the feed is `ready`. Closing it ends the pieces.

        Args:
            after: the last position it knows; None: all there are now.
            drop: called where a piece is not taken for 30 seconds: it ends the connection.
        """
        ring, loop = self._ring, self._loop
        if ring is None or loop is None:
            raise Problem(503, STARTING, headers=SOON)
        listener = Listener(loop, ring.position if after is None else after, drop)
        self._listeners[listener] = None
        if self._stopping.is_set():
            listener.close()
        try:
            yield listener
        finally:
            listener.close()
            self._listeners.pop(listener, None)
            if listener.dropped is not None:
                self.dropped[listener.dropped] += 1

    async def pieces(self, listener: Listener, subject: str | None) -> AsyncGenerator[bytes]:
        """What to send a listener next, in order, until it is closed or dropped: whole frames, or a heartbeat."""
        async for piece in self._older(listener, subject):
            listener.gives()
            yield piece
            listener.given()
        ring = self._ring
        if ring is None or listener.place < ring.after:
            return
        number = ring.find(listener.place)  # nothing was awaited since the ring was seen to have what comes next
        while not listener.closed:
            if ring is not self._ring or not ring.has(number):
                listener.dropped = Dropped.BEHIND
                return
            number, piece = _next(ring, number, subject)
            if not piece:
                if not listener.heartbeat_due:
                    await listener.wait()
                    continue
                piece = _BEAT
            listener.gives()
            yield piece
            listener.given()

    async def _older(self, listener: Listener, subject: str | None) -> AsyncGenerator[bytes]:
        """What the ring has no longer, made again, until it has what comes next."""
        while (ring := self._ring) is not None and listener.place < ring.after and not listener.closed:
            making = asyncio.ensure_future(self._page(listener.place, ring.after))
            try:
                while not (await asyncio.wait({making}, timeout=HEARTBEAT))[0]:
                    yield _BEAT
            finally:
                making.cancel()
            if making.cancelled() or making.exception() is not None:
                return
            frames, reached = making.result()
            for piece in _cut(frames, listener.place, subject):
                yield piece
            listener.place = reached

    async def _page(self, place: int, until: int) -> tuple[FramePage, int]:
        """Frames made again: at least those behind `place` and up to the position that is given with them."""
        backfill = self._backfill
        if backfill is None:
            raise asyncio.CancelledError
        return await backfill.page(place, until)

    # -- in the loop ---

    def _publish(self) -> None:
        """Publish frames. After a gap the ring restarts with the first frame behind it."""
        while (found := self._publisher.take()) is not None:
            if self._ring is None or self._ring.position != found.after:
                self._ring = Ring(found.after)
                self._wake_all()
                if self._ready is not None:
                    self._ready.set()
            self._ring.add(found.frames, found.until)
            if found.frames:
                self._wake_all()
            for waiter, wanted in tuple(self._waiting.items()):
                if found.until >= wanted and not waiter.done():
                    waiter.set_result(True)

    def _wake_all(self) -> None:
        for listener in self._listeners:
            listener.wake()

    def _check(self) -> None:
        """Drop who is stuck."""
        for listener in tuple(self._listeners):
            listener.check()
        if self._publisher.trouble is not None and not self._stopping.is_set():
            self.live.observe(self._publisher)
        if self._backfill is not None:
            self._backfill.rest()
        if self._loop is not None and not self._stopping.is_set():
            self._checker = self._loop.call_later(_CHECK, self._check)

    def _end_streams(self) -> None:
        for listener in tuple(self._listeners):
            listener.close()

    def _later(self, call: Callable[..., None], *given: object) -> None:
        """Have the loop do it; a loop that is gone needs it no more."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *given)

    def _opened(self) -> Record:
        return Record.open(self._path, clock=self._clock, shapes=READINGS.shape)


def _next(ring: Ring, number: int, subject: str | None) -> tuple[int, bytes]:
    """The frames from a number on that concern a subject, as one piece, and the number that comes after them."""
    pieces, size = [], 0
    while number < ring.end and size < PIECE:
        frame = ring.get(number)
        number += 1
        if subject is None or subject in frame.about:
            pieces.append(frame.data)
            size += len(frame.data)
    return number, b"".join(pieces)


def _cut(frames: Iterable[Frame], place: int, subject: str | None) -> Iterator[bytes]:
    """The frames behind `place` that concern a subject, in pieces."""
    pieces, size = [], 0
    for frame in frames:
        if frame.position > place and (subject is None or subject in frame.about):
            pieces.append(frame.data)
            size += len(frame.data)
            if size >= PIECE:
                yield b"".join(pieces)
                pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)
