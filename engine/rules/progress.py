"""Where a run is before its end: the most advanced job decides, not the lagging run."""

from typing import Final

from engine.facts import RunFacts, SubmissionFacts
from engine.fold.run_machine import PROGRESS, State
from engine.rules.evidence import has_ended
from engine.rules.moves import Live

_BY_RUN: Final[dict[str, State]] = {
    "pending": State.QUEUED,
    "submitted": State.QUEUED,
    "provisioning": State.PROVISIONING,
    "running": State.RUNNING,
    "terminating": State.FINISHING,
}
_BY_JOB: Final[dict[str, State]] = {
    "submitted": State.QUEUED,
    "provisioning": State.PROVISIONING,
    "pulling": State.PULLING,
    "running": State.RUNNING,
    "terminating": State.FINISHING,
}


def state_by_run(status: str | None) -> State | None:
    """What the run's own status says; None for a word we do not know or a final one."""
    return _BY_RUN.get(status) if status is not None else None


def progress(facts: RunFacts, *, rules: str) -> Live:
    """Where an observation that is not decisive shows the run.

    A job that has ended, or is ending, beside one that has not counts as running: the run goes on. Where no job
    speaks (jobs left out of the answer) the run's own status may move it forward.
    """
    if facts.status == "pending":
        return Live(state=State.QUEUED, rule=f"{rules}/pending", pending=True)
    if facts.status == "terminating":
        return Live(state=State.FINISHING, rule=f"{rules}/terminating")
    phases = [phase for job in facts.jobs if (phase := _phase(job.newest)) is not None]
    if not phases:
        return Live(state=state_by_run(facts.status), rule=f"{rules}/run-status", sure=False)
    going = [phase for phase in phases if phase is not State.FINISHING]
    if not going:
        return Live(state=State.FINISHING, rule=f"{rules}/every-job-ending")
    if len(going) < len(phases):
        return Live(state=State.RUNNING, rule=f"{rules}/some-jobs-ended")
    return Live(state=max(going, key=PROGRESS.index), rule=f"{rules}/most-advanced-job")


def _phase(newest: SubmissionFacts | None) -> State | None:
    if newest is None:
        return None
    if has_ended(newest):
        return State.FINISHING
    return _BY_JOB.get(newest.status) if newest.status is not None else None


def attempt_of(facts: RunFacts) -> int | None:
    """The highest submission number any job shows; None where no job shows a submission."""
    numbers = [job.newest.num for job in facts.jobs if job.newest is not None]
    return max(numbers) if numbers else None
