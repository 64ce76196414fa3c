"""Which position a moment stands for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from events.record import Record


def last_before(record: "Record", time: int, head: int) -> int:
    """The last position observed at or before `time`, found by halving: positions follow time but for clock steps."""
    low, high = 0, head
    while low < high:
        middle = (low + high + 1) // 2
        stored = next(iter(record.read(after=middle - 1, limit=1)))
        if stored.observed_at <= time:
            low = middle
        else:
            high = middle - 1
    return low
