"""The verdict of a decisive observation, first match, and its reason in our words."""

from typing import Final

from engine.facts import RunFacts, SubmissionFacts
from engine.fold.run_machine import Reason, State
from engine.rules.evidence import is_failing
from engine.rules.moves import Verdict

NAME: Final = "current@1"

_JOB_REASONS: Final[dict[str, Reason]] = {
    "container_exited_with_error": Reason.EXIT_NONZERO,
    "failed_to_start_due_to_no_capacity": Reason.NO_CAPACITY,
    "interrupted_by_no_capacity": Reason.INTERRUPTED,
    "instance_unreachable": Reason.UNREACHABLE,
    "max_duration_exceeded": Reason.TIMED_OUT,
    "inactivity_duration_exceeded": Reason.TIMED_OUT,
    "terminated_due_to_utilization_policy": Reason.STOPPED_BY_POLICY,
    "supervisor_lost": Reason.NODE_FAILED,
}
"""Failing job reasons with a word of their own; every other known one reads `provider_error`."""

_STOPS: Final[dict[str, Reason]] = {
    "stopped_by_user": Reason.STOPPED_BY_USER,
    "aborted_by_user": Reason.ABORTED_BY_USER,
}
SERVER_REASONS: Final = frozenset({"server_error", "gateway_error", "error"})
_DONE: Final = "all_jobs_done"


def newest_of(facts: RunFacts) -> tuple[SubmissionFacts, ...]:
    """The newest submission of every job that has one, in order of (replica, job)."""
    return tuple(job.newest for job in facts.jobs if job.newest is not None)


def exit_status_of(facts: RunFacts) -> int | None:
    """The first exit status that is not zero by (replica_num, job_num), else the first job's."""
    for submission in newest_of(facts):
        if submission.exit_status is not None and submission.exit_status != 0:
            return submission.exit_status
    first = facts.jobs[0].newest if facts.jobs else None
    return None if first is None else first.exit_status


def verdict_of(facts: RunFacts, *, stopped_by_policy: bool) -> Verdict:
    """The verdict of an observation that `engine.rules.evidence.decisive` calls decisive.

    `stopped_by_policy`: our newest request to stop this run came from a policy.
    """
    jobs = newest_of(facts)
    exit_status = exit_status_of(facts)

    def verdict(state: State, reason: Reason, rule: str) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=f"{NAME}/{rule}")

    whole = bool(jobs) and len(jobs) == len(facts.jobs)
    if whole and all(job.exit_status == 0 for job in jobs) and facts.status != "failed":
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-exits-zero")
    if facts.reason in _STOPS:
        reason = Reason.STOPPED_BY_POLICY if stopped_by_policy else _STOPS[facts.reason]
        return verdict(State.STOPPED, reason, "stop-asked-for")
    if facts.reason == _DONE or facts.status == "done":
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-jobs-done")
    if facts.reason is not None or facts.status == "failed" or any(_failed(job) for job in jobs):
        return verdict(State.FAILED, _failure(facts, jobs), "failure-reported")
    return verdict(State.STOPPED, Reason.UNKNOWN_REASON, "ended-unexplained")


def _failed(job: SubmissionFacts) -> bool:
    return bool(job.exit_status) or is_failing(job.reason) or job.status == "failed"


def _failure(facts: RunFacts, jobs: tuple[SubmissionFacts, ...]) -> Reason:
    """Why a failed run failed: the server's own fault, then the first failing job's reason, then an exit status."""
    if facts.reason in SERVER_REASONS:
        return Reason.PROVIDER_ERROR
    for job in jobs:
        if job.reason is not None and is_failing(job.reason):
            return _JOB_REASONS.get(job.reason, Reason.PROVIDER_ERROR)
    if any(job.exit_status for job in jobs):
        return Reason.EXIT_NONZERO
    return Reason.UNKNOWN_REASON
