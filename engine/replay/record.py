"""Replay of a record; positions are those of its events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from engine.fold.record_fold import RecordFold
from engine.fold.tick import PollReader, Until
from engine.fold.world import World
from engine.providers.readings import READINGS, rules_named
from engine.replay.join import folded_apart
from engine.replay.provider_costs import fill_costs
from engine.replay.result import Replay, Step

if TYPE_CHECKING:
    from engine.live.live_world import Progress
    from events.pool import WorkPool
    from events.store.record import Record

_STEP: Final = 4_096  # positions between two reports of progress


def replay_record(
    record: "Record",
    rules: str = "current",
    until: Until | None = None,
    progress: "Progress | None" = None,
    pool: "WorkPool | None" = None,
) -> Replay:
    """Fold a record from its start to its end or `until`, in pieces in a pool if the record has independent ones.

    UnknownRules: there is no rule set of that name.
    """
    if pool is not None:
        joined = folded_apart(record, rules, until, progress, pool)
        if joined is not None:
            return Replay(joined)
    world = world_of(record, rules, until, progress)
    fill_costs(record, world.state.runs.values())
    return Replay(world)


def world_of(
    record: "Record", rules: str = "current", until: Until | None = None, progress: "Progress | None" = None
) -> World:
    """As `replay_record`, the world itself; the provider's costs are not read yet (`fill_costs`)."""
    world = World(READINGS, rules_named(rules))
    fold, limit = RecordFold(record, world), until if until is not None else Until()
    if progress is not None:
        end = record.head().position if limit.position is None else min(limit.position, record.head().position)
        for position in range(_STEP, end, _STEP):
            fold.run(Until(position=position, at=limit.at))
            progress(position, end)
    fold.run(limit)
    return world


def step_record(record: "Record", rules: str = "current", until: Until | None = None) -> Iterator[Step]:
    """As `replay_record`, one event at a time, with its changes. No poll is skipped."""
    world = World(READINGS, rules_named(rules))
    fold, reader = RecordFold(record, world), PollReader(READINGS)
    limit = until if until is not None else Until()
    for position, kind, stream, wall, took, _, _, clock in record.scan(after=0, until=limit.position):
        observed_at = fold.dated(position, kind, stream, wall, clock)
        if limit.at is not None and observed_at > limit.at:
            continue
        poll = None if kind > 2 else record.poll(position)
        if poll is None:
            changes = world.apply_event(position, observed_at, record.event(position))
        else:
            first = world.source(poll.source).archive is None
            read, imported = reader.read(position, poll), first and record.is_imported(position)
            tick = replace(read, started_at=observed_at - took, observed_at=observed_at, imported=imported)
            changes = world.apply(tick)
        yield Step(position, observed_at, poll, changes)
