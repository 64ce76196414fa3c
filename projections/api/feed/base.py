"""Where a fold of a record begins: at what the projections were left with, where they are this record's."""

import sqlite3
from typing import TYPE_CHECKING

from engine.rules.sets import CURRENT
from engine.world.world import World
from projections.folded import take_up_whole
from projections.projector import RULES
from projections.store import Checkpoint, Store, beside

if TYPE_CHECKING:
    from events.record import Record

_TRIES = 5


def begun(record: "Record", at_most: int) -> tuple[World, int]:
    """A world of the record and the position it stands at, not beyond `at_most`; an empty one at 0 if need be."""
    for _ in range(_TRIES):
        store = Store.open(beside(record.path), write=False)
        if store is None:
            break
        with store:
            before = store.checkpoint()
            if before is None or not _fits(before, record, at_most):
                break
            try:
                state = take_up_whole(store)
            except (sqlite3.Error, KeyError, ValueError):
                break
            # Written on meanwhile, it may be half of one and half of the other.
            if state is not None and store.checkpoint() == before:
                return World(CURRENT, state=state), before.position
    return World(CURRENT), 0


def _fits(checkpoint: Checkpoint, record: "Record", at_most: int) -> bool:
    made_of = (checkpoint.version, checkpoint.rules, checkpoint.record)
    return made_of == (Checkpoint(rules="").version, RULES, record.id) and checkpoint.position <= at_most
