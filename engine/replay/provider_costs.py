"""The provider's own cost of runs, which a fold of a record leaves out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.fold.duplicates import listed_once
from engine.fold.run import Run
from engine.fold.tick import PollReader
from engine.providers.readings import READINGS

if TYPE_CHECKING:
    from events.store.record import Record


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
            shown = listed_once(PollReader(READINGS).read(position, record.poll(position)), reading)
            costs |= {one.facts.provider_id: one.cost for one in shown.runs}
        for run in there:
            run.cost = costs.get(run.provider_id or "")
