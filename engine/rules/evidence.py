"""When a provider has said enough for a verdict: the decisive observations of dstack (and of the local provider).

Source: the Run machine of the design, `JobTerminationReason.to_retry_event` of dstack 0.22.5.
"""

from enum import StrEnum

from engine.facts import JobFacts, RunFacts, SubmissionFacts
from engine.providers.dstack import words


class Decisive(StrEnum):
    """Why an observation is enough."""

    FINAL_STATUS = "final-status"  # the run is done, failed or terminated
    TERMINATING = "terminating-and-ended"  # it is terminating and every job has ended
    ENDED = "ended-and-not-retried"  # every job has ended in a way the task's own retry policy does not cover


def has_ended(submission: SubmissionFacts) -> bool:
    """Whether a submission is over: it has an exit status, or a status after which nothing comes."""
    return submission.exit_status is not None or submission.status in words.ENDED_JOB_STATUSES


def is_failing(reason: str | None) -> bool:
    """Whether a job's termination reason is a known one that means failure."""
    return reason in words.RETRY_EVENT_OF and reason not in words.QUIET_JOB_REASONS


def retry_event(submission: SubmissionFacts) -> str | None:
    """The retry event an ended submission triggers at the provider; None where it never retries it."""
    if submission.reason is not None and submission.reason in words.RETRY_EVENT_OF:
        event = words.RETRY_EVENT_OF[submission.reason]
        if event is not None or submission.reason not in words.QUIET_JOB_REASONS:
            return event
    if submission.exit_status is not None and submission.exit_status != 0:
        return words.ERROR
    return None


def is_covered(job: JobFacts, submission: SubmissionFacts) -> bool:
    """Whether the task's own retry policy covers how this submission ended.

    A reason we do not know may stand for any event, so any policy covers it, unless the exit status is 0.
    """
    if submission.reason is not None and submission.reason not in words.RETRY_EVENT_OF and submission.exit_status != 0:
        return bool(job.retry_on)
    return retry_event(submission) in job.retry_on


def _speaks_for_itself(job: JobFacts) -> bool:
    newest = job.newest
    if newest is None or (newest.exit_status is None and not is_failing(newest.reason)):
        return False
    return not is_covered(job, newest)


def decisive(facts: RunFacts) -> Decisive | None:
    """Why this observation ends the run; None where it does not."""
    if facts.status in words.FINAL_RUN_STATUSES:
        return Decisive.FINAL_STATUS
    if facts.kind != "task" or facts.status == "pending" or not facts.jobs:
        return None
    if not all(job.newest is not None and has_ended(job.newest) for job in facts.jobs):
        return None
    if facts.status == "terminating":
        return Decisive.TERMINATING
    return Decisive.ENDED if all(_speaks_for_itself(job) for job in facts.jobs) else None
