"""Keeps the projections of a record caught up while it grows: a thread of the service."""

import logging
import sqlite3
import threading
import time
from typing import Final

import msgspec

from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from events.clock import SECOND, Clock
from events.errors import StenoError
from events.store.record import Record
from events.store.store import Where
from projections.models.build_progress import Building
from projections.models.projection_writer import ProjectionWriter
from projections.models.projector import belongs, build
from projections.store.read_models import ReadModels

_log: Final = logging.getLogger(__name__)
_LEAST: Final = 1.0
"""Seconds between two catch-ups at least while no reader waits: the polls of a round are taken together."""
_MOST: Final = 1.0
_REST: Final = 3
"""It rests so many times as long as it works: a busy record does not take a core."""
_IDLE: Final = 0.25
"""Seconds after which it looks by itself."""
_PATIENCE: Final = 10.0
"""Seconds that a stop waits: another process may hold the lock while it catches up."""
_AGAIN: Final = 1.0
"""Seconds after which it tries again what went wrong."""
_LONG: Final = 50_000
"""Positions whose reading takes so long that the log tells how far it is."""
_TENTHS: Final = 10
"""How often it does."""


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the projections are behind the record."""

    positions: int
    seconds: float
    """The age of the oldest event they do not show yet; 0 where they show all."""


class Projector:
    """One thread: `wake` it when the record has grown, `hurry` it when a reader waits. Each process may have its own.

    Args:
        path: the record.
        live: the world of this process, which says what changed; None: the record is folded.
    """

    def __init__(self, path: Where, *, clock: Clock, live: LiveWorld | None = None) -> None:
        self._live = live
        self._path = path
        self._models = ReadModels(path)
        self._clock = clock
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._record: Record | None = None
        self._keeper: ProjectionWriter | None = None
        self._position = 0
        self._building: Building | None = None

    @property
    def building(self) -> Building | None:
        """How far it is with read models that have to be built; None: it builds none. Any thread may ask."""
        return self._building

    @property
    def position(self) -> int:
        """The last position the projections show."""
        return self._position

    @property
    def lag(self) -> Lag:
        """How far they are behind. Any thread may ask."""
        with Record.open(self._path, clock=self._clock, check=False, shapes=READINGS.shape) as record:
            shown = self._position
            behind = max(0, record.head().position - shown)
            first = next(iter(record.read(after=shown, limit=1)), None) if behind else None
            if first is None:
                return Lag(positions=behind, seconds=0.0)
            return Lag(positions=behind, seconds=max(0, self._clock.now() - first.recorded_at) / SECOND)

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="projector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; the transaction under way is finished first."""
        self._stopping.set()
        self.hurry()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            self._thread = None

    def wake(self) -> None:
        """Say that the record has grown; returns at once."""
        self._woken.set()

    def hurry(self) -> None:
        """Say that a reader waits for what the record has; returns at once."""
        self._hurried.set()
        self._woken.set()

    def catch_up(self) -> None:
        """Bring the projections up to the record's head as it is now; builds them where there are none.

        Raises:
            StenoError, OSError, sqlite3.Error: as they say; the next call starts again.
        """
        try:
            record = self._opened()
            if self._is_done(record):
                return
            if not self._advanced(record):
                self._build(record)
                self._advanced(record)
        except BaseException:
            self._close()
            raise

    def _run(self) -> None:
        told = ""
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                self._hurried.clear()
                began = time.thread_time()
                try:
                    self.catch_up()
                except _Stopped:
                    break
                except (StenoError, OSError, sqlite3.Error) as error:
                    if str(error) != told:
                        told = str(error)
                        _log.warning("the read models cannot be brought up to the record: %s", error)
                    self._stopping.wait(_AGAIN)
                    continue
                told, worked = "", time.thread_time() - began
                rest = min(_MOST, _REST * worked)
                self._stopping.wait(rest)
                self._hurried.wait(max(0.0, _LEAST - rest))
                self._woken.wait(_IDLE)
        finally:
            self._close()

    def _opened(self) -> Record:
        if self._record is None:
            self._record = Record.open(self._path, clock=self._clock, check=False, shapes=READINGS.shape)
        return self._record

    def _goal(self, record: Record) -> int:
        """Where the read models are to be: at the live world, where that is at the record's head."""
        if self._live is not None and self._live.is_ready(0):
            return self._live.position
        return record.head().position

    def _is_done(self, record: Record) -> bool:
        """Whether nothing has happened since the last time."""
        keeper = self._keeper
        if keeper is None or not self._models.is_current(keeper.store):
            return False
        return self._position >= self._goal(record)

    def _advanced(self, record: Record) -> bool:
        """Whether there is a file of this record, by these rules; it is brought up to the head."""
        while True:
            head = self._goal(record)
            with self._models.writing():
                keeper = self._keeper
                if keeper is None or not self._models.is_current(keeper.store):
                    self._let_go()
                    store = self._models.open(write=True)
                    if store is None:
                        return False
                    keeper = self._keeper = ProjectionWriter(record, store, live=self._live)
                checkpoint = keeper.store.checkpoint()
                if not belongs(record, checkpoint):
                    self._let_go()
                    return False
                try:
                    keeper.advance(head, most=1)
                except sqlite3.OperationalError:
                    raise
                except sqlite3.DatabaseError:
                    self._let_go()
                    return False
            self._position = keeper.position
            if self._position >= head or self._stopping.is_set():
                return True

    def _build(self, record: Record) -> None:
        """Make new ones, unless another process is at it: then wait for those."""
        total = record.head().position
        self._building = Building(done=None, total=total)
        try:
            with self._models.building():
                if self._advanced(record):
                    return
                self._tell(Building(done=0, total=total))
                build(record, self._models, lambda done, end: self._tell(Building(done=done, total=end)))
                if total >= _LONG:
                    _log.info("the read models are built")
        finally:
            self._building = None

    def _tell(self, now: Building) -> None:
        """How far it is, also in the log where that takes long.

        Raises:
            _Stopped: the service ends.
        """
        before, self._building = self._building, now
        if self._stopping.is_set():
            raise _Stopped
        if now.total >= _LONG and now.left and _tenth(now) != (-1 if before is None else _tenth(before)):
            _log.info("building the read models: %s", now)

    def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.store.close()
            self._keeper = None

    def _close(self) -> None:
        self._let_go()
        if self._record is not None:
            self._record.close()
            self._record = None


class _Stopped(Exception):
    """The service ends while the projections are built."""


def _tenth(building: Building) -> int:
    """How many tenths are done; -1 where nobody knows."""
    return -1 if building.percent is None else building.percent * _TENTHS // 100
