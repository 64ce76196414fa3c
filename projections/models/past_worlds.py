"""The read models as of any position: opened from the moment before it, and cached.

A moment is a position whose world the read models keep (`projection_writer.MOMENTS`). Later changes are folded above
it, in memory. Without moments the record is folded from the start.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from engine.fold.world import World
from engine.providers.readings import READINGS
from engine.rules.current import CURRENT
from projections.models.position_at import NOTHING, Beyond
from projections.models.projection_writer import NO_MOMENTS, Progress, ProjectionWriter, checkpoint_at
from projections.models.projector import belongs
from projections.models.view import View
from projections.store.database import StoreError, StoreUnreadable
from projections.store.read_models import ReadModels
from projections.store.store import ProjectionStore
from projections.store.world_table import load_whole_world, save_world

if TYPE_CHECKING:
    from events.store.record import Record

_HELD = 8
_TRIES = 3


def opened(
    record: "Record", position: int, beyond: Beyond = NOTHING, *, progress: Progress | None = None
) -> ProjectionStore:
    """The projections as of `position`, of archives `beyond` it; the caller closes them."""
    for _ in range(_TRIES):
        store = None
        with suppress(StoreError):
            store = _above(record, position)
            if store is None:
                break
            _go_on(record, store, position, beyond, progress)
            if store.world_below(store.base) is not None:  # so its rows were there all the time
                return store
        if store is not None:
            store.close()
    return as_it_was(record, position, beyond, progress=progress)


def as_it_was(
    record: "Record", position: int, beyond: Beyond = NOTHING, *, progress: Progress | None = None
) -> ProjectionStore:
    """As `opened`, folded from the start."""
    store = ProjectionStore.create(None)
    _go_on(record, store, position, beyond, progress)
    return store


def world_before(record: "Record", position: int) -> tuple[World, int]:
    """(world, its position) to continue from: the newest moment up to `position`, or an empty world at 0."""
    with suppress(StoreError, KeyError, ValueError):
        store = _above(record, position)
        if store is not None:
            with store, store.reading():
                state = load_whole_world(store)
                if state is not None and store.world_below(store.base) is not None:
                    state.position = store.base
                    return World(READINGS, CURRENT, state=state), store.base
    return World(READINGS, CURRENT), 0


def _above(record: "Record", position: int) -> ProjectionStore | None:
    """A store in memory above the newest moment up to a position; None: no moment is kept."""
    models = ReadModels(record.store)
    found = models.open(write=False)
    if found is None:
        return None
    with found:
        base = found.moment_before(position) if belongs(record, found.checkpoint()) else None
    store = None if base is None else models.above(base)
    if store is None:
        return None
    world = store.world_below(store.base)
    if world is None:
        store.close()
        raise StoreUnreadable("the moment is no longer kept")
    save_world(store, *world)
    store.set_checkpoint(checkpoint_at(record, store.base))
    return store


def _go_on(record: "Record", store: ProjectionStore, position: int, beyond: Beyond, progress: Progress | None) -> None:
    """Fold up to a position, then the archives behind it up to `beyond`."""
    ProjectionWriter(record, store, spacing=NO_MOMENTS).advance(position, progress)
    for first, last in beyond.archives:
        with store.writing():
            store.set_checkpoint(checkpoint_at(record, first - 1))
        ProjectionWriter(record, store, spacing=NO_MOMENTS, time=beyond.time).advance(last)


class _Held:
    """One position; closed when nobody uses it any more."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._view: View | None = None

    @contextmanager
    def reading(self, record: "Record", position: int, beyond: Beyond) -> Iterator[View]:
        """The position in one transaction; reopened if the moment below it was deleted."""
        models = ReadModels(record.store)
        while True:
            view = self._view = self._view or View(opened(record, position, beyond))
            store = view.store
            try:
                with store.reading():
                    if not store.base or (models.is_current(store) and store.world_below(store.base) is not None):
                        yield view
                        return
            except StoreUnreadable:
                self.close()
                raise
            self.close()

    def close(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.store.close()

    def __del__(self) -> None:
        self.close()


class Moments:
    """A cache of a record's recently read positions; thread-safe."""

    def __init__(self, held: int = _HELD) -> None:
        self.held: Final = lru_cache(maxsize=held)(lambda _position, _beyond: _Held())

    @contextmanager
    def at(self, record: "Record", position: int, beyond: Beyond = NOTHING) -> Iterator[View]:
        """The projections as of a position, for one thread at a time; raises `StoreUnreadable` on damage."""
        held = self.held(position, beyond)
        with held.lock, held.reading(record, position, beyond) as view:
            yield view

    def close(self) -> None:
        """Close all; those in use are closed when returned."""
        self.held.cache_clear()
