"""An array that Steno submitted: one request, and a run for each of its tasks. What the provider says is about tasks;
the array's state, verdict and times follow from theirs.
"""

from collections.abc import Sequence

from engine.facts import RunFacts
from engine.fold import chains, run_turn
from engine.fold.run import Run
from engine.fold.state_machines import TRIGGER_TO, Trigger
from engine.fold.turn import Turn
from engine.fold.world_codec import WorldState
from engine.rules.sets import Verdict
from engine.states import PROGRESS, Reason, State

_ENDING = PROGRESS.index(State.FINISHING)
_FIRST = (State.FAILED, State.STOPPED, State.SUCCEEDED)  # the verdict of an array: the first that one of its tasks has


def tasks_of(state: WorldState, array: Run) -> list[Run]:
    """The tasks of an array that are known, by their number."""
    tasks = [state.runs[one] for one in array.tasks]
    return sorted(tasks, key=lambda run: (run.facts is None or run.facts.task is None, run.facts and run.facts.task))


def join(turn: Turn, task: Run) -> None:
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


def is_left_over(state: WorldState, key: str, facts: RunFacts) -> bool:
    """Whether an observation is what a provider keeps of an array of which no task waits any more, and not a job: it
    has the array's id. The tasks have runs of their own.
    """
    if facts.group is not None or facts.jobs or facts.state is not State.FINISHING:
        return False
    if (known := state.by_provider.get(key)) is not None:
        return bool(state.runs[known].tasks)
    of_it = (run for other, run in state.by_provider.items() if other.startswith(f"{key}_"))
    return any(state.runs[run].project == facts.project for run in of_it)


def leave(turn: Turn, array: Run) -> None:
    """The provider gave the array an id: tasks of another array, which copied its mark, are not of it."""
    for task in tasks_of(turn.state, array):
        if task.facts is None or task.facts.group != array.provider_id:
            task.array, array.tasks = None, tuple([one for one in array.tasks if one != task.run_id])


def follow(turn: Turn, array: Run) -> None:
    """Move an array to where its tasks are: the most advanced one that has not ended, but never back. It has ended once
    all have.
    """
    tasks, rule = tasks_of(turn.state, array), f"{turn.rules.name}/array"
    count = 1 if array.terms is None else array.terms.tasks
    array.last_position, array.last_at = turn.position, turn.at
    array.submitted_at = min((one.submitted_at for one in tasks if one.submitted_at is not None), default=None)
    array.started_at = min((one.started_at for one in tasks if one.started_at is not None), default=None)
    begin = len(turn.changes)
    if len(tasks) >= count and all(one.terminal for one in tasks):
        run_turn.settle(turn, array, _verdict(array, tasks, rule))
        array.finished_at = max((one.finished_at for one in tasks if one.finished_at is not None), default=turn.at)
    else:
        if array.terminal:  # a task of it was tried again
            run_turn.step(turn, array, Trigger.REOPEN, rule)
            array.reason = array.exit_status = array.finished_at = None
        there = [PROGRESS.index(one.state) for one in tasks if one.state in PROGRESS]
        # It is not ending while another task is to come.
        ending = len(tasks) >= count and all(one == _ENDING for one in there)
        reached = max(there, default=0) if ending else min(max(there, default=0), _ENDING - 1)
        before = PROGRESS.index(array.state) if array.state in PROGRESS else 0
        if reached > before:
            run_turn.step(turn, array, TRIGGER_TO[PROGRESS[reached]], rule)
    turn.changed(array, begin)


def _verdict(array: Run, tasks: Sequence[Run], rule: str) -> Verdict:
    state = next(one for one in _FIRST if any(task.state is one for task in tasks))
    reason = next(task.reason for task in tasks if task.state is state)
    if state is State.STOPPED and array.stop_by == "policy":
        reason = Reason.STOPPED_BY_POLICY
    exits = [task.exit_status for task in tasks]
    status = next((one for one in exits if one), 0 if all(one == 0 for one in exits) else None)
    return Verdict(state=state, reason=reason or Reason.UNKNOWN_REASON, exit_status=status, rule=rule)
