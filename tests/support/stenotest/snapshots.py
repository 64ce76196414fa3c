"""A snapshot as the live world writes it, of any world."""

from engine.fold.snapshot import dump_held, segments_of
from engine.fold.snapshot_store import SnapshotStore
from engine.fold.world_codec import WorldState


def save(store: SnapshotStore, state: WorldState, *, every: int) -> bool:
    """Retire the state and replace the file, if that is due; whether it was replaced."""
    if not store.is_due(state.position, every):
        return False
    store.retire(state)
    return store.write(state.position, dump_held(state), segments_of(state), every=every)
