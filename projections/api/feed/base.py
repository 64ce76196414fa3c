"""Where a fold of a record begins: at what the projections were left with, where they are this record's."""

import sqlite3
from typing import TYPE_CHECKING

from engine.rules.sets import CURRENT
from engine.world.world import World
from projections.folded import take_up_whole
from projections.generations import beside
from projections.projector import belongs
from projections.store import Store

if TYPE_CHECKING:
    from events.record import Record


def begun(record: "Record", at_most: int) -> tuple[World, int]:
    """A world of the record and the position it stands at, not beyond `at_most`; an empty one at 0 if need be."""
    store = Store.open(beside(record.path), write=False)
    if store is not None:
        with store:
            try:
                found = _taken_up(store, record, at_most)
            except (sqlite3.Error, KeyError, ValueError):
                found = None
            if found is not None:
                return found
    return World(CURRENT), 0


def _taken_up(store: Store, record: "Record", at_most: int) -> tuple[World, int] | None:
    with store.reading():
        checkpoint = store.checkpoint()
        if checkpoint is None or checkpoint.position > at_most or not belongs(record, checkpoint):
            return None
        state = take_up_whole(store)
        return None if state is None else (World(CURRENT, state=state), checkpoint.position)
