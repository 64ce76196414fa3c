"""The read models as of any position: opened from the moment before it, and cached.

A moment is a position whose world the read models keep (`projection_writer.MOMENTS`). Later changes are folded above
it, in memory. Without moments the record is folded from the start.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Final, NamedTuple

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_time import record_time
from steno.engine.providers.registry import READINGS
from steno.engine.rules.sets import ADOPTED
from steno.engine.state.archives import imported_at
from steno.engine.state.world import World
from steno.events.store.record import Record
from steno.projections.read_models.database import StoreError, StoreUnreadable
from steno.projections.read_models.known_worlds import Knowledge, correct
from steno.projections.read_models.projection_writer import NO_MOMENTS, Progress, ProjectionWriter, checkpoint_at
from steno.projections.read_models.projector import belongs
from steno.projections.read_models.read_models import ReadModels
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View
from steno.projections.read_models.world_table import load_whole_world, load_world, save_world

Stretch = tuple[int, int]  # the first and the last of some positions


class Beyond(NamedTuple):
    """How far archives behind a position were by their own clocks."""

    archives: tuple[Stretch, ...] = ()  # stretches of positions, in order
    time: int | None = None  # what is newer (microseconds, UTC) is not part of it


NOTHING: Final = Beyond()


def moment_at(record: Record, time: int, head: int, state: World) -> tuple[int, Beyond]:
    """(last position, what is beyond it) known at a time: live sources by the record's order, archives by their own
    clocks, whenever they were imported. `state`, the world at `head`, knows where archives are in the record.
    """
    # The observations of an archive's last poll follow it.
    archives = [
        (first, min(last + len(record.changed(last)), head)) for first, last in imported_at(state) if last <= head
    ]
    edges = [0, *(edge for first, last in archives for edge in (first - 1, last)), head]
    live = [(edges[index] + 1, edges[index + 1]) for index in range(0, len(edges), 2)]
    position = 0
    for first, last in live:
        reached_at = last_before(record, time, last, state, after=first - 1)
        position = reached_at if reached_at >= first else position
        if reached_at < last:
            break
    reached: list[Stretch] = []
    for first, last in archives:
        if first <= position:
            continue
        reached_at = last_before(record, time, last, state, after=first - 1)
        if reached_at == last and first == position + 1:
            position = last
        elif reached_at >= first:
            reached.append((first, reached_at))
    return position, Beyond(tuple(reached), time) if reached else NOTHING


def last_before(record: Record, time: int, head: int, state: World, after: int = 0) -> int:
    """The last position in `(after, head]` observed by `time`, else `after`. A binary search: positions follow record
    time, except for imports.
    """

    def observed_at(position: int) -> int:
        return record_time(state, next(iter(record.read(after=position - 1, limit=1))))

    return after + bisect_right(range(after + 1, head + 1), time, key=observed_at)


_HELD = 8
_TRIES = 3


def opened(
    record: Record,
    position: int,
    beyond: Beyond = NOTHING,
    known: Knowledge | None = None,
    *,
    progress: Progress | None = None,
) -> ProjectionStore:
    """The projections as of `position`, of archives `beyond` it; the caller closes them. `known`: by what was known of
    that moment later; None: by what was known then.
    """
    if known is not None:
        corrected = opened(record, position, beyond, progress=progress)
        try:
            correct(record, corrected, known, opened)
        except BaseException:
            corrected.close()
            raise
        return corrected
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
    record: Record, position: int, beyond: Beyond = NOTHING, *, progress: Progress | None = None
) -> ProjectionStore:
    """As `opened`, folded from the start."""
    store = ProjectionStore.create(None)
    _go_on(record, store, position, beyond, progress)
    return store


def world_before(record: Record, position: int) -> tuple[Fold, int]:
    """(world, its position) to continue from: the newest moment up to `position`, or an empty world at 0."""
    with suppress(StoreError, KeyError, ValueError), world_above(record, position, load_whole_world) as state:
        return Fold(READINGS, ADOPTED, state=state), state.position
    return Fold(READINGS, ADOPTED), 0


@contextmanager
def world_above(
    record: Record, position: int, load: Callable[[ProjectionStore], World | None] = load_world
) -> Iterator[World]:
    """As `world_before`, the world alone, with runs and machines read when they are needed: only inside the block."""
    store = None
    with suppress(StoreError):
        store = _above(record, position)
    with nullcontext() if store is None else store, nullcontext() if store is None else store.reading():
        state = None if store is None else load(store)
        if store is None or state is None or store.world_below(store.base) is None:
            state = World(rules=ADOPTED.name)
        else:
            state.position = store.base
        yield state


def _above(record: Record, position: int) -> ProjectionStore | None:
    """A store in memory above the newest moment up to a position; None: no moment is kept."""
    models = ReadModels(record.store)
    current = models.open(write=False)
    if current is None:
        return None
    with current:
        base = current.moment_before(position) if belongs(record, current.checkpoint()) else None
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


def _go_on(record: Record, store: ProjectionStore, position: int, beyond: Beyond, progress: Progress | None) -> None:
    """Fold up to a position, then the archives behind it up to `beyond`."""
    ProjectionWriter(record, store, spacing=NO_MOMENTS).advance(position, progress)
    for first, last in beyond.archives:
        with store.writing():
            store.set_checkpoint(checkpoint_at(record, first - 1))
        ProjectionWriter(record, store, spacing=NO_MOMENTS, time=beyond.time).advance(last)


class _Held:
    """A position; closed when it is no longer used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._view: View | None = None

    @contextmanager
    def reading(self, record: Record, position: int, beyond: Beyond, known: Knowledge | None) -> Iterator[View]:
        """The position in one transaction; reopened if the moment below it was deleted."""
        models = ReadModels(record.store)
        while True:
            view = self._view = self._view or View(opened(record, position, beyond, known))
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
        self.held: Final = lru_cache(maxsize=held)(lambda *_: _Held())

    @contextmanager
    def at(
        self, record: Record, position: int, beyond: Beyond = NOTHING, known: Knowledge | None = None
    ) -> Iterator[View]:
        """The projections as of a position, for one thread at a time; raises `StoreUnreadable` on damage."""
        held = self.held(position, beyond, known)
        with held.lock, held.reading(record, position, beyond, known) as view:
            yield view

    def close(self) -> None:
        """Close all; those in use are closed when returned."""
        self.held.cache_clear()
