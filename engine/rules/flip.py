"""What would have flipped a verdict: the same rules judge an answer that the provider could have given instead."""

from collections.abc import Callable, Iterator

import msgspec

from engine.facts import JobFacts, RunFacts, SubmissionFacts
from engine.providers.dstack import words
from engine.rules.evidence import has_ended, is_covered, is_failing, retry_event
from engine.rules.moves import Move, Verdict

_STOPS = ("stopped_by_user", "aborted_by_user")


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could have gone otherwise, and what the rules say then."""

    change: str
    """`had the job exited 0`."""
    facts: RunFacts
    """The whole observation as it would have been: the run's own status and reason follow from its jobs."""
    verdict: str
    """`succeeded/exit_zero`."""

    def __str__(self) -> str:
        return f"{self.change}: {self.verdict}"


def flips(facts: RunFacts, judge: Callable[[RunFacts], Move]) -> tuple[Flip, ...]:
    """Every single change of what happened under which the rules say another thing."""
    given = verdict_text(judge(facts))
    found = (Flip(change=change, facts=other, verdict=verdict_text(judge(other))) for change, other in _changes(facts))
    return tuple(flip for flip in found if flip.verdict != given)


def verdict_text(move: Move) -> str:
    """`failed/exit_nonzero`, or `no verdict yet (running)`."""
    if isinstance(move, Verdict):
        return f"{move.state.value}/{move.reason.value}"
    return "no verdict yet" if move.state is None else f"no verdict yet ({move.state.value})"


def _changes(facts: RunFacts) -> Iterator[tuple[str, RunFacts]]:
    before = " before the stop" if facts.reason in _STOPS else ""
    for index, job in enumerate(facts.jobs):
        newest = job.newest
        if newest is None:
            continue
        label = f"job {job.replica_num}-{job.job_num}" if len(facts.jobs) > 1 else "the job"
        if _ran(newest):
            if newest.exit_status != 0:
                ended = _ended(newest, "done", "done_by_runner", 0)
                yield f"had {label} exited 0{before}", _with(facts, index, job, ended)
            if not newest.exit_status:
                ended = _ended(newest, "failed", "container_exited_with_error", 1)
                yield f"had {label} exited 1{before}", _with(facts, index, job, ended)
            if has_ended(newest):
                yield f"had {label} still been running", _with(facts, index, job, _ended(newest, "running", None, None))
        if has_ended(newest) and retry_event(newest) is not None and not is_covered(job, newest):
            covering = msgspec.structs.replace(job, retry_on=words.RETRY_EVENTS)
            yield f"had the task's retry policy covered how {label} ended", _with(facts, index, covering, newest)
    if facts.reason not in _STOPS and facts.status != "pending" and any(_ran(job.newest) for job in facts.jobs):
        yield "had the run been stopped before its end", _stopped(facts)
    if not facts.jobs:
        for status, reason in (("done", "all_jobs_done"), ("failed", "job_failed"), ("terminated", "stopped_by_user")):
            other = msgspec.structs.replace(facts, status=status, reason=reason)
            yield f"had the run's status been {status} ({reason})", other


def _ran(newest: SubmissionFacts | None) -> bool:
    """Whether the submission got as far as a machine: only such a one can exit."""
    if newest is None:
        return False
    return newest.exit_status is not None or newest.hostname is not None or newest.status == "running"


def _ended(newest: SubmissionFacts, status: str, reason: str | None, exit_status: int | None) -> SubmissionFacts:
    return msgspec.structs.replace(newest, status=status, reason=reason, exit_status=exit_status)


def _stopped(facts: RunFacts) -> RunFacts:
    """The run stopped by a user, as dstack shows it: its jobs have no exit status."""
    jobs = tuple(
        job if job.newest is None else _newest(job, _ended(job.newest, "terminated", "terminated_by_user", None))
        for job in facts.jobs
    )
    latest = jobs[0].newest if facts.latest is not None else None
    return msgspec.structs.replace(facts, status="terminated", reason="stopped_by_user", jobs=jobs, latest=latest)


def _with(facts: RunFacts, index: int, job: JobFacts, newest: SubmissionFacts) -> RunFacts:
    """The observation with one job changed, and the run's own words as that job makes them."""
    jobs = (*facts.jobs[:index], _newest(job, newest), *facts.jobs[index + 1 :])
    if not any(_failed(one.newest) for one in jobs):  # dstack ends the other jobs only because one failed
        jobs = tuple(
            _newest(one, _ended(one.newest, "running", None, None))
            if one.newest is not None and one.newest.reason == "terminated_by_server"
            else one
            for one in jobs
        )
    latest = newest if index == 0 else facts.latest
    status, reason = _run_words(facts, jobs)
    return msgspec.structs.replace(facts, jobs=jobs, latest=latest, status=status, reason=reason)


def _failed(newest: SubmissionFacts | None) -> bool:
    return newest is not None and (is_failing(newest.reason) or bool(newest.exit_status))


def _newest(job: JobFacts, newest: SubmissionFacts) -> JobFacts:
    return msgspec.structs.replace(job, newest=newest, submissions=(*job.submissions[:-1], newest))


def _run_words(facts: RunFacts, jobs: tuple[JobFacts, ...]) -> tuple[str | None, str | None]:
    """Status and reason of the run, as dstack derives them from its jobs.

    A run that is not ending keeps its words: it lags behind its jobs anyway.
    """
    final = facts.status in words.FINAL_RUN_STATUSES
    if not final and facts.status != "terminating":
        return facts.status, facts.reason
    shown = [(job, job.newest) for job in jobs if job.newest is not None]
    over = len(shown) == len(jobs) and all(has_ended(newest) for _, newest in shown)

    def ending(status: str, reason: str) -> tuple[str, str]:
        return (status if final and over else "terminating"), reason

    failed = [(job, newest) for job, newest in shown if _failed(newest)]
    if any(not is_covered(job, newest) for job, newest in failed):
        kept = facts.reason is not None and facts.reason not in (*_STOPS, "all_jobs_done")
        return ending("failed", (facts.reason or "") if kept else "job_failed")
    if failed:
        return ("failed", facts.reason) if facts.reason == "retry_limit_exceeded" else ("pending", None)
    if over and all(newest.exit_status == 0 for _, newest in shown):
        return ending("done", "all_jobs_done")
    if facts.reason in _STOPS:
        return ending("terminated", facts.reason or "")
    return "running", None
