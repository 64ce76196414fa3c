"""A world as a process has it that started from a snapshot: all that is over is in segments."""

from steno.engine.fold.snapshot import dump_in_memory, load_in_memory, retire, segments_of
from steno.engine.state.segments import Segment
from steno.engine.state.world import World, dump, load

EVER = 1 << 62


def apart(state: World) -> World:
    """Loaded from the snapshot of a world, which may be loaded from one itself."""
    lazy = state if segments_of(state) else load(dump(state))
    contents: dict[str, bytes] = {}

    def read(segment: Segment) -> bytes:
        return contents[segment.digest]

    retire(lazy, EVER, read, newest=0)
    for cold in segments_of(lazy):
        contents.update((segment.digest, cold.content(segment)) for segment in cold.segments)
    return load_in_memory(dump_in_memory(lazy), read)
