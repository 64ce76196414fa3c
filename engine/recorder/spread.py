"""Which recorder records which source: a pure function of what all of them see, so that they agree without a leader."""

from collections.abc import Collection, Mapping


def spread(sources: Collection[str], holders: Mapping[str, str], workers: Collection[str]) -> dict[str, str]:
    """The worker of each source: no worker has two sources more than another, and no more sources move than that needs.

    Args:
        sources: those to record.
        holders: source → the worker that holds its lease now; others than `workers` do not count.
        workers: the recorders that live; empty: no source has a worker.
    """
    held: dict[str, list[str]] = {one: [] for one in sorted(workers)}
    for source in sorted(sources):
        if holders.get(source) in held:
            held[holders[source]].append(source)
    least, more = divmod(len(sources), max(1, len(held)))
    order = sorted(held, key=lambda one: (-len(held[one]), one))  # who has most keeps one of the larger shares
    room = {one: least + (place < more) for place, one in enumerate(order)}
    found = {source: one for one in order for source in held[one][: room[one]]}
    free = iter(sorted(set(sources) - found.keys()))
    for one in order:
        for _ in range(room[one] - len(held[one])):
            found[next(free)] = one
    return found
