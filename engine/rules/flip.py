"""What would have flipped a verdict: each counterfactual is a changed observation put to the same rules."""

from collections.abc import Callable, Iterator

import msgspec

from engine.facts import JobFacts, RunFacts, SubmissionFacts
from engine.readings import words
from engine.rules.moves import Move, Verdict


def flips(facts: RunFacts, judge: Callable[[RunFacts], Move]) -> tuple[str, ...]:
    """One sentence for every single change of the observation under which the rules say another thing."""
    given = _said(judge(facts))
    found = []
    for change, other in _variations(facts):
        said = _said(judge(other))
        if said != given:
            found.append(f"{change}: {said}")
    return tuple(found)


def _said(move: Move) -> str:
    if isinstance(move, Verdict):
        return f"{move.state.value}/{move.reason.value}"
    return "no verdict yet" if move.state is None else f"no verdict yet ({move.state.value})"


def _variations(facts: RunFacts) -> Iterator[tuple[str, RunFacts]]:
    for index, job in enumerate(facts.jobs):
        if job.newest is None:
            continue
        label = f"job {job.replica_num}-{job.job_num}" if len(facts.jobs) > 1 else "the job"
        newest = job.newest
        for exit_status in (0, 1):
            if newest.exit_status != exit_status and (exit_status == 0 or newest.exit_status in (0, None)):
                reason = "done_by_runner" if exit_status == 0 else "container_exited_with_error"
                changed = msgspec.structs.replace(newest, exit_status=exit_status, reason=reason)
                yield f"had {label} exited {exit_status}", _with(facts, index, job, changed)
        if newest.exit_status is not None:
            silent = msgspec.structs.replace(newest, exit_status=None, reason=None, status="running")
            yield f"had {label} still been running", _with(facts, index, job, silent)
        if not job.retry_on:
            covering = msgspec.structs.replace(job, retry_on=words.RETRY_EVENTS)
            jobs = (*facts.jobs[:index], covering, *facts.jobs[index + 1 :])
            yield f"had the task's retry policy covered {label}", msgspec.structs.replace(facts, jobs=jobs)
    for reason in ("stopped_by_user", "all_jobs_done"):
        if facts.reason != reason:
            yield f"had the run's reason been {reason}", msgspec.structs.replace(facts, reason=reason)
    for status in ("failed", "pending"):
        if facts.status != status:
            yield f"had the run's status been {status}", msgspec.structs.replace(facts, status=status)


def _with(facts: RunFacts, index: int, job: JobFacts, newest: SubmissionFacts) -> RunFacts:
    changed = msgspec.structs.replace(job, newest=newest, submissions=(*job.submissions[:-1], newest))
    latest = newest if index == 0 else facts.latest
    return msgspec.structs.replace(facts, jobs=(*facts.jobs[:index], changed, *facts.jobs[index + 1 :]), latest=latest)
