"""Keeps the read models up to date: once for a command, or in a thread of a service. Several processes may do so; a
writer or builder holds a lock.
"""

import logging
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, Clock, SystemClock
from steno.events.errors import StenoError
from steno.events.store.record import Record
from steno.events.store.store import Where
from steno.projections.read_models.database import StoreError, StoreRefused, StoreUnreadable
from steno.projections.read_models.projection_writer import NO_MOMENTS, RULES, Progress, ProjectionWriter
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.store import Checkpoint, ProjectionStore

if TYPE_CHECKING:
    from steno.engine.live.live_world import LiveWorld

_log: Final = logging.getLogger(__name__)
_SETTLE: Final = 0.15  # seconds from wake to catch-up without readers: batches a round's polls
_MOST: Final = 1.0
_REST: Final = 3  # sleeps three times as long as it worked, to stay below 25 % CPU
_IDLE: Final = 0.25  # seconds after which it looks by itself
_TIMEOUT: Final = 10.0  # seconds to wait for a stop: another process may hold the lock
_AGAIN: Final = 1.0  # seconds before a retry
_ANSWERS: Final = 1 << 22  # bytes: a build reads each run's first and newest answer again for its row
_LONG: Final = 50_000  # positions; longer builds log their progress ten times


class Building(msgspec.Struct, frozen=True, kw_only=True):
    """Read models that are being built, counted in positions of the record."""

    done: int | None  # None: another process builds them, and does not say how far it is
    total: int  # the record's head when they were begun

    @property
    def left(self) -> int:
        return self.total - (self.done or 0)

    @property
    def percent(self) -> int | None:
        """Rounded down; None if unknown."""
        return None if self.done is None else 100 * self.done // max(1, self.total)

    def __str__(self) -> str:
        if self.done is None:
            return f"another process reads the {self.total:,} events of the record"
        return f"{self.percent} %, {self.done:,} of {self.total:,} events"


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the projections are behind the record."""

    positions: int
    seconds: float  # the age of the oldest event they do not show yet; 0 where they show all


def caught_up(record: Record, *, progress: Progress | None = None) -> ProjectionStore:
    """The projections up to the record's current head, kept beside it; the caller closes them. If nothing can be
    written there, the rest is folded in memory.
    """
    models = ReadModels(record.store)
    store = models.open(write=False)
    if store is not None:
        checkpoint = store.checkpoint()
        if not belongs(record, checkpoint):
            store.close()
            store = None
        elif checkpoint is not None and checkpoint.position == record.head().position:
            return store
    try:
        with closing(Projector(record.store, clock=SystemClock())) as projector:
            projector.bring_up(record, progress or (lambda _, __: None))
    except (OSError, StoreError):
        return _in_memory(record, store, progress)
    if store is not None:
        store.close()
    return models.open(write=False) or _in_memory(record, None, progress)


def rebuilt(record: Record, *, progress: Progress | None = None) -> int:
    """Rebuild the read models in a new file and replace the old file; returns the number of runs. Raises `OSError` if
    the folder cannot be written.
    """
    models = ReadModels(record.store)
    with models.building():
        return build(record, models, progress)


def build(record: Record, models: ReadModels, progress: Progress | None = None) -> int:
    """Fill a new file, catch up and swap; returns the number of runs. The caller is the only builder; others read and
    write the old file until then.
    """
    record.widen(_ANSWERS)
    with models.fresh() as (store, publish):
        writer = ProjectionWriter(record, store)
        writer.advance(record.head().position, progress)
        with models.writing():
            writer.advance(record.head().position)
            publish()
        return store.runs.count()


def belongs(record: Record, checkpoint: Checkpoint | None) -> bool:
    """True if a store was made from this record by these rules."""
    if checkpoint is None or (checkpoint.version, checkpoint.rules) != (Checkpoint(rules="").version, RULES):
        return False
    if checkpoint.record != record.id or (checkpoint.position and not checkpoint.chain):
        return False
    return checkpoint.chain == record.digest(checkpoint.position)


def _in_memory(record: Record, store: ProjectionStore | None, progress: Progress | None) -> ProjectionStore:
    """Read models in memory, continued from a readable store if there is one."""
    copied = None
    if store is not None:
        with store:
            try:
                copied = store.copy()
            except StoreError:
                copied = None
    copied = copied or ProjectionStore.create(None)
    ProjectionWriter(record, copied, spacing=NO_MOMENTS).advance(record.head().position, progress)
    return copied


class Projector:
    """Keeps a record's read models up to date, or builds them: when called, or in a thread between `start` and `stop`.
    `wake` it when the record has grown, `hurry` it when a reader waits. `live`: the world of this process, which knows
    the changes; None: fold the record.
    """

    def __init__(self, path: Where, *, clock: Clock, live: "LiveWorld | None" = None) -> None:
        self._path = path
        self._models = ReadModels(path)
        self._clock = clock
        self._live = live
        self._writer: ProjectionWriter | None = None
        self.position = 0  # of the projections; like `lag`, for any thread
        self.building: Building | None = None  # the progress of a build; None: there is none
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._hurried = threading.Event()
        self._thread: threading.Thread | None = None
        self._record: Record | None = None

    @property
    def lag(self) -> Lag:
        """How far they are behind. For any thread."""
        with self._opened() as record:
            position = self.position
            behind = max(0, record.head().position - position)
            first = next(iter(record.read(after=position, limit=1)), None) if behind else None
            if first is None:
                return Lag(positions=behind, seconds=0.0)
            return Lag(positions=behind, seconds=max(0, self._clock.now() - first.recorded_at) / SECOND)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="projector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current transaction."""
        self._stopping.set()
        self.hurry()
        if self._thread is not None:
            self._thread.join(_TIMEOUT)
            self._thread = None

    def wake(self) -> None:
        """Report that the record has grown; returns at once."""
        self._woken.set()

    def hurry(self) -> None:
        """Report that a reader waits for the newest events; returns at once."""
        self._hurried.set()
        self._woken.set()

    def bring_up(self, record: Record, progress: Progress | None = None) -> None:
        """Bring the read models up to the record's current head; build them if they are missing. After an error the
        next call restarts.
        """
        if self._is_in_use() and self.position >= self._goal(record):
            return
        if not self._advanced(record, progress):
            self._build(record, progress)
            self._advanced(record, progress)

    def catch_up(self) -> None:
        """As `bring_up`, for a record that it opens."""
        try:
            if self._record is None:
                self._record = self._opened()
            self.bring_up(self._record)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._drop()
        if self._record is not None:
            self._record.close()
            self._record = None

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.store.close()
            self._writer = None

    def _goal(self, record: Record) -> int:
        """The target position: the live world's, if that is at the record's head."""
        if self._live is not None and self._live.is_ready(0):
            return self._live.position
        return record.head().position

    def _is_in_use(self) -> bool:
        """True if readers still use the file it writes."""
        return self._writer is not None and self._models.is_current(self._writer.store)

    def _advanced(self, record: Record, progress: Progress | None) -> bool:
        """Bring an existing file of this record and these rules up to the head; returns whether there is one."""
        while True:
            head = self._goal(record)
            with self._models.writing():
                if not self._is_in_use():
                    self._drop()
                    store = self._models.open(write=True)
                    if store is None:
                        return False
                    self._writer = ProjectionWriter(record, store, live=self._live)
                writer = self._writer
                assert writer is not None  # noqa: S101 - it is in use
                try:
                    if not belongs(record, writer.store.checkpoint()):
                        raise StoreUnreadable("they belong to another record, or to other rules")
                    writer.advance(head, progress, most=None if progress else 1)
                except StoreRefused:
                    raise
                except StoreUnreadable:  # damaged: it is rebuilt
                    self._drop()
                    return False
            self.position = writer.position
            if self.position >= head or self._stopping.is_set():
                return True

    def _build(self, record: Record, progress: Progress | None) -> None:
        """Build new read models, or wait if another process does."""
        total = record.head().position
        self.building = Building(done=None, total=total)
        try:
            with self._models.building():
                if self._advanced(record, progress):
                    return
                tell = progress or self._tell
                tell(0, total)
                build(record, self._models, tell)
                if progress is None and total >= _LONG:
                    _log.info("the read models are built")
        finally:
            self.building = None

    def _tell(self, done: int, total: int) -> None:
        """Report the progress of a build, also to the log of a long one; raises `_Stopped` when the service ends."""
        before, now = self.building, Building(done=done, total=total)
        self.building = now
        if self._stopping.is_set():
            raise _Stopped
        if total >= _LONG and now.left and _tenth(now) != _tenth(before):
            _log.info("building the read models: %s", now)

    def _run(self) -> None:
        logged = ""
        with closing(self):
            while not self._stopping.is_set():
                self._woken.clear()
                self._hurried.clear()
                began = time.thread_time()
                try:
                    self.catch_up()
                except _Stopped:
                    break
                except (StenoError, OSError, StoreError) as error:
                    if str(error) != logged:
                        logged = str(error)
                        _log.warning("the read models cannot be brought up to the record: %s", error)
                    self._stopping.wait(_AGAIN)
                    continue
                logged, worked = "", time.thread_time() - began
                rest = min(_MOST, _REST * worked)
                self._stopping.wait(rest)
                if self._woken.wait(_IDLE):
                    self._hurried.wait(max(0.0, _SETTLE - rest))

    def _opened(self) -> Record:
        return Record.open(self._path, clock=self._clock, check=False, shapes=READINGS.shape)


class _Stopped(Exception):
    """The service ends while the projections are built."""


def _tenth(building: Building | None) -> int:
    """Tenths done; -1 if unknown."""
    return -1 if building is None or building.percent is None else building.percent // 10
