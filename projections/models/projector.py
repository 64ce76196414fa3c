"""Brings the projections up to the record: idempotent, safe under several processes, in memory where need be."""

import sqlite3
from typing import TYPE_CHECKING

from projections.models.position_at import NOTHING, Beyond
from projections.models.projection_writer import RULES, Progress, ProjectionWriter
from projections.store.read_models import ReadModels
from projections.store.store import Checkpoint, ProjectionStore

if TYPE_CHECKING:
    from events.store.record import Record

__all__ = ["RULES", "as_it_was", "belongs", "build", "caught_up", "rebuilt"]

_WHOLE = 1 << 62
"""A spacing of moments at which none is kept."""


def caught_up(record: "Record", *, progress: Progress | None = None) -> ProjectionStore:
    """The projections of a record, up to its head as it is now; the caller closes them.

    They are kept in a file beside the record, so that the next call folds only what is new. Where that file cannot be
    written the rest is folded in memory.
    """
    models = ReadModels(record.store)
    store = _current(record, models)
    if store is not None and _is_at_head(record, store):
        return store
    try:
        _bring_up(record, models, progress)
    except (OSError, sqlite3.Error):
        return _in_memory(record, store, progress)
    if store is not None:
        store.close()
    opened = models.open(write=False)
    return opened if opened is not None else _in_memory(record, None, progress)


def rebuilt(record: "Record", *, progress: Progress | None = None) -> int:
    """Rebuild the read models in a new file, then replace the old one; the number of runs.

    Raises:
        OSError: the folder cannot be written.
    """
    models = ReadModels(record.store)
    with models.building():
        return build(record, models, progress)


def as_it_was(
    record: "Record", position: int, beyond: Beyond = NOTHING, *, progress: Progress | None = None
) -> ProjectionStore:
    """The projections as they were after `position`, folded in memory from the start; `Moments` is faster."""
    store = ProjectionStore.create(None)
    ProjectionWriter(record, store, spacing=_WHOLE).advance(position, progress)
    add_archives(record, store, beyond)
    return store


def add_archives(record: "Record", store: ProjectionStore, beyond: Beyond) -> None:
    """Fold what archives behind the store's position had come to by their own clocks."""
    for first, last in beyond.archives:
        with store.writing():
            store.set_checkpoint(Checkpoint(rules=RULES, record=record.id, position=first - 1))
        ProjectionWriter(record, store, spacing=_WHOLE, time=beyond.time).advance(last)


def belongs(record: "Record", checkpoint: Checkpoint | None) -> bool:
    """Whether a store was made from this record by these rules."""
    if checkpoint is None or (checkpoint.version, checkpoint.rules) != (Checkpoint(rules="").version, RULES):
        return False
    return checkpoint.record == record.id and checkpoint.position <= record.head().position


def build(record: "Record", models: ReadModels, progress: Progress | None = None) -> int:
    """Fill a new file, catch up and swap; how many runs it has. The caller is the only builder.

    Nobody waits for it: others write and read the old file until the new one, no less far, is in its place.
    """
    with models.fresh() as (store, publish):
        keeper = ProjectionWriter(record, store)
        keeper.advance(record.head().position, progress)
        with models.writing():
            keeper.advance(record.head().position)
            publish()
        return store.runs.count()


def _bring_up(record: "Record", models: ReadModels, progress: Progress | None) -> None:
    """Catch up those in use, or build them."""
    if _written(record, models, progress):
        return
    with models.building():
        if not _written(record, models, progress):  # another process may have built them meanwhile
            build(record, models, progress)


def _written(record: "Record", models: ReadModels, progress: Progress | None) -> bool:
    """Whether there are any that belong to the record; they are caught up."""
    with models.writing():
        store = models.open(write=True)
        if store is None:
            return False
        with store:
            if not belongs(record, store.checkpoint()):
                return False
            try:
                ProjectionWriter(record, store).advance(record.head().position, progress)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                return False  # damaged: it is rebuilt
            return True


def _current(record: "Record", models: ReadModels) -> ProjectionStore | None:
    """Those in use, if they were made from this record by these rules."""
    store = models.open(write=False)
    if store is None or belongs(record, store.checkpoint()):
        return store
    store.close()
    return None


def _is_at_head(record: "Record", store: ProjectionStore) -> bool:
    checkpoint = store.checkpoint()
    return checkpoint is not None and checkpoint.position == record.head().position


def _in_memory(record: "Record", store: ProjectionStore | None, progress: Progress | None) -> ProjectionStore:
    found = ProjectionStore.create(None) if store is None else _copied(store)
    ProjectionWriter(record, found, spacing=_WHOLE).advance(record.head().position, progress)
    return found


def _copied(store: ProjectionStore) -> ProjectionStore:
    """The same in memory; an empty one where it cannot be read."""
    with store:
        try:
            return store.copy()
        except sqlite3.Error:
            return ProjectionStore.create(None)
