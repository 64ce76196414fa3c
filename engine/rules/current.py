"""The rule set `current`: ours, memoryless, without a time limit of its own, and the same for every provider. An
observation is decisive, or it shows where the run is. Source: the Run machine of the design (docs/concepts.md).
"""

from enum import StrEnum
from sys import intern
from typing import Final

from engine.facts import AttemptFacts, RunFacts
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
    return Decisive.ENDED if explained and not any(one.retried for one in newest) else None


_PENDING: Final = Live(state=State.QUEUED, rule=f"{NAME}/pending", pending=True)
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
        return _PENDING
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
    """The verdict of a decisive observation: the first rule that matches."""
    attempts = facts.newest
    first = facts.jobs[0].newest if facts.jobs else None
    # The first that is not zero by (replica_num, job_num), else the first job's.
    failed = next((one.exit_status for one in attempts if one.exit_status), None)
    exit_status = failed if failed is not None or first is None else first.exit_status

    def verdict(state: State, reason: Reason, rule: str) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=intern(f"{NAME}/{rule}"))

    whole = bool(attempts) and len(attempts) == len(facts.jobs)
    if whole and all(one.exit_status == 0 for one in attempts) and not facts.failed:
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-exits-zero")
    if facts.cause in _STOPS:
        return verdict(State.STOPPED, Reason.STOPPED_BY_POLICY if stopped_by_policy else facts.cause, "stop-asked-for")
    if facts.cause is Reason.EXIT_ZERO:
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-jobs-done")
    if facts.cause is not None or any(one.exit_status or one.cause is not None or one.failed for one in attempts):
        return verdict(State.FAILED, _failure(facts, attempts), "failure-reported")
    return verdict(State.STOPPED, Reason.UNKNOWN_REASON, "ended-unexplained")


def _failure(facts: RunFacts, attempts: list[AttemptFacts]) -> Reason:
    """Why a failed run failed: the server's own fault, then the first failing job's cause, then an exit status."""
    if facts.cause is Reason.PROVIDER_ERROR:
        return Reason.PROVIDER_ERROR
    exited = Reason.EXIT_NONZERO if any(one.exit_status for one in attempts) else Reason.UNKNOWN_REASON
    return next((one.cause for one in attempts if one.cause is not None), exited)


CURRENT: Final = RuleSet(
    name="current",
    watch=ObservationFilter.EVERY,
    judge=judge,
    final=False,
    metadata=True,
    hears=True,
    summary="ours: the newest decisive observation alone gives the verdict",
)
