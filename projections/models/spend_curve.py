"""What was spent over time: points of one curve from the first machine to now."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

import msgspec

from engine.money.words import money
from events.clock import format_time
from projections.store.reader_pool import Look

POINTS: Final = 120
Stretch = tuple[int, int, int]
"""(since, until, micro-dollars) at one price."""
_stretches: Final = msgspec.msgpack.Decoder(list[Stretch])


def burn(look: Look, points: int = POINTS) -> list[dict[str, object]]:
    """`{"at", "spent_usd"}` from the first machine's beginning to the moment looked from, at most so many."""
    found = [stretch for spans in look.view.store.vms.spans() for stretch in _stretches.decode(spans)]
    if not found:
        return []
    first, last = min(stretch[0] for stretch in found), max(look.now, *(stretch[1] for stretch in found))
    moments = moments_between(first, last, points)
    sums = spent_at(moments, found)
    return [{"at": format_time(at), "spent_usd": money(cost)} for at, cost in zip(moments, sums, strict=True)]


def moments_between(first: int, last: int, points: int) -> list[int]:
    """So many moments at most, evenly spaced, both ends among them; ascending, none twice."""
    steps = max(1, points - 1)
    return sorted({first + (last - first) * step // steps for step in range(steps + 1)})


def spent_at(moments: list[int], stretches: Iterable[Stretch]) -> list[int]:
    """What was spent by each of these moments (ascending), micro-dollars; at the end of all, every stretch whole."""
    partly, whole = [0.0] * len(moments), [0] * (len(moments) + 1)
    for since, until, cost in stretches:
        over = bisect_left(moments, until)
        whole[over] += cost
        for index in range(bisect_right(moments, since), over):
            partly[index] += cost * (moments[index] - since) / (until - since)
    return [round(part) + done for part, done in zip(partly, accumulate(whole[:-1]), strict=True)]
