"""What a replay found, as a whole and step by step, and where two rule sets disagree about one history."""

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
from engine.objects import blind_object, run_object, vm_object
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
            "anomalies": self.anomalies,
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


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule set says of a run."""

    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One run two rule sets see differently; None where a rule set does not know the run."""

    run_id: str
    name: str | None
    parts_at: int | None
    """The first position at which their states differ; None if only reason or exit status do."""
    left: Opinion | None
    right: Opinion | None


def diff(left: Replay, right: Replay) -> tuple[RunDifference, ...]:
    """The runs whose state, reason or exit status differ, in order of first sight; empty if the rule sets agree."""
    lefts, rights = ({run.run_id: run for run in replay.runs} for replay in (left, right))
    found = []
    for run_id in dict.fromkeys((*lefts, *rights)):
        one, other = lefts.get(run_id), rights.get(run_id)
        if _said(one, left) != _said(other, right):
            found.append(
                RunDifference(
                    run_id=run_id,
                    name=(one or rights[run_id]).name,
                    parts_at=_parting(one, other),
                    left=_opinion(one, left),
                    right=_opinion(other, right),
                )
            )
    return tuple(found)


def diff_object(left: Replay, right: Replay) -> JsonObject:
    """What `steno replay --diff --json` prints."""
    return {
        "rules": [left.rules.name, right.rules.name],
        "events": left.events,
        "runs": len({run.run_id for run in (*left.runs, *right.runs)}),
        "differences": diff(left, right),
    }


def _said(run: Run | None, replay: Replay) -> tuple[object, ...] | None:
    return None if run is None else (run.state, run.reason, run.exit_status if replay.rules.metadata else None)


def _opinion(run: Run | None, replay: Replay) -> Opinion | None:
    if run is None:
        return None
    return Opinion(
        state=run.state.value,
        reason=None if run.reason is None else run.reason.value,
        exit_status=run.exit_status if replay.rules.metadata else None,
        rule=run.rule,
        evidence=run.evidence,
    )


def _parting(left: Run | None, right: Run | None) -> int | None:
    """The first position after which the two histories of states are not the same."""
    if left is None or right is None:
        return None
    lefts, rights = ({step.position: step.after for step in run.transitions} for run in (left, right))
    one = other = None
    for position in sorted({*lefts, *rights}):
        one, other = lefts.get(position, one), rights.get(position, other)
        if one is not other:
            return position
    return None
