"""Where a fold of a record begins: at what the projections know, now or of a moment past."""

import sqlite3
from typing import TYPE_CHECKING

from engine.fold.world import World
from engine.providers.readings import READINGS
from engine.rules.sets import CURRENT
from projections.models.past_worlds import opened
from projections.models.projector import belongs
from projections.store.read_models import ReadModels
from projections.store.store import ProjectionStore
from projections.store.world_table import take_up_whole

if TYPE_CHECKING:
    from events.store.record import Record


def begun(record: "Record", at_most: int) -> tuple[World, int]:
    """A world of the record and the position it stands at, not beyond `at_most`; an empty one at 0 if need be."""
    try:
        return _as_it_is(record, at_most) or _as_it_was(record, at_most) or (World(READINGS, CURRENT), 0)
    except (sqlite3.Error, KeyError, ValueError):
        return World(READINGS, CURRENT), 0


def _as_it_is(record: "Record", at_most: int) -> tuple[World, int] | None:
    """What the projections were left with, where they are this record's and not beyond."""
    store = ReadModels(record.store).open(write=False)
    if store is None:
        return None
    with store, store.reading():
        checkpoint = store.checkpoint()
        if checkpoint is None or checkpoint.position > at_most or not belongs(record, checkpoint):
            return None
        return _taken_up(store, checkpoint.position)


def _as_it_was(record: "Record", position: int) -> tuple[World, int] | None:
    """What they knew at a position, from the nearest moment they keep before it; None while there are none: a plain
    fold from the start is less work than one that keeps rows for readers, and can be ended between two steps.
    """
    if position == 0 or not _are_there(record):
        return None
    store, base = opened(record, position)
    with store, store.reading():
        if base and store.world_below(base) is None:
            return None
        return _taken_up(store, position)


def _are_there(record: "Record") -> bool:
    store = ReadModels(record.store).open(write=False)
    if store is None:
        return False
    with store:
        return belongs(record, store.checkpoint())


def _taken_up(store: ProjectionStore, position: int) -> tuple[World, int] | None:
    state = take_up_whole(store)
    return None if state is None else (World(READINGS, CURRENT, state=state), position)
