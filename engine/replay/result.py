"""What a replay found, as a whole and step by step."""

from dataclasses import dataclass
from typing import Any

import msgspec

from engine.fold.change import Anomaly, Blind, Change
from engine.fold.run import Run
from engine.fold.sources import open_blind
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.money.bill import Bill
from engine.money.costs import Costs
from engine.money.reconcile import divergences
from engine.objects import anomaly_object, blind_object, run_object, vm_object
from engine.rules.sets import RuleSet
from events.poll import Poll

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A history folded to its end (or to where it was told to stop)."""

    rules: RuleSet
    events: int
    """Polls and intents folded."""
    position: int
    """The last event folded; 0 if there was none."""
    runs: tuple[Run, ...]
    """In order of first sight."""
    vms: tuple[Vm, ...]
    """In order of first sight."""
    bills: dict[str, Bill]
    """By vm_id; open ones are costed to the last poll."""
    costs: dict[str, int]
    """run_id → micro-dollars, ours; a run whose cost is unknown is left out."""
    anomalies: tuple[Anomaly, ...]
    blind: tuple[Blind, ...]
    """In order of their end; those still open last."""

    @classmethod
    def of(cls, world: World) -> "Replay":
        """What the world holds now."""
        state = world.state
        costs = Costs(state)
        still = (found for source in state.sources.values() if (found := open_blind(source)) is not None)
        return cls(
            rules=world.rules,
            events=state.events,
            position=state.position,
            runs=tuple(state.runs.values()),
            vms=tuple(state.vms.values()),
            bills=costs.bills(),
            costs=costs.of_runs(),
            anomalies=(*state.anomalies, *(divergences(state) if world.rules.metadata else ())),
            blind=(*state.blind, *still),
        )

    def to_json(self) -> JsonObject:
        """The object `steno replay --json` prints."""
        found: JsonObject = {
            "rules": self.rules.name,
            "events": self.events,
            "runs": [run_object(run, self.rules, self.costs.get(run.run_id)) for run in self.runs],
            "vms": [vm_object(vm, self.bills[vm.vm_id]) for vm in self.vms],
            "anomalies": [anomaly_object(anomaly) for anomaly in self.anomalies],
            "blind": [blind_object(blind) for blind in self.blind],
        }
        return msgspec.json.decode(msgspec.json.encode(found), type=JsonObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event, folded."""

    position: int
    at: int
    """Its `observed_at`."""
    poll: Poll | None
    """None for one of our own intents or outcomes."""
    changes: tuple[Change, ...]
    """What it changed, in order; empty for most polls."""
