"""The thread that follows the record: it folds what comes and hands on the frames."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from events.clock import SECOND
from events.errors import StenoError
from projections.api.feed.base import begun
from projections.api.feed.frames import Frame, Framer
from projections.api.feed.tail import Replaced, Tail
from projections.api.operations.meters import Meters
from projections.api.problems import Problem

if TYPE_CHECKING:
    from engine.fold.world_codec import WorldState
    from events.clock import Clock
    from events.store.record import Record
    from events.store.store import Where

LOOK: Final = 0.01
"""Seconds between looks at the record."""
PATIENCE: Final = 30.0
"""Seconds somebody waits for the first fold of a record."""
STARTING: Final = "the record is still being read: try again"
SOON: Final = (("Retry-After", "1"),)
_AGAIN: Final = 1.0
"""Seconds before a record that could not be read is tried again."""
_AFRESH: Final = 1000
"""Positions before the head whose frames are made at the start: who comes back after a restart finds them."""
_STEP: Final = 2_000
"""Positions folded between two looks at whether to stop: an end that is asked for meanwhile does not wait long."""
_BATCH: Final = 500
"""Positions folded at once."""

_log = logging.getLogger("steno.feed")


class Follower:
    """Follows one record in a thread of its own.

    Args:
        publish: called in the thread with new frames and the position they reach; first with none, where they begin.
        ended: called in the thread where the record will never go on: it was replaced by another.
    """

    def __init__(
        self,
        path: Where,
        clock: Clock,
        *,
        publish: Callable[[list[Frame], int], None],
        ended: Callable[[], None],
    ) -> None:
        self.trouble: str | None = STARTING
        """Why the record is not followed now; None: it is."""
        self.over = False
        """It will never be followed again: it was replaced."""
        self.looked_at = 0
        """When the record was last looked at (microseconds, UTC)."""
        self.callbacks: list[Callable[[int], None]] = []
        """Called in the thread with every new position."""
        self.meters = Meters()
        self._path = path
        self._clock = clock
        self._publish = publish
        self._ended = ended
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._folded = threading.Event()
        self._framer: Framer | None = None
        self._sent: int | None = None
        """The last position that was published; None: none yet."""
        self._record = ""
        """The id of the record that is followed."""
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is under way is finished first."""
        self._stopping.set()
        self._folded.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    @contextmanager
    def state(self) -> Iterator[WorldState]:
        """The engine's own world at the head, under the lock.

        Raises:
            Problem: the record is still being read.
        """
        if not self._folded.wait(PATIENCE) or self._framer is None:
            raise Problem(503, STARTING, headers=SOON)
        with self._lock:
            yield self._framer.state

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
                self.over = True
                self._ended()
                self._stopping.wait()
            except StenoError as error:
                self._tell(str(error))
                position = self._sent
                self._stopping.wait(_AGAIN)
            except Exception as error:  # noqa: BLE001 - whatever it is, the service says so and tries again
                self._tell(f"bug in Steno: {type(error).__name__}: {error}")
                position = self._sent
                self._stopping.wait(_AGAIN)

    def _begin(self, tail: Tail, position: int | None) -> int:
        """Fold up to `position`, where listeners are; the first time, to shortly before the head."""
        head = tail.record.head().position
        if position is not None and (head < position or tail.record.id != self._record):
            raise Replaced(tail.record.store)
        world, at = begun(tail.record, head if position is None else position)
        framer = Framer(tail.record, world, at)
        goal = max(at, head - _AFRESH) if position is None else position
        while framer.position < goal and not self._stopping.is_set():
            framer.skip(min(goal, framer.position + _STEP))
        with self._lock:
            self._framer = framer
        tail.mark(framer.position)
        if position is None:
            self.meters.tally.begin(tail.record, framer.state, framer.position)
            self._publish([], framer.position)
            self._sent, self._record = framer.position, tail.record.id
        while framer.position < head and not self._stopping.is_set():
            self._go_on(tail.record, framer, min(head, framer.position + _BATCH))
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
            self._go_on(tail.record, framer, min(head, framer.position + _BATCH))
        tail.mark(framer.position)
        return framer.position

    def _go_on(self, record: Record, framer: Framer, until: int) -> None:
        after = framer.position
        with self._lock:
            frames = framer.advance(until)
        self._publish(frames, until)
        self._sent = until
        for callback in tuple(self.callbacks):
            callback(until)
        tally, now = self.meters.tally, self._clock.now()
        events = list(record.read(after=after, until=until))
        tally.take(record, events, framer.changes, framer.state)
        if self.trouble is None:
            for one in events:
                tally.publishing.add(max(0, now - one.recorded_at) / SECOND)

    def _tell(self, trouble: str) -> None:
        if self.trouble != trouble and not self._stopping.is_set():
            _log.error("%s", trouble)
        self.trouble = trouble
