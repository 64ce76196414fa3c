"""Folds a record's pieces in a pool and joins them to the world that one fold of all of it gives."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from engine.fold.tick import Until
from engine.fold.world import World
from engine.fold.world_codec import WorldState, load
from engine.providers.readings import READINGS, rules_named
from engine.replay.split import Folded, HistoryPiece, fold_piece, merged, plan, together

if TYPE_CHECKING:
    from engine.live.live_world import Progress
    from events.pool import WorkPool
    from events.store.record import Record

T = TypeVar("T")
_decode = msgspec.msgpack.Decoder(Folded).decode


def folded_apart(
    record: "Record", rules: str, until: Until | None, progress: "Progress | None", pool: "WorkPool"
) -> World | None:
    """The world after a record's end or `until`; None: it has no pieces, or is too short for them."""
    limit, head = until if until is not None else Until(), record.head().position
    end = head if limit.position is None else min(limit.position, head)
    set_ = rules_named(rules)
    if end < pool.least or set_.timeout is not None:  # the time at any source ends the runs of all
        return None
    pieces = plan(record, rules, replace(limit, position=end), pool.size)
    if len(pieces) < 2:
        return None
    ready, total = 0, sum(one.weight for one in pieces)

    def done(piece: HistoryPiece) -> None:
        nonlocal ready
        ready = min(ready + piece.weight, total)
        if progress is not None:
            progress(ready, total)

    folded = [_decode(one) for one in pool.map(fold_piece, pieces, done)]
    while True:
        worlds = [load(one.world) for one in folded]
        groups = together(pieces, folded, worlds)
        if len(groups) == len(pieces):
            return World(READINGS, set_, joined(pieces, folded, worlds))
        again = {number: merged(pieces[one] for one in group) for number, group in enumerate(groups) if len(group) > 1}
        found = dict(zip(again, map(_decode, pool.map(fold_piece, list(again.values()), done)), strict=True))
        folded = [found.get(number) or folded[group[0]] for number, group in enumerate(groups)]
        pieces = tuple(again.get(number) or pieces[group[0]] for number, group in enumerate(groups))


def joined(pieces: Sequence[HistoryPiece], folded: Sequence[Folded], worlds: Sequence[WorldState]) -> WorldState:
    """One world of independent pieces: what a result shows, in the order of the whole history. Pure."""
    owner = {name: number for number, piece in enumerate(pieces) for name in piece.sources}
    sources = (
        (at, item)
        for number, (one, world) in enumerate(zip(folded, worlds, strict=True))
        for at, item in zip(one.sources_at, world.sources.items(), strict=True)
        if owner.get(item[0], 0) == number
    )
    shared = folded[0].own_events  # every piece folded these
    return WorldState(
        rules=worlds[0].rules,
        position=max(world.position for world in worlds),
        events=shared + sum(world.events - shared for world in worlds),
        last_at=max((world.last_at for world in worlds if world.last_at is not None), default=None),
        runs=dict(_in_order((one.runs_at, world.runs.items()) for one, world in zip(folded, worlds, strict=True))),
        vms=dict(_in_order((one.vms_at, world.vms.items()) for one, world in zip(folded, worlds, strict=True))),
        sources=dict(item for _, item in sorted(sources, key=lambda one: one[0])),
        policies=worlds[0].policies,
        clock_steps=sorted({step for world in worlds for step in world.clock_steps}),
        anomalies=sorted((one for world in worlds for one in world.anomalies), key=lambda one: one.position),
        blind=list(_in_order((one.blind_at, world.blind) for one, world in zip(folded, worlds, strict=True))),
    )


def _in_order(pieces: Iterable[tuple[Sequence[int], Iterable[T]]]) -> Iterable[T]:
    """The things of all pieces by their positions. One event makes things of one piece only."""
    found = [one for positions, things in pieces for one in zip(positions, things, strict=True)]
    return (thing for _, thing in sorted(found, key=lambda one: one[0]))
