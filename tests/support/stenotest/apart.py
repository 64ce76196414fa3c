"""A world as a process has it that started from a snapshot: all that is over is in segments."""

from engine.fold.segments import Segment
from engine.fold.snapshot import dump_held, load_held, retire, segments_of
from engine.fold.world_codec import WorldState, dump, load

EVER = 1 << 62


def apart(state: WorldState) -> WorldState:
    """Loaded from the snapshot of a world, which may be loaded from one itself."""
    lazy = state if segments_of(state) else load(dump(state))
    contents: dict[str, bytes] = {}

    def read(segment: Segment) -> bytes:
        return contents[segment.digest]

    retire(lazy, EVER, read, newest=0)
    for cold in segments_of(lazy):
        contents.update((segment.digest, cold.content(segment)) for segment in cold.segments)
    return load_held(dump_held(lazy), read)
