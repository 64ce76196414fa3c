"""Replay of a record; positions are those of its events."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.fold.duplicates import runs_once
from engine.fold.record_fold import RecordFold
from engine.fold.run import Run
from engine.fold.tick import PollReader, Seen, Until, joined, seen
from engine.fold.world import World
from engine.providers.reading import Reading
from engine.providers.readings import READINGS, rules_named
from engine.replay.result import Replay, Step

if TYPE_CHECKING:
    from events.store.record import Record


def replay_record(record: "Record", rules: str = "current", until: Until | None = None) -> Replay:
    """Fold a record from its start to its end or `until`.

    Raises:
        UnknownRules: there is no rule set of that name.
    """
    world = world_of(record, rules, until)
    fill_costs(record, world.state.runs.values())
    return Replay.of(world)


def world_of(record: "Record", rules: str = "current", until: Until | None = None) -> World:
    """As `replay_record`, the world itself; the provider's costs are not read yet (`fill_costs`)."""
    world = World(READINGS, rules_named(rules))
    RecordFold(record, world).run(until)
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
        items = record.items(position)
        listed = [reading.costs(item) for item in items]
        costs = {provider_id: cost for item in listed for provider_id, cost in item.items()}
        if len(costs) < sum(map(len, listed)):
            costs |= _standing(reading, items)
        for run in there:
            run.cost = costs.get(run.provider_id or "")


def _standing(reading: Reading, items: Iterable[bytes]) -> dict[str, int | None]:
    """Provider's id → cost, of the rows that stand where an answer lists a run more than once."""
    shown: list[Seen] = []
    for item in items:
        with suppress(ValueError):
            shown += seen(reading, item)
    return {one.facts.provider_id: one.cost for one in runs_once(joined(reading, shown))}


def step_record(record: "Record", rules: str = "current", until: Until | None = None) -> Iterator[Step]:
    """As `replay_record`, one event at a time, with what each changed. No poll is skipped."""
    world = World(READINGS, rules_named(rules))
    reader = PollReader(READINGS)
    limit = until if until is not None else Until()
    for position, kind, _, observed_at, _, _, _ in record.scan(after=0, until=limit.position):
        if limit.passed(position, observed_at):
            continue
        if kind > 2:
            changes = world.apply_event(position, observed_at, record.event(position))
            yield Step(position=position, at=observed_at, poll=None, changes=changes)
        else:
            poll = record.poll(position)
            first = world.source(poll.source).archive is None
            tick = replace(reader.read(position, poll), imported=first and record.is_imported(position))
            changes = world.apply(tick)
            yield Step(position=position, at=observed_at, poll=poll, changes=changes)
