"""Readers of the projections for the service's threads: of the present, or of a position."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, Clock
from steno.events.errors import PositionNotFound, StenoError
from steno.events.store.record import Record
from steno.events.store.store import Where, store_at
from steno.projections.read_models.database import StoreError, StoreUnreadable, is_damage
from steno.projections.read_models.known_worlds import Knowledge
from steno.projections.read_models.past_worlds import NOTHING, Beyond, Moments
from steno.projections.read_models.projection_writer import RULES
from steno.projections.read_models.projector import Building, caught_up
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.store import Checkpoint, ProjectionStore
from steno.projections.read_models.view import View

PATIENCE = 2 * SECOND  # how long a reader waits for a position it wants to see
_DAMAGED = "The read models were damaged and are being rebuilt; retry in a moment."
_STEP = SECOND // 100
_SOON = 20_000  # positions that are read in about the time a reader waits
_KEPT = 16  # readers kept open while nobody has them


class Behind(StenoError):
    """The read models do not show that position yet."""


class BeingBuilt(Behind):
    """There are no read models yet."""

    def __init__(self, progress: Building) -> None:
        super().__init__(f"The read models are being built: {progress}. Ask again in a moment.")
        self.progress = progress


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The record and its projections at one position."""

    record: Record  # it may hold more than `position` by now
    view: View
    position: int
    now: int  # the moment it is seen from (microseconds, UTC): now, or of a moment past, its own
    past: bool = False  # it is the world as it was, not as it is


class _Reader:
    """One open record with its projections file, for one thread at a time."""

    def __init__(self, record: Record, store: ProjectionStore) -> None:
        self.record = record
        self.store = store
        self.view = View(store)
        self.position = -1

    def look(self) -> int:
        """The position of the file; clears caches of another. Raises `StoreUnreadable`."""
        checkpoint = self.store.read_checkpoint()
        if checkpoint.position != self.position:
            self.position, self.view = checkpoint.position, View(self.store)
        return self.position

    def close(self) -> None:
        self.store.close()
        self.record.close()


class Pool:
    """Lends readers of the record at `path` to any thread. `wake` notifies the projector that a reader waits; None:
    every look catches up first. `building`: the progress of missing read models; None: nobody builds them.
    """

    def __init__(
        self,
        path: Where,
        *,
        clock: Clock,
        wake: Callable[[], None] | None = None,
        building: Callable[[], Building | None] = lambda: None,
    ) -> None:
        self._path = path
        self._models = ReadModels(path)
        self._clock = clock
        self._wake = wake
        self._building = building
        self._lock = threading.Lock()
        self._free: list[_Reader] = []
        self._moments = Moments()
        self._closed = False

    @contextmanager
    def now(self, *, min_position: int | None = None) -> Iterator[Look]:
        """The projections at `min_position` or later, all of one position. Raises `BeingBuilt` (there are none) or
        `Behind` (not there yet) after at most two seconds.
        """
        reader, whole = self._ready(min_position), True
        try:
            yield Look(record=reader.record, view=reader.view, position=reader.position, now=self._clock.now())
        except StoreUnreadable as error:
            whole = False
            if self._doubt(error, reader.store.stamp):
                raise Behind(_DAMAGED) from error
            raise
        finally:
            self._end(reader, whole=whole)

    @contextmanager
    def latest(self) -> Iterator[Look]:
        """As `now`, at the record's head, including what was just appended."""
        with self.now() as look:
            head = look.record.head().position
            if look.position >= head:
                yield look
                return
        with self.now(min_position=head) as look:
            yield look

    @contextmanager
    def at(self, position: int, beyond: Beyond = NOTHING, known: Knowledge | None = None) -> Iterator[Look]:
        """The world as of `position`, and of archives `beyond` it, by what was `known` then or later. Raises
        `PositionNotFound` (beyond the record), `BeingBuilt` (no read models yet, a fold would take long), or `Behind`
        (damaged read models are rebuilt).
        """
        stamp = self._models.stamp()
        reader = self._unused() or _Reader(self._record(), ProjectionStore.create(None))
        try:
            head = reader.record.head().position
            if not 0 <= position <= head:
                raise PositionNotFound(f"The record ends at position {head}; {position} is beyond it.")
            if stamp is None and position > _SOON and (building := self._building()) is not None:
                raise BeingBuilt(building)
            with self._moments.at(reader.record, position, beyond, known) as view:
                newest = max(position, *(last for _, last in beyond.archives), 0)
                now = self._clock.now() if view.last_at is None else view.last_at
                yield Look(record=reader.record, view=view, position=newest, now=now, past=True)
        except StoreUnreadable as error:
            if self._doubt(error, stamp):
                raise Behind(_DAMAGED) from error
            raise
        finally:
            self._end(reader, whole=True)

    def close(self) -> None:
        """Close every free reader; a lent reader is closed when it is returned."""
        with self._lock:
            self._closed = True
            readers, self._free = self._free, []
        for reader in readers:
            reader.close()
        self._moments.close()

    # -- readers ---

    def _ready(self, min_position: int | None) -> _Reader:
        """A reader in a transaction at `min_position` or later."""
        end = self._clock.now() + PATIENCE
        position: int | None = None
        while True:
            reader = self._borrow()
            position = None if reader is None else self._begun(reader)
            if reader is not None and position is not None:
                if min_position is None or position >= min_position:
                    return reader
                self._end(reader, whole=True)
            building = self._building() if position is None else None
            if building is not None and building.left > _SOON:
                raise BeingBuilt(building)
            if self._clock.now() >= end:
                break
            if self._wake is not None:
                self._wake()
            self._clock.sleep(_STEP)
        if building is not None:
            raise BeingBuilt(building)
        if position is None:
            raise Behind("The read models are being built: ask again in a moment.")
        raise Behind(f"The read models are at position {position}, not yet at {min_position}: ask again in a moment.")

    def _begun(self, reader: _Reader) -> int | None:
        """Begin a transaction; returns its position, or None if the file is unreadable: the reader is closed."""
        try:
            reader.store.begin()
            return reader.look()
        except StoreUnreadable as error:
            self._end(reader, whole=False)
            self._doubt(error, reader.store.stamp)
            return None

    def _borrow(self) -> _Reader | None:
        """A reader of the current file or the one before; None if neither is readable."""
        if self._wake is None:
            with self._record() as record:
                caught_up(record).close()
        reader = self._unused()
        if reader is not None and self._is_current(reader):
            return reader
        store, is_kept = self._models.open(write=False), store_at(self._path).is_writable()
        if store is None and reader is None and is_kept:
            return None
        record = self._record() if reader is None else reader.record
        if store is not None and not _is_readable(record, store.checkpoint()):
            store.close()
            store = None
        if store is None and not is_kept:
            store = caught_up(record)  # nobody can keep read models here: each reader has its own, in memory
        if store is None:
            if reader is None:
                record.close()
            return reader
        if reader is not None:
            reader.store.close()
        return _Reader(record, store)

    def _is_current(self, reader: _Reader) -> bool:
        """True if a reader has the current file; in memory: if it shows all of the record."""
        if reader.store.stamp is None:
            return reader.position == reader.record.head().position
        return self._models.is_current(reader.store)

    def _end(self, reader: _Reader, *, whole: bool) -> None:
        """Return a reader; close it if it is not `whole`."""
        with suppress(StoreError):
            reader.store.end()
        with self._lock:
            if whole and not self._closed and len(self._free) < _KEPT:
                self._free.append(reader)
                return
        reader.close()

    def _doubt(self, error: StoreUnreadable, stamp: object) -> bool:
        """True if the read models of that stamp are damaged; if so, discard them for a rebuild."""
        if not is_damage(error):
            return False
        self._models.discard(stamp)
        if self._wake is not None:
            self._wake()
        return True

    def _unused(self) -> _Reader | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def _record(self) -> Record:
        return Record.open(self._path, clock=self._clock, check=False, shapes=READINGS.shape)


def _is_readable(record: Record, checkpoint: Checkpoint | None) -> bool:
    """True if a file is of this record, perhaps by older rules: better than nothing during a rebuild."""
    if checkpoint is None or checkpoint.version != Checkpoint(rules="").version or checkpoint.record != record.id:
        return False
    if checkpoint.chain not in ("", record.digest(checkpoint.position)):
        return False
    return checkpoint.rules.rpartition(" ")[2] == RULES.rpartition(" ")[2]
