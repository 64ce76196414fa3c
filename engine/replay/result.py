"""The result of a replay, as a whole and step by step, and where two rule sets disagree about one history."""

from typing import Any, NamedTuple

import msgspec

from engine.fold.change import Change
from engine.fold.run import Run
from engine.fold.sources import open_blind
from engine.fold.world import World
from engine.money.costs import Costs
from engine.money.reconcile import divergences
from engine.objects import blind_object, run_object, vm_object
from engine.rules.sets import RuleSet
from events.poll import Poll

JsonObject = dict[str, Any]


class Replay:
    """A history folded to its end, or to its limit."""

    def __init__(self, world: World) -> None:
        state, costs = world.state, Costs(world.state)
        still = (found for source in state.sources.values() if (found := open_blind(source)) is not None)
        self.rules = world.rules
        self.events, self.position = state.events, state.position
        """How many polls and intents were folded, and the last one; 0 if there was none."""
        self.runs = tuple(run for run in state.runs.values() if run.carries is None)
        self.vms = tuple(state.vms.values())
        """In order of first sight. A run that carries another is a part of that one."""
        self.bills = costs.bills()  # by vm_id; open ones are costed to the last poll
        self.costs = costs.of_runs()  # run_id → micro-dollars, ours, of runs with a known cost
        self.anomalies = (*state.anomalies, *(divergences(state) if world.rules.metadata else ()))
        self.blind = (*state.blind, *still)  # in order of their end; those still open last

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


class Step(NamedTuple):
    position: int
    at: int  # its `observed_at`
    poll: Poll | None  # None for one of our own intents or outcomes
    changes: tuple[Change, ...]  # in order; empty for most polls


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule set says of a run."""

    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]


class RunDifference(msgspec.Struct, frozen=True):
    """One run that two rule sets judge differently; None: a rule set does not know the run."""

    run_id: str
    name: str | None
    parts_at: int | None  # the first position where their states differ; None: only reason or exit status do
    left: Opinion | None
    right: Opinion | None


def diff(left: Replay, right: Replay) -> tuple[RunDifference, ...]:
    """The runs whose state, reason or exit status differ, in order of first sight; empty if the rule sets agree."""
    lefts, rights = ({run.run_id: run for run in replay.runs} for replay in (left, right))
    found = []
    for run_id in dict.fromkeys((*lefts, *rights)):
        one, other = lefts.get(run_id), rights.get(run_id)
        opinions = _opinion(one, left.rules), _opinion(other, right.rules)
        if len({said and (said.state, said.reason, said.exit_status) for said in opinions}) > 1:
            name, parts_at = (one or rights[run_id]).name, _parting(one, other)
            found.append(RunDifference(run_id, name, parts_at, *opinions))
    return tuple(found)


def diff_object(left: Replay, right: Replay) -> JsonObject:
    """What `steno replay --diff --json` prints."""
    return {
        "rules": [left.rules.name, right.rules.name],
        "events": left.events,
        "runs": len({run.run_id for run in (*left.runs, *right.runs)}),
        "differences": diff(left, right),
    }


def _opinion(run: Run | None, rules: RuleSet) -> Opinion | None:
    if run is None:
        return None
    return Opinion(
        state=run.state.value,
        reason=None if run.reason is None else run.reason.value,
        exit_status=run.exit_status if rules.metadata else None,
        rule=run.rule,
        evidence=run.evidence,
    )


def _parting(left: Run | None, right: Run | None) -> int | None:
    """The first position after which the two histories of states differ."""
    if left is None or right is None:
        return None
    lefts, rights = ({step.position: step.after for step in run.transitions} for run in (left, right))
    one = other = None
    for position in sorted({*lefts, *rights}):
        one, other = lefts.get(position, one), rights.get(position, other)
        if one is not other:
            return position
    return None
