"""Replay of a record; positions are those of its events."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from engine.fold.duplicates import listed_once
from engine.fold.record_fold import RecordFold
from engine.fold.run import Run
from engine.fold.tick import PollReader, Until
from engine.fold.world import World
from engine.providers.readings import READINGS, rules_named
from engine.replay.result import Replay, Step

if TYPE_CHECKING:
    from engine.live.live_world import Progress
    from events.store.record import Record

_STEP: Final = 4_096  # positions between two reports of progress


def replay_record(
    record: "Record", rules: str = "current", until: Until | None = None, progress: "Progress | None" = None
) -> Replay:
    """Fold a record from its start to its end or `until`. UnknownRules: there is no rule set of that name."""
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


def fill_costs(record: "Record", runs: Iterable[Run]) -> None:
    """Read the provider's own cost of these runs from the newest poll that counts every submission."""
    wanted: dict[int, list[Run]] = {}
    for run in runs:
        if run.cost_at is not None:
            wanted.setdefault(run.cost_at, []).append(run)
    for position, there in wanted.items():
        (stored,) = record.read(after=position - 1, limit=1)
        asked = None if stored.scope is None else record.scope(stored.scope)
        reading = None if asked is None else READINGS.asked(asked.path, bytes(asked.req))[1]
        if reading is None:
            continue
        listed = [reading.costs(item) for item in record.items(position)]
        costs = {provider_id: cost for item in listed for provider_id, cost in item.items()}
        if len(costs) < sum(map(len, listed)):  # a run is listed twice: one of its rows counts
            shown = listed_once(PollReader(READINGS).read(position, record.poll(position)))
            costs |= {one.facts.provider_id: one.cost for one in shown.runs}
        for run in there:
            run.cost = costs.get(run.provider_id or "")


def step_record(record: "Record", rules: str = "current", until: Until | None = None) -> Iterator[Step]:
    """As `replay_record`, one event at a time, with its changes. No poll is skipped."""
    world = World(READINGS, rules_named(rules))
    reader = PollReader(READINGS)
    limit = until if until is not None else Until()
    for position, kind, _, observed_at, _, _, _ in record.scan(after=0, until=limit.position):
        if limit.at is not None and observed_at > limit.at:
            continue
        poll = None if kind > 2 else record.poll(position)
        if poll is None:
            changes = world.apply_event(position, observed_at, record.event(position))
        else:
            first = world.source(poll.source).archive is None
            tick = replace(reader.read(position, poll), imported=first and record.is_imported(position))
            changes = world.apply(tick)
        yield Step(position, observed_at, poll, changes)
