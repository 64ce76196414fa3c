"""The feed: one thread follows the record and folds it, and everybody who listens is told, from wherever they were."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.readings.shapes import shape_of
from events.clock import Clock
from events.errors import StenoError
from events.record import Record
from projections.api.feed.backfill import Backfill, Page
from projections.api.feed.base import begun
from projections.api.feed.frames import Frame, Framer
from projections.api.feed.listener import HEARTBEAT, PIECE, Dropped, Listener
from projections.api.feed.ring import Ring
from projections.api.feed.tail import Replaced, Tail
from projections.api.problems import Problem

if TYPE_CHECKING:
    from engine.world.state import WorldState

LOOK: Final = 0.01
"""Seconds between looks at the record."""
_AGAIN: Final = 1.0
"""Seconds before a record that could not be read is tried again."""
_PATIENCE: Final = 30.0
"""Seconds somebody waits for the first fold of a record."""
_AFRESH: Final = 1000
"""Positions before the head whose frames are made at the start: who comes back after a restart finds them."""
_STEP: Final = 50_000
"""Positions folded between two looks at whether to stop."""
_BATCH: Final = 500
"""Positions folded at once."""
_BEAT: Final = b": \n\n"
_CHECK: Final = 5.0
"""Seconds between looks at clients that are stuck."""

_log = logging.getLogger("steno.feed")


class Feed:
    """What the record says, as it grows. `start`, `stop` and the streams belong to the event loop's thread."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self.trouble: str | None = "the record is being read"
        """Why the feed does not follow the record now; None: it does."""
        self.dropped = dict.fromkeys(Dropped, 0)
        """Clients dropped so far."""
        self._path = path
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._framer: Framer | None = None
        self._folded = threading.Event()
        self._sent: int | None = None
        """The last position that the loop was given; None: none yet."""
        self._ring: Ring | None = None
        self._ready: asyncio.Event | None = None
        self._backfill: Backfill | None = None
        self._listeners: dict[Listener, None] = {}
        self._waiting: dict[asyncio.Future[bool], int] = {}
        self._callbacks: list[Callable[[int], None]] = []
        self._checker: asyncio.TimerHandle | None = None
        self.looked_at = 0
        """When the thread last looked at the record (microseconds, UTC)."""

    # -- life ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the record from now on; returns at once."""
        self._loop = loop
        self._ready = asyncio.Event()
        self._backfill = Backfill(self._opened)
        self._checker = loop.call_later(_CHECK, self._check)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

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
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.join()
        if self._backfill is not None:
            backfill, self._backfill = self._backfill, None
            backfill.close()

    @property
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    # -- what others ask ---

    @property
    def position(self) -> int:
        """The last position that listeners were told of."""
        return 0 if self._ring is None else self._ring.position

    @property
    def clients(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    @contextmanager
    def state(self) -> Iterator[WorldState]:
        """The engine's own world at the head; whoever holds it keeps the feed waiting, so not for long.

        Raises:
            Problem: the record is still being read.
        """
        if not self._folded.wait(_PATIENCE) or self._framer is None:
            raise Problem(503, "the record is still being read: try again", headers=(("Retry-After", "1"),))
        with self._lock:
            yield self._framer.state

    def listen(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with every new position, in the feed's thread; what is returned ends that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def ready(self, timeout: float) -> bool:
        """Whether the feed knows where the record stands, at the latest in `timeout` seconds."""
        if self._ready is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            return False
        return self._ring is not None

    async def beyond(self, position: int, timeout: float) -> bool:
        """Whether listeners have been told of `position`, at the latest in `timeout` seconds."""
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

    async def frames(
        self, after: int | None, subject: str | None = None, *, drop: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        """The frames behind `after` (None: from now on) in order, each position once, with heartbeats between them.

        One piece may hold several whole frames. It ends when the server stops, or when who listens is too slow: by
        then that one must come back and say where it was.

        Args:
            subject: only frames that concern this stream, as `run/<run_id>`.
            drop: called where a piece is not taken for 30 seconds; by default the task that listens is cancelled.
        """
        if not await self.ready(_PATIENCE) or self._ring is None or self._loop is None or self._stopping.is_set():
            return
        place = self._ring.position if after is None else after
        listener = Listener(self._loop, place, drop or _cancelling(asyncio.current_task()))
        self._listeners[listener] = None
        try:
            async for piece in self._pieces(listener, subject):
                listener.gives()
                yield piece
                listener.given()
        finally:
            listener.close()
            self._listeners.pop(listener, None)
            if listener.dropped is not None:
                self.dropped[listener.dropped] += 1

    async def _pieces(self, listener: Listener, subject: str | None) -> AsyncIterator[bytes]:
        """What to send next, in order, until the listener is closed or dropped."""
        async for piece in self._older(listener, subject):
            yield piece
        ring = self._ring
        if ring is None or listener.place < ring.after:
            return
        number = ring.find(listener.place)  # nothing was awaited since the ring was seen to have what comes next
        while not listener.closed:
            if not ring.has(number):
                listener.dropped = Dropped.BEHIND
                return
            pieces, size = [], 0
            while number < ring.end and size < PIECE:
                frame = ring.get(number)
                number += 1
                if subject is None or subject in frame.about:
                    pieces.append(frame.data)
                    size += len(frame.data)
            if pieces:
                yield b"".join(pieces)
            elif listener.heartbeat_due:
                yield _BEAT
            else:
                await listener.wait()

    async def _older(self, listener: Listener, subject: str | None) -> AsyncIterator[bytes]:
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

    async def _page(self, place: int, until: int) -> tuple[Page, int]:
        """Frames made again: at least those behind `place` and up to the position that is given with them."""
        backfill = self._backfill
        if backfill is None:
            raise asyncio.CancelledError
        return await backfill.page(place, until)

    # -- in the loop ---

    def _publish(self, frames: list[Frame], position: int) -> None:
        """Tell everybody; the first time, the ring begins at `position`."""
        if self._ring is None:
            self._ring = Ring(position)
            if self._ready is not None:
                self._ready.set()
        self._ring.add(frames, position)
        if frames:
            for listener in self._listeners:
                listener.wake()
        for waiter, wanted in tuple(self._waiting.items()):
            if position >= wanted and not waiter.done():
                waiter.set_result(True)

    def _check(self) -> None:
        """Drop who is stuck."""
        for listener in tuple(self._listeners):
            listener.check()
        if self._loop is not None and not self._stopping.is_set():
            self._checker = self._loop.call_later(_CHECK, self._check)

    def _end_streams(self) -> None:
        for listener in tuple(self._listeners):
            listener.close()

    # -- in the thread ---

    def _run(self) -> None:
        position: int | None = None
        while not self._stopping.is_set():
            try:
                with closing(Tail(self._path, self._clock)) as tail:
                    position = self._begin(tail, position)
                    while not self._stopping.wait(LOOK):
                        position = self._look(tail, position)
            except Replaced as replaced:
                self._tell(str(replaced))
                self._later(self._end_streams)
                self._stopping.wait()
            except StenoError as error:
                self._tell(str(error))
                position = self._sent
                self._stopping.wait(_AGAIN)
            except Exception as error:  # noqa: BLE001 - whatever it is, the service says so and tries again
                self._tell(f"a mistake in Steno itself: {type(error).__name__}: {error}")
                position = self._sent
                self._stopping.wait(_AGAIN)

    def _begin(self, tail: Tail, position: int | None) -> int:
        """Fold up to `position`, where listeners are; the first time, to shortly before the head."""
        head = tail.record.head().position
        if position is not None and head < position:
            raise Replaced(self._path)
        world, at = begun(tail.record, head if position is None else position)
        framer = Framer(tail.record, world, at)
        goal = max(at, head - _AFRESH) if position is None else position
        while framer.position < goal and not self._stopping.is_set():
            framer.skip(min(goal, framer.position + _STEP))
        with self._lock:
            self._framer = framer
        tail.mark(framer.position)
        if position is None:
            self._later(self._publish, [], framer.position)
        while framer.position < head and not self._stopping.is_set():
            self._go_on(framer, min(head, framer.position + _BATCH))
        tail.mark(framer.position)
        self.trouble = None
        self._folded.set()
        return framer.position

    def _look(self, tail: Tail, position: int) -> int:
        """Tell what has come since `position`; where that ends."""
        self.looked_at = self._clock.now()
        head = tail.news(position)
        framer = self._framer
        if head == position or framer is None:
            return position
        while framer.position < head and not self._stopping.is_set():
            self._go_on(framer, min(head, framer.position + _BATCH))
        tail.mark(framer.position)
        return framer.position

    def _go_on(self, framer: Framer, until: int) -> None:
        with self._lock:
            frames = framer.advance(until)
        self._later(self._publish, frames, until)
        self._sent = until
        for callback in tuple(self._callbacks):
            callback(until)

    def _later(self, call: Callable[..., None], *given: object) -> None:
        """Have the loop do it; a loop that is gone needs it no more."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *given)

    def _tell(self, trouble: str) -> None:
        if self.trouble != trouble and not self._stopping.is_set():
            _log.error("%s", trouble)
        self.trouble = trouble

    def _opened(self) -> Record:
        return Record.open(self._path, clock=self._clock, shapes=shape_of)


def _cancelling(task: asyncio.Task[object] | None) -> Callable[[], None]:
    def cancel() -> None:
        if task is not None:
            task.cancel()

    return cancel


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
