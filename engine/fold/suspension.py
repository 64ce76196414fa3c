"""When a machine was suspended, from how long it was: a provider counts that time and dates nothing. Pure."""

from collections.abc import Iterable, Iterator

from engine.fold.vm import Pause


def paused(known: Iterable[Pause], total: int, *, since: int, low: int, until: int) -> tuple[Pause, ...]:
    """The pauses of a life from `since` to `until`, `total` together (as far as it is that long). What came since the
    poll before, asked at `low`, continues the last pause if that lasted up to then; else it lies just before `until`.
    What is too much is taken from the end.
    """
    found = [Pause(since=one.since, until=min(one.until, until)) for one in known if one.since < until]
    more = min(total, max(0, until - since)) - sum(one.until - one.since for one in found)
    while more < 0:
        last = found.pop()
        more += last.until - last.since
        if more > 0:
            found.append(Pause(since=last.since, until=last.since + more))
            more = 0
    if more and found and found[-1].until >= low:
        last = found.pop()
        length = min(more, until - last.until)
        found.append(Pause(since=last.since, until=last.until + length))
        more -= length
    for place in reversed(range(len(found) + 1)):
        begins = found[place - 1].until if place else since
        ends = found[place].since if place < len(found) else until
        length = min(more, ends - begins)
        if length > 0:
            found.insert(place, Pause(since=ends - length, until=ends))
            more -= length
    return tuple(_joined(found))


def _joined(pauses: Iterable[Pause]) -> Iterator[Pause]:
    before: Pause | None = None
    for one in pauses:
        if before is not None and before.until < one.since:
            yield before
            before = None
        before = one if before is None else Pause(since=before.since, until=one.until)
    if before is not None:
        yield before
