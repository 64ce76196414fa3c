"""Complete readings of a list, put together from its pages: the only polls whose silence about a run or machine
means anything.
"""

from collections.abc import Sequence

import msgspec

from engine.providers.reading import Listing, Scope

_LISTS = frozenset({Listing.RUNS, Listing.VMS})
_KEPT = 16
"""Unfinished sweeps remembered; a recorder has one at a time."""


class Sweep(msgspec.Struct, kw_only=True):
    """Pages of one list, so far."""

    source: str
    started_at: int
    """Of the first page: what came later need not be in it."""
    ids: set[str]


def is_page(scope: Scope, listed: int) -> bool:
    """Whether an unfiltered answer of `listed` items is one page of several."""
    return scope.listing in _LISTS and not scope.filtered and (scope.page_after is not None or listed >= scope.limit)


def sweep_ended(
    open_sweeps: dict[str, Sweep], scope: Scope, source: str, started_at: int, ids: Sequence[str]
) -> Sweep | None:
    """The sweep a page completes, if it does; unfinished ones are kept in `open_sweeps` by the id they go on behind.

    `ids` are those of the page in its order. A page is the last if it is shorter than its limit.
    """
    if scope.listing not in _LISTS or scope.filtered:
        return None
    lane = f"{source}\0{scope.listing}\0{scope.project}\0"
    if scope.page_after is None:
        sweep = Sweep(source=source, started_at=started_at, ids=set(ids))
    else:
        behind = open_sweeps.pop(f"{lane}{scope.page_after}", None)
        if behind is None:
            return None
        sweep = behind
        sweep.ids.update(ids)
    if len(ids) < scope.limit:
        return sweep
    if ids:
        open_sweeps.pop(f"{lane}{ids[-1]}", None)
        open_sweeps[f"{lane}{ids[-1]}"] = sweep
        while len(open_sweeps) > _KEPT:
            open_sweeps.pop(next(iter(open_sweeps)))
    return None
