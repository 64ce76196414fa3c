"""The result of a replay, as a whole and step by step, and where two rule sets disagree about one history."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader, listed_once
from steno.engine.money.costs import Costs, charges
from steno.engine.money.reconcile import divergences
from steno.engine.money.use_split import UseSplitter, split_of_run
from steno.engine.objects import RunObject, VmObject, blind_object, run_object, vm_object
from steno.engine.providers.registry import READINGS
from steno.engine.rules.sets import RuleSet
from steno.engine.state.changes import Change
from steno.engine.state.run import Run
from steno.engine.state.sources import open_blind
from steno.events.poll import Poll

if TYPE_CHECKING:
    from steno.events.store.record import Record


JsonObject = dict[str, Any]


class Replay:
    """A history folded to its end, or to its limit."""

    def __init__(self, world: Fold) -> None:
        state, costs = world.state, Costs(world.state)
        still = (gap for source in state.sources.values() if (gap := open_blind(source)) is not None)
        self.rules = world.rules
        self.events, self.position = state.events, state.position
        """How many polls and intents were folded, and the position of the last; 0 if there was none."""
        self.runs = tuple(run for run in state.runs.all() if run.carries is None)
        self.vms = tuple(state.vms.all())
        """In order of first sight. A run that carries another is a part of the other."""
        self.bills = costs.bills()  # by vm_id; open bills are costed to the last poll
        self.costs = costs.of_runs()  # run_id → micro-dollars, ours, of runs with a known cost
        self._costs = costs
        self.anomalies = (*state.anomalies, *(divergences(state) if world.rules.metadata else ()))
        self.blind = (*state.blind, *still)  # in order of their end; those still open last

    def run_objects(self) -> list[RunObject]:
        uses = ((run, split_of_run(self._costs, run.run_id)) for run in self.runs)
        return [run_object(run, self.rules, self.costs.get(run.run_id), use) for run, use in uses]

    def vm_objects(self) -> list[VmObject]:
        splitter, bills = UseSplitter(self._costs.state), self.bills
        return [vm_object(vm, bills[vm.vm_id], splitter.total(charges(bills[vm.vm_id]))) for vm in self.vms]

    def to_json(self) -> JsonObject:
        """The object `steno replay --json` prints."""
        answer: JsonObject = {
            "rules": self.rules.name,
            "events": self.events,
            "runs": self.run_objects(),
            "vms": self.vm_objects(),
            "anomalies": self.anomalies,
            "blind": [blind_object(blind) for blind in self.blind],
        }
        return msgspec.json.decode(msgspec.json.encode(answer), type=JsonObject)


class Step(NamedTuple):
    position: int
    at: int  # its `observed_at`
    poll: Poll | None  # None for one of our own intents or outcomes
    changes: tuple[Change, ...]  # in order; empty for most polls


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """A rule set's judgement of a run."""

    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]


class RunDifference(msgspec.Struct, frozen=True):
    """A run that two rule sets judge differently; None: a rule set does not know the run."""

    run_id: str
    name: str | None
    parts_at: int | None  # the first position where their states differ; None: only reason or exit status do
    left: Opinion | None
    right: Opinion | None


def diff(left: Replay, right: Replay) -> tuple[RunDifference, ...]:
    """The runs whose state, reason or exit status differ, in order of first sight; empty if the rule sets agree."""
    compared = compare_runs(left.runs, right.runs, left.rules, right.rules)
    return tuple(difference for difference, verdict_differs in compared if verdict_differs)


def compare_runs(
    left: Iterable[Run], right: Iterable[Run], left_rules: RuleSet, right_rules: RuleSet
) -> Iterator[tuple[RunDifference, bool]]:
    """The runs whose verdict differs, and those that only came to it another way: (run, whether its verdict does)."""
    lefts, rights = ({run.run_id: run for run in runs} for runs in (left, right))
    for run_id in dict.fromkeys((*lefts, *rights)):
        first, other = lefts.get(run_id), rights.get(run_id)
        opinions = _opinion(first, left_rules), _opinion(other, right_rules)
        verdicts = {opinion and (opinion.state, opinion.reason, opinion.exit_status) for opinion in opinions}
        parts_at = _parting(first, other)
        if len(verdicts) > 1 or parts_at is not None:
            yield RunDifference(run_id, (first or rights[run_id]).name, parts_at, *opinions), len(verdicts) > 1


def diff_object(left: Replay, right: Replay) -> JsonObject:
    """The object that `steno replay --diff --json` prints."""
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
    state = other = None
    for position in sorted({*lefts, *rights}):
        state, other = lefts.get(position, state), rights.get(position, other)
        if state is not other:
            return position
    return None


# -- the provider's own cost of runs, which a fold of a record leaves out


def fill_costs(record: "Record", runs: Iterable[Run]) -> None:
    """Read the provider's own cost of these runs from the newest poll that counts every submission."""
    wanted: dict[int, list[Run]] = {}
    for run in runs:
        if run.cost_at is not None:
            wanted.setdefault(run.cost_at, []).append(run)
    for position, there in wanted.items():
        (stored,) = record.read(after=position - 1, limit=1)
        scope = None if stored.scope is None else record.scope(stored.scope)
        reading = None if scope is None else READINGS.asked(scope.path, bytes(scope.req))[1]
        if reading is None:
            continue
        listed = [reading.costs(item) for item in record.items(position)]
        costs = {provider_id: cost for item in listed for provider_id, cost in item.items()}
        if len(costs) < sum(map(len, listed)):  # a run is listed twice: one of its rows counts
            tick = listed_once(PollReader(READINGS).read(position, record.poll(position)), reading)
            costs |= {row.facts.provider_id: row.cost for row in tick.runs}
        for run in there:
            run.cost = costs.get(run.provider_id or "")
