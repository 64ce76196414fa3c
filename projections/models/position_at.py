"""Times as positions in the record, and for archives as times of their own clocks."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.fold.archives import imported_at
from engine.fold.record_time import record_time

if TYPE_CHECKING:
    from engine.fold.world_codec import WorldState
    from events.store.record import Record

Stretch = tuple[int, int]  # the first and the last of some positions


class Beyond(NamedTuple):
    """How far archives behind a position were by their own clocks."""

    archives: tuple[Stretch, ...] = ()  # stretches of positions, in order
    time: int | None = None  # what is newer (microseconds, UTC) is not part of it


NOTHING: Final = Beyond()


def moment_at(record: "Record", time: int, head: int, state: "WorldState") -> tuple[int, Beyond]:
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
        found = last_before(record, time, last, state, after=first - 1)
        position = found if found >= first else position
        if found < last:
            break
    reached: list[Stretch] = []
    for first, last in archives:
        if first <= position:
            continue
        found = last_before(record, time, last, state, after=first - 1)
        if found == last and first == position + 1:
            position = last
        elif found >= first:
            reached.append((first, found))
    return position, Beyond(tuple(reached), time) if reached else NOTHING


def last_before(record: "Record", time: int, head: int, state: "WorldState", after: int = 0) -> int:
    """The last position in `(after, head]` observed by `time`, else `after`. A binary search: positions follow record
    time, except for imports.
    """

    def observed_at(position: int) -> int:
        return record_time(state, next(iter(record.read(after=position - 1, limit=1))))

    return after + bisect_right(range(after + 1, head + 1), time, key=observed_at)
