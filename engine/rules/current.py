"""The rule set `current`: ours, memoryless, without a time limit of its own, and the same for every provider. An
observation is decisive, or it shows where the run is. Source: the Run machine of the design (docs/concepts.md).
"""

from enum import StrEnum
from sys import intern
from typing import Final

from engine.facts import JobFacts, RunFacts
from engine.rules.sets import Live, Move, ObservationFilter, RuleSet, Verdict
from engine.states import PROGRESS, Reason, State

NAME: Final = "current@1"
_STOPS: Final = frozenset({Reason.STOPPED_BY_USER, Reason.ABORTED_BY_USER})


class Decisive(StrEnum):
    """Why an observation is enough for a verdict."""

    FINAL_STATUS = "final-status"  # the run's own status is final
    TERMINATING = "terminating-and-ended"  # it is ending and every job has ended
    ENDED = "ended-and-not-retried"  # every job has ended in a way the task's own retry policy does not cover


def judge(facts: RunFacts, *, stopped_by_policy: bool) -> Move:
    """The meaning of one observation: a function of it and of our own requests to stop, of nothing else.
    `stopped_by_policy`: our newest request to stop this run came from a policy.
    """
    if decisive(facts) is None:
        return progress(facts)
    return _verdict(facts, stopped_by_policy=stopped_by_policy)


def decisive(facts: RunFacts) -> Decisive | None:
    """Why this observation ends the run; None: it does not."""
    if facts.final:
        return Decisive.FINAL_STATUS
    if not facts.finite or facts.requeued or not facts.jobs:
        return None
    newest = facts.newest
    if len(newest) < len(facts.jobs) or not all(one.ended for one in newest):
        return None
    if facts.state is State.FINISHING:
        return Decisive.TERMINATING
    explained = all(one.exit_status is not None or one.cause is not None for one in newest)
    if any(one.failed and not one.decides for one in facts.jobs):
        return None  # before or after its master was done: the provider's word for the run says it
    return Decisive.ENDED if explained and not any(one.retried for one in newest) else None


_PENDING: Final = Live(state=State.QUEUED, rule=f"{NAME}/pending", pending=True)
_SCHEDULED: Final = Live(state=State.QUEUED, rule=f"{NAME}/scheduled", pending=True)
_TERMINATING: Final = Live(state=State.FINISHING, rule=f"{NAME}/terminating")
_EVERY_JOB_ENDING: Final = Live(state=State.FINISHING, rule=f"{NAME}/every-job-ending")
_SOME_JOBS_ENDED: Final = {
    state: Live(state=state, rule=intern(f"{NAME}/some-jobs-ended"), sure=False) for state in State
}
_BY_JOB: Final = {state: Live(state=state, rule=intern(f"{NAME}/most-advanced-job")) for state in State}
_BY_STATUS: Final = {
    state: Live(state=state, rule=intern(f"{NAME}/run-status"), sure=False) for state in (None, *State)
}  # made once: every run keeps the rules of its moves


def progress(facts: RunFacts) -> Live:
    """Where an observation that is not decisive shows the run: the most advanced job decides that has not ended and is
    not ending, not the lagging run. If others have, it only moves the run forward: they may have been further. If no
    job is in the answer, the run's own status may move it forward.
    """
    if facts.requeued:
        return _PENDING if facts.schedule is None else _SCHEDULED
    if facts.state is State.FINISHING:
        return _TERMINATING
    shown = [State.FINISHING if one.ended else one.state for one in facts.newest]
    states = [state for state in shown if state is not None]
    if not states:
        return _BY_STATUS[facts.state]
    going = [state for state in states if state is not State.FINISHING]
    if not going:
        return _EVERY_JOB_ENDING
    furthest = going[0] if len(going) == 1 else max(going, key=PROGRESS.index)
    return (_BY_JOB if len(going) == len(states) else _SOME_JOBS_ENDED)[furthest]


def attempt_of(facts: RunFacts) -> int | None:
    """The number of the newest attempt of any job; None: no job shows one."""
    return max((one.num for one in facts.newest), default=None)


def _verdict(facts: RunFacts, *, stopped_by_policy: bool) -> Verdict:
    """The verdict of a decisive observation: the first rule that matches. Its exit status is that of the job that
    decided; if none did, the first that is not zero by (replica_num, job_num), else the first job's.
    """
    attempts, failing = facts.newest, _failing(facts)
    deciding = [job.newest for job in facts.jobs if job.decides and job.newest is not None]
    exits = [one.exit_status for one in deciding]
    any_exit = next(filter(None, exits), exits[0] if exits else None)

    def verdict(state: State, reason: Reason, rule: str, exit_status: int | None = any_exit) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=intern(f"{NAME}/{rule}"))

    whole = bool(exits) and len(attempts) == len(facts.jobs)
    if whole and all(one == 0 for one in exits) and not facts.failed and all(job.decides for job in failing):
        rule = "all-exits-zero" if len(deciding) == len(attempts) else "master-done"
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, rule)
    if facts.cause in _STOPS:
        return verdict(State.STOPPED, Reason.STOPPED_BY_POLICY if stopped_by_policy else facts.cause, "stop-asked-for")
    if facts.cause is Reason.EXIT_ZERO and not failing:
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-jobs-done")
    if facts.cause is None and not failing:
        return verdict(State.STOPPED, Reason.UNKNOWN_REASON, "ended-unexplained")
    rule = "failed-yet-done" if facts.cause is Reason.EXIT_ZERO else "failure-reported"
    decided = decider(facts)
    if decided is None or decided.newest is None:
        own = facts.cause is Reason.PROVIDER_ERROR
        return verdict(State.FAILED, Reason.PROVIDER_ERROR if own else Reason.UNKNOWN_REASON, rule)
    one = decided.newest
    exited = Reason.EXIT_NONZERO if one.exit_status else Reason.UNKNOWN_REASON
    return verdict(State.FAILED, one.cause or exited, rule, one.exit_status)


def decider(facts: RunFacts) -> JobFacts | None:
    """The job that decided that the run failed: the first with a cause, else with a nonzero exit status, else with a
    failed status. None: no job; it was the provider's own fault, or no job shows a failure.
    """
    if facts.cause is Reason.PROVIDER_ERROR:
        return None
    return min(_failing(facts), key=_failure_rank, default=None)  # the first of equals


def _failure_rank(job: JobFacts) -> int:
    newest = job.newest
    if newest is None or newest.cause is not None:
        return 0
    return 1 if newest.exit_status else 2


def _failing(facts: RunFacts) -> list[JobFacts]:
    """The jobs whose end makes the run fail; one that does not decide only if the provider does not call it done."""
    return [job for job in facts.jobs if job.failed and (job.decides or facts.cause is not Reason.EXIT_ZERO)]


CURRENT: Final = RuleSet(
    name="current",
    watch=ObservationFilter.EVERY,
    judge=judge,
    final=False,
    metadata=True,
    hears=True,
    summary="ours: the newest decisive observation alone gives the verdict",
)
