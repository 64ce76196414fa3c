"""An array that Steno submitted: one request, and a run for each of its tasks. What the provider says is about tasks;
the array's state, verdict and times follow from theirs.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from steno.engine.fold import chains, run_step
from steno.engine.fold.step import FoldStep
from steno.engine.rules.sets import Verdict
from steno.engine.state.facts import RunFacts
from steno.engine.state.reading import Seen
from steno.engine.state.run import Run
from steno.engine.state.state_machines import TRIGGER_TO, Trigger
from steno.engine.state.states import PROGRESS, Reason, State
from steno.engine.state.world import World

_ENDING = PROGRESS.index(State.FINISHING)
_FIRST = (State.FAILED, State.STOPPED, State.SUCCEEDED)  # the verdict of an array: the first that one of its tasks has


def tasks_of(state: World, array: Run) -> list[Run]:
    """The tasks of an array that are known, by their number."""
    tasks = [state.runs[task_id] for task_id in array.tasks]
    return sorted(tasks, key=lambda run: (run.facts is None or run.facts.task is None, run.facts and run.facts.task))


def join(turn: FoldStep, task: Run) -> None:
    """Record which array of ours a task is of, on the proof that makes a run ours."""
    facts, state = task.facts, turn.state
    if facts is None or facts.group is None or task.array is not None or task.archive is not None:
        return
    marked = state.runs.get(facts.mark or "")
    for array in chains.behind(state, f"{task.provider}/{facts.group}") or ([] if marked is None else [marked]):
        if _is_of(array, task):
            task.array, array.tasks = array.run_id, (*array.tasks, task.run_id)
            turn.changed(task, len(turn.changes))
            return


def _is_of(array: Run, task: Run) -> bool:
    facts = task.facts
    assert facts is not None  # noqa: S101 - of `join`
    if array.requested_at is None or array.provider != task.provider or array.facts is not None:
        return False
    if array.provider_id is None:  # the answer to its submission is not known yet
        return array.intended is not None and facts.mark == array.run_id
    return array.provider_id == facts.group and bool(chains.is_submission(array, facts))


def note(state: World, task: Run) -> None:
    """Remember that there is an array, by one of its tasks."""
    if task.facts is not None and task.facts.group is not None:
        state.arrays[_key(task.provider, task.facts.group, task.facts)] = None


def listed(state: World, provider: str, runs: Sequence[Seen]) -> Iterator[Seen]:
    """The observations of an answer, but not what the provider keeps of an array once no task waits any more: a row
    with the array's id. Where that says how they ended, it is the row of each task that has none of its own.
    """
    own = {seen.facts.provider_id for seen in runs}
    for seen in runs:
        rest, facts = seen.facts, seen.facts
        began = any(attempt.hosts is not None for attempt in rest.newest)
        of_array = _key(provider, rest.provider_id, rest) in state.arrays
        if rest.group is not None or rest.state is not State.FINISHING or began or not of_array:
            yield seen
            continue
        for task in state.runs.open() if rest.jobs else ():
            known = task.facts
            if known is None or known.group != rest.provider_id or known.provider_id in own:
                continue
            if task.provider == provider and _key(provider, known.group, known) == _key(provider, known.group, rest):
                facts = replace(rest, provider_id=known.provider_id, group=known.group, task=known.task)
                yield replace(seen, facts=facts)


def _key(provider: str, array: str, facts: RunFacts) -> str:
    """An array's id can come again: its time of submission tells one from another."""
    return f"{provider}/{facts.project}/{array}@{facts.submitted_at}"


def leave(turn: FoldStep, array: Run) -> None:
    """The provider gave the array an id: tasks of another array, which copied its mark, are not of it."""
    for task in tasks_of(turn.state, array):
        if task.facts is None or task.facts.group != array.provider_id:
            task.array, array.tasks = None, tuple([task_id for task_id in array.tasks if task_id != task.run_id])


def follow(turn: FoldStep, array: Run) -> None:
    """Move an array to where its tasks are: the most advanced task that has not ended, but never back. It has ended
    once all have.
    """
    tasks, rule = tasks_of(turn.state, array), f"{turn.rules.name}/array"
    count = 1 if array.terms is None else array.terms.tasks
    array.last_position, array.last_at = turn.position, turn.at
    array.submitted_at = min((task.submitted_at for task in tasks if task.submitted_at is not None), default=None)
    array.started_at = min((task.started_at for task in tasks if task.started_at is not None), default=None)
    begin = len(turn.changes)
    if len(tasks) >= count and all(task.terminal for task in tasks):
        run_step.settle(turn, array, _verdict(array, tasks, rule))
        array.finished_at = max((task.finished_at for task in tasks if task.finished_at is not None), default=turn.at)
    else:
        if array.terminal:  # a task of it was tried again
            run_step.step(turn, array, Trigger.REOPEN, rule)
            array.reason = array.exit_status = array.finished_at = None
        there = [PROGRESS.index(task.state) for task in tasks if task.state in PROGRESS]
        # It is not ending while another task is to come.
        ending = len(tasks) >= count and all(progress == _ENDING for progress in there)
        reached = max(there, default=0) if ending else min(max(there, default=0), _ENDING - 1)
        before = PROGRESS.index(array.state) if array.state in PROGRESS else 0
        if reached > before:
            run_step.step(turn, array, TRIGGER_TO[PROGRESS[reached]], rule)
    turn.changed(array, begin)


def _verdict(array: Run, tasks: Sequence[Run], rule: str) -> Verdict:
    state = next(first for first in _FIRST if any(task.state is first for task in tasks))
    reason = next(task.reason for task in tasks if task.state is state)
    if state is State.STOPPED and array.stop_by == "policy":
        reason = Reason.STOPPED_BY_POLICY
    exits = [task.exit_status for task in tasks]
    status = next(filter(None, exits), 0 if all(code == 0 for code in exits) else None)
    return Verdict(state=state, reason=reason or Reason.UNKNOWN_REASON, exit_status=status, rule=rule)
