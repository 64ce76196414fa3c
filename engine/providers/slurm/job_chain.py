"""Which submissions under one job id are one job. Pure.

A job id is not a key: ids wrap at MaxJobId, and a controller that lost its state counts from the start. A job is a
chain of submissions of one user on one cluster: a requeue keeps the id and rewrites Submit. A name or a comment alone
continues no chain. Times are the cluster's, compared only with each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from engine.facts import AttemptFacts, RunFacts
from engine.providers.slurm.words import LIVE, REQUEUED
from events.clock import SECOND

REQUEUED_WITHIN: Final = 600 * SECOND  # from an attempt's end to the submission of the next
UNBROKEN: Final = 60 * SECOND
"""Two answers of the controller this close together list one job: an id comes again only after the controller has
forgotten the job, by default 300 s after its end.
"""


def chains_of(rows: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """The rows of one job id, cut where the id came again; in order of submission."""
    found: list[list[RunFacts]] = []
    for row in sorted(rows, key=lambda row: row.submitted_at or 0):
        if found and _leads_to(found[-1][-1], row):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def is_same_job(
    known: RunFacts,
    seen: RunFacts,
    *,
    views: Mapping[str, RunFacts | None],
    listed: RunFacts | None,
    since: int | None,
) -> bool | None:
    """See `Reading.is_same_run`. The controller alone cannot tell a requeued job from another one of its id if it was
    not asked meanwhile: accounting has to say how the earlier attempt ended.
    """
    if _elsewhere(known, seen) or _differ(known.user, seen.user) or _differ(known.mark, seen.mark):
        return False
    times = {*_submissions(known), *(at for one in views.values() if one is not None for at in _submissions(one))}
    shown = set(_submissions(seen))
    if not times or not shown:
        return True
    if any(min(times) <= at <= max(times) for at in shown):
        return True
    if seen.mark is not None and seen.mark == known.mark:
        return True
    if max(shown) < min(times):
        earlier = _newest(seen)
        if earlier is None or not earlier.over:
            return None  # accounting is behind
        return _requeued(earlier, min(times))
    newest = _newest(known)
    if _requeued(newest, min(shown)) or _restarted(newest, seen):
        return True
    if seen.jobs or known.final:
        return False  # accounting lists every attempt; a job that ended otherwise is not requeued
    return True if _is_unbroken(listed, seen, since) else None


def _leads_to(earlier: RunFacts, later: RunFacts) -> bool:
    """Whether a row is a further submission of the job of an earlier row."""
    if _differ(earlier.user, later.user) or _differ(earlier.mark, later.mark):
        return False
    if later.submitted_at is None or later.submitted_at == earlier.submitted_at:
        return True
    return (earlier.mark is not None and earlier.mark == later.mark) or _requeued(_newest(earlier), later.submitted_at)


def _requeued(attempt: AttemptFacts | None, submitted_at: int) -> bool:
    """Whether the attempt ended as one that is requeued, and that submission followed at once."""
    if attempt is None or not attempt.retried or attempt.finished_at is None:
        return False
    return submitted_at - attempt.finished_at <= REQUEUED_WITHIN


def _restarted(newest: AttemptFacts | None, seen: RunFacts) -> bool:
    """Whether the controller counts more restarts, where it is the only source."""
    attempts = seen.jobs[0].attempts if seen.jobs else ()
    return newest is not None and len(attempts) == 1 and attempts[0].num > newest.num


def _is_unbroken(listed: RunFacts | None, seen: RunFacts, since: int | None) -> bool:
    if listed is None or since is None or since > UNBROKEN:
        return False
    goes_on = listed.status in LIVE or listed.status in REQUEUED
    return goes_on and (listed.name, listed.mark, listed.user) == (seen.name, seen.mark, seen.user)


def _submissions(facts: RunFacts) -> Iterator[int]:
    for at in (facts.submitted_at, *(one.submitted_at for job in facts.jobs for one in job.attempts)):
        if at is not None:
            yield at


def _newest(facts: RunFacts) -> AttemptFacts | None:
    return facts.jobs[0].newest if facts.jobs else None


def _elsewhere(one: RunFacts, other: RunFacts) -> bool:
    """Whether they are of two clusters: by the clusters' own names, else by those of our sources."""
    if one.realm is not None and other.realm is not None:
        return one.realm != other.realm
    return _differ(one.project, other.project)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
