"""A snapshot as the live world writes it, of any world."""

from steno.engine.fold.snapshot import dump_in_memory, segments_of
from steno.engine.fold.snapshot_store import SnapshotStore
from steno.engine.state.world import World


def save(store: SnapshotStore, state: World, *, every: int) -> bool:
    """Retire the state and replace the file, if that is due; whether it was replaced."""
    if not store.is_due(state.position, every):
        return False
    store.retire(state)
    return store.write(state.position, dump_in_memory(state), segments_of(state), every=every)
