"""The world as it was at any position: opened from the kept world before it, and held while it is asked for again.

An open moment is what the projections' file shows at a position whose world it keeps (`projection_writer.MOMENTS`),
and above it, in memory, the rows of what changed since. It is evicted when the file drops that position or is replaced.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engine.fold.world import World
from engine.providers.readings import READINGS
from engine.rules.sets import CURRENT
from projections.models.position_at import NOTHING, Beyond
from projections.models.projection_writer import ProjectionWriter
from projections.models.projector import add_archives, as_it_was, belongs
from projections.models.view import View
from projections.store.read_models import ReadModels
from projections.store.store import Checkpoint, ProjectionStore
from projections.store.world_table import take_up_whole

if TYPE_CHECKING:
    from events.store.record import Record

_HELD = 8
_NONE_KEPT = 1 << 62


class _Held:
    """One position, opened or about to be."""

    __slots__ = ("base", "lock", "stamp", "store", "view")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.store: ProjectionStore | None = None
        self.view: View | None = None
        self.stamp: object = None
        self.base = 0
        """The kept position it is above; 0: none, it was folded from the start."""


class Moments:
    """The moments of one record that were asked for last; any thread may ask."""

    def __init__(self, held: int = _HELD) -> None:
        self._most = held
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, Beyond], _Held] = OrderedDict()

    @contextmanager
    def at(self, record: "Record", position: int, beyond: Beyond = NOTHING) -> Iterator[View]:
        """What the projections showed at a position of the record; one thread at a time sees it.

        Raises:
            sqlite3.DatabaseError: the file is damaged; the moment is let go.
        """
        key = (position, beyond)
        held = self._slot(key)
        try:
            with held.lock, _reading(held, record, *key) as view:
                yield view
        finally:
            with self._lock:
                lost = self._held.get(key) is not held
            if lost and held.lock.acquire(blocking=False):
                _close(held)
                held.lock.release()

    @property
    def held(self) -> tuple[int, ...]:
        """The positions that are held, the one asked for last at the end."""
        with self._lock:
            return tuple(position for position, _ in self._held)

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            for held in self._held.values():
                with held.lock:
                    _close(held)
            self._held.clear()

    def _slot(self, key: tuple[int, Beyond]) -> _Held:
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held()
            self._held.move_to_end(key)
            for old in list(self._held)[: max(0, len(self._held) - self._most)]:
                if self._held[old].lock.acquire(blocking=False):
                    gone = self._held.pop(old)
                    _close(gone)
                    gone.lock.release()
            return held


@contextmanager
def _reading(held: _Held, record: "Record", position: int, beyond: Beyond) -> Iterator[View]:
    """The moment in one transaction; reopened if it, or the kept world below it, is gone."""
    if held.store is not None and held.base and held.stamp != ReadModels(record.store).stamp():
        _close(held)
    while True:
        if held.store is None:
            held.stamp = ReadModels(record.store).stamp()
            held.store, held.base = opened(record, position, beyond)
            held.view = View(held.store)
        store, view = held.store, held.view
        assert view is not None  # noqa: S101 - made with the store
        store.begin()
        try:
            if not held.base or store.world_below(held.base) is not None:
                yield view
                return
        except sqlite3.DatabaseError:
            _close(held)
            raise
        finally:
            with suppress(sqlite3.Error):
                store.end()
        _close(held)


def opened(record: "Record", position: int, beyond: Beyond = NOTHING) -> tuple[ProjectionStore, int]:
    """(the projections as they were at a position, the kept position they are above; 0: folded from the start)."""
    models = ReadModels(record.store)
    for _ in range(3):  # the file may be swapped, or give up its moment, between two looks at it
        base = _moment(record, position)
        if base is None:
            break
        store = models.above(base)
        if store is None:
            continue
        try:
            with store.reading():
                kept = store.world_below(base)
            if kept is not None:
                store.put("world", kept[0])
                store.put("lasting", kept[1])
                store.set_checkpoint(Checkpoint(rules="", record=record.id, position=base))
                ProjectionWriter(record, store, spacing=_NONE_KEPT).advance(position)
                add_archives(record, store, beyond)
                if store.world_below(base) is not None:  # so its rows were there all the time
                    return store, base
        except sqlite3.Error:
            pass
        store.close()
    return as_it_was(record, position, beyond), 0


def world_before(record: "Record", position: int) -> tuple[World, int]:
    """A world to fold on from, and where it stands: at the newest kept moment up to a position, or empty at 0."""
    with suppress(sqlite3.Error, KeyError, ValueError):
        base = _moment(record, position)
        store = None if base is None else ReadModels(record.store).above(base)
        if base is not None and store is not None:
            with store, store.reading():
                kept = store.world_below(base)
                state = None if kept is None else take_up_whole(store, kept)
                if state is not None and store.world_below(base) is not None:  # its rows were there all the time
                    state.position = base
                    return World(READINGS, CURRENT, state=state), base
    return World(READINGS, CURRENT), 0


def _close(held: _Held) -> None:
    if held.store is not None:
        held.store.close()
    held.store = held.view = None


def _moment(record: "Record", position: int) -> int | None:
    """The newest position up to this one whose world the projections keep."""
    found = ReadModels(record.store).open(write=False)
    if found is None:
        return None
    with found:
        return found.moment_before(position) if belongs(record, found.checkpoint()) else None
