"""Two rule sets over one record: the runs whose history they change, and how they were found.

Let both see cases, and be equal but for their judge. If they mean the same of every case of a run, they make the same
history of it: at each position the run, and all that it depends on, is the same before and is moved alike. So only the
runs with a case on which they differ are folded again, under both, from the first such case on: by the polls of their
provider, from the nearest kept world before it to the last event about them and about what shares a machine with them.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, to_builtins

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.live.adopted_rules import adoptions
from steno.engine.money.costs import Costs, runs_on
from steno.engine.providers.registry import READINGS
from steno.engine.replay.result import Opinion, Replay, RunDifference, compare_runs
from steno.engine.rules.case_space import case_words, differ, sees_cases, smallest_parting
from steno.engine.rules.cases import RunCase
from steno.engine.rules.sets import CURRENT, RuleSet
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.engine.wire import Shape, Usd
from steno.events.store.record import Record
from steno.projections.answers.cases import CaseJudged, judgement, numbered_cases, showings
from steno.projections.read_models.past_worlds import world_above
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

Progress = Callable[[int, int], None]
_STEP: Final = 4_096  # positions folded between two looks whether all is settled
_SAME: Final = ("watch", "final", "metadata", "hears", "timeout")  # what two rule sets compared by case have in common


class RunChange(Shape, frozen=True, kw_only=True):
    """A run of which the two make another history."""

    run_id: str
    name: str | None
    verdict: Annotated[bool, Meta(description="Its verdict differs; else only the states on the way to it.")]
    position: Annotated[int | None, Meta(description="The first event at which the two part.")]
    left: Opinion | None
    right: Opinion | None


class CostChange(Shape, frozen=True, kw_only=True):
    """The costs of a run or machine under both; null: not known."""

    subject: str
    left: Usd | None
    right: Usd | None


class CaseParting(Shape, frozen=True, kw_only=True):
    """The smallest case on which the two differ."""

    case: Annotated[int | None, Meta(description="Its number in this record; null: no run showed it.")]
    words: str
    sees: dict[str, Any]
    left: CaseJudged
    right: CaseJudged


class RulesDiff(Shape, frozen=True, kw_only=True):
    """The changes if the second rule set takes the place of the first."""

    rules: tuple[str, str]
    how: Literal["cases", "full"]
    why: str
    events: Annotated[int, Meta(description="Events of the history.")]
    folded: Annotated[int, Meta(description="Events folded for this answer, of both rule sets together.")]
    changes: tuple[RunChange, ...]
    costs: tuple[CostChange, ...]
    smallest: CaseParting | None


def why_in_full(record: Record, left: RuleSet, right: RuleSet) -> str | None:
    """Why the two cannot be compared by cases; None: nothing prevents it."""
    if next(adoptions(record), None) is not None:
        return "the record adopted rules of its own, and its cases were seen under these"
    for rules in (left, right):
        if not sees_cases(rules):
            return f"{rules.name} sees more than cases"
        for name in _SAME:
            if getattr(rules, name) != getattr(CURRENT, name):
                return f"{rules.name} has another `{name}` than {CURRENT.name}"
    return None


def diff_by_cases(
    record: Record,
    view: View,
    left: RuleSet,
    right: RuleSet,
    progress: Progress | None = None,
    *,
    only: str | None = None,
) -> RulesDiff:
    """The difference by cases; `only`: the id of the one run that is of interest."""
    known = numbered_cases(view.state)
    # The cases were seen under `current`: where either parts from it, the case after that may be another.
    moved = {number for number, case in known.items() if differ(left, CURRENT, case) or differ(right, CURRENT, case)}
    windows = list(_windows(view, moved, only)) if moved else []
    joined = bool(windows) and _are_joined(view)
    folded, changes, costs = 0, dict[str, RunChange](), dict[str, CostChange]()
    for number, window in enumerate(windows):
        with world_above(record, window.begin - 1) as world, world_above(record, window.begin - 1) as other:
            before = world.events
            polls = None if joined else _polls_of(record, window)
            sides = tuple(_fold(record, *side, polls) for side in ((world, left), (other, right)))
            _until_settled(sides, window, view.position)
            folded += sum(side.world.state.events - before for side in sides)
            for change in _changes(sides, window):
                changes.setdefault(change.run_id, change)
            for cost in _cost_changes(*(_costs_of(side, window) for side in sides)):
                costs.setdefault(cost.subject, cost)
        if progress is not None:
            progress(number + 1, len(windows))
    chosen = [change for change in changes.values() if only in (None, change.run_id)]
    runs = sum(len(window.first) for window in windows)
    return RulesDiff(
        rules=(left.name, right.name),
        how="cases",
        why=f"cases compared: {len(known)}, runs folded again: {runs}",
        events=view.state.events,
        folded=folded,
        changes=tuple(chosen),
        costs=tuple(costs.values()),
        smallest=None if chosen else _smallest(left, right, known),
    )


def diff_in_full(left: Replay, right: Replay, why: str) -> RulesDiff:
    """The difference of two whole folds."""
    rules = left.rules, right.rules
    changes = tuple(_change(*pair) for pair in compare_runs(left.runs, right.runs, *rules))
    lefts, rights = (
        _subjects(side.costs, {vm: bill.cost for vm, bill in side.bills.items()}) for side in (left, right)
    )
    return RulesDiff(
        rules=(rules[0].name, rules[1].name),
        how="full",
        why=why,
        events=left.events,
        folded=left.events + right.events,
        changes=changes,
        costs=tuple(_cost_changes(lefts, rights)),
        smallest=_smallest(*rules, {}) if all(map(sees_cases, rules)) and not changes else None,
    )


# -- the events that are folded again


class _Window(msgspec.Struct):
    """Some positions, and the runs whose history may differ in them."""

    begin: int
    end: int
    first: dict[str, int]  # run id → the first case on which the two may differ
    machines: set[str]
    providers: set[str]


_Sides = tuple[RecordFold, ...]
"""The folds of a window under both rule sets."""


def _windows(view: View, moved: set[int], only: str | None) -> Iterator[_Window]:
    """Windows in order; those that meet, or begin at the same kept world, are one."""
    store, current = view.store, None
    run = None if only is None else _run(store, only)
    alone = run is not None and not (run.tasks or run.schedule or run.is_schedule)  # it depends on no other run
    head = view.position
    for place, position in sorted(showings(view, moved, only if alone else None), key=itemgetter(1)):
        window = _window_of(store, store.cases.run_id(place), position, head)
        if only is not None and only not in window.first:
            continue
        if current is None or (store.moment_before(window.begin - 1) or 0) > current.end:
            if current is not None:
                yield current
            current = window
            continue
        current.end = max(current.end, window.end)
        current.first = window.first | current.first
        current.machines |= window.machines
        current.providers |= window.providers
    if current is not None:
        yield current


def _window_of(store: ProjectionStore, run_id: str, begin: int, head: int) -> _Window:
    """From a case on to the last event about the run, what it is a part of, its machines, and the runs on these."""
    run = _run(store, run_id)
    related = [run, *(_run(store, whole) for whole in (run.array, run.schedule) if whole is not None)]
    rows = map(store.vms.get, dict.fromkeys(run.links.values()))
    vms = [row.decoded for row in rows if row is not None]
    others = [
        _run(store, other)
        for vm in vms
        for other in runs_on(vm)
        if other != run_id and store.runs.get(other) is not None
    ]
    last = max(thing.last_position for thing in (*related, *vms, *others))
    open_ = not run.terminal or any(not whole.terminal for whole in related) or any(vm.billed for vm in vms)
    return _Window(
        begin=begin,
        end=head if open_ else min(head, max(last, *(run.evidence or (last,)))),
        first={related_run.run_id: begin for related_run in related},
        machines={vm.vm_id for vm in vms},
        providers={thing.provider for thing in (*related, *vms)},
    )


def _run(store: ProjectionStore, run_id: str) -> Run:
    row = store.runs.get(run_id)
    assert row is not None  # noqa: S101 - its log is there
    return row.decoded


def _fold(record: Record, state: World, rules: RuleSet, polls: list[str] | None) -> RecordFold:
    state.rules = rules.name
    return RecordFold(record, Fold(READINGS, rules, state=state), polls_of=polls)


def _are_joined(view: View) -> bool:
    """Clocks, or machines that are runs of another provider, join the providers."""
    jumped = any(note.kind is AnomalyKind.CLOCK_JUMP for note in view.store.anomalies())
    return jumped or bool(view.state.carried)


def _polls_of(record: Record, window: _Window) -> list[str]:
    """The streams that can say something of the window's runs."""
    sources = (name for name, _ in record.streams() if name.startswith("source/"))
    return [name for name in sources if name.removeprefix("source/").partition("/")[0] in window.providers]


def _until_settled(sides: _Sides, window: _Window, head: int) -> None:
    """Fold the window, and on while a run of it may still come to differ in another way."""
    while True:
        for side in sides:
            side.run(Until(position=window.end))
        if window.end >= head or all(_is_settled(sides, run_id) for run_id in window.first):
            return
        window.end = min(head, window.end + _STEP)


def _is_settled(sides: _Sides, run_id: str) -> bool:
    """Over, or lost, under both; or in both the same: what comes then is the same too."""
    runs = [side.world.state.runs.get(run_id) for side in sides]
    states = {run and (run.state, run.reason, run.exit_status) for run in runs}
    return len(states) == 1 or all(run is None or run.terminal or run.state is State.LOST for run in runs)


# -- what differs


def _changes(sides: _Sides, window: _Window) -> Iterator[RunChange]:
    # A fold keeps the runs in memory that it had in its hands; it changed no other.
    left, right = ([run for run in side.world.state.runs.memory.values() if run.carries is None] for side in sides)
    compared = compare_runs(left, right, *(side.world.rules for side in sides))
    for difference, verdict in sorted(compared, key=lambda pair: window.first.get(pair[0].run_id, 0)):
        yield _change(difference, verdict, window.first.get(difference.run_id))


def _change(difference: RunDifference, verdict: bool, first: int | None = None) -> RunChange:
    evidence = [at for opinion in (difference.left, difference.right) if opinion for at in opinion.evidence[-1:]]
    return RunChange(
        run_id=difference.run_id,
        name=difference.name,
        verdict=verdict,
        position=difference.parts_at or first or min(evidence, default=None),
        left=difference.left,
        right=difference.right,
    )


def _cost_changes(lefts: Mapping[str, int | None], rights: Mapping[str, int | None]) -> Iterator[CostChange]:
    for subject in dict.fromkeys((*lefts, *rights)):
        if lefts.get(subject) != rights.get(subject):
            yield CostChange(subject=subject, left=lefts.get(subject), right=rights.get(subject))


def _costs_of(side: RecordFold, window: _Window) -> dict[str, int | None]:
    """The costs of the window's runs and machines, and of the runs on these."""
    state, costs = side.world.state, Costs(side.world.state)
    machines = [vm for vm_id in sorted(window.machines) if (vm := state.vms.get(vm_id)) is not None]
    run_ids = dict.fromkeys((*window.first, *(run_id for vm in machines for run_id in runs_on(vm))))
    bills = {vm.vm_id: costs.bill(vm.vm_id).cost for vm in machines}
    return _subjects({run_id: costs.of_run(run_id) for run_id in run_ids}, bills)


def _subjects(runs: Mapping[str, int | None], vms: Mapping[str, int | None]) -> dict[str, int | None]:
    """Costs by the names of what they are of."""
    return {f"run/{run_id}": cost for run_id, cost in runs.items()} | {f"vm/{vm}": cost for vm, cost in vms.items()}


def _smallest(left: RuleSet, right: RuleSet, known: dict[int, RunCase]) -> CaseParting | None:
    case = smallest_parting(left, right, known.values())
    if case is None:
        return None
    return CaseParting(
        case=next((number for number, seen in known.items() if seen == case), None),
        words=case_words(case),
        sees=to_builtins(case),
        left=judgement(left, case),
        right=judgement(right, case),
    )
