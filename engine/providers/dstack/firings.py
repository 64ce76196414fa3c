"""Which submissions of a run with a `schedule` are one firing. dstack counts submissions over all firings, and submits
again within a firing only by the task's retry policy.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from engine.cron import next_due
from engine.facts import AttemptFacts, JobFacts
from events.clock import SECOND

_LONGEST_PAUSE: Final = 11 * 60 * SECOND
"""From a submission's end to its retry: at most 10 minutes (`_PENDING_RETRY_DELAYS` of dstack 0.22.5), and a round."""


def by_firing(jobs: Sequence[JobFacts], crons: tuple[str, ...]) -> list[JobFacts]:
    """The jobs, with the first submission number of its firing at each submission."""
    rounds: dict[int, list[AttemptFacts]] = {}
    for one in (one for job in jobs for one in job.attempts):
        rounds.setdefault(one.num, []).append(one)
    numbers = sorted(rounds)
    firsts = dict(zip(numbers[:1], numbers[:1], strict=True))
    for before, after in pairwise(numbers):
        firsts[after] = after if _is_apart(rounds[before], rounds[after], crons) else firsts[before]
    return [
        replace(job, attempts=tuple([replace(one, firing=firsts[one.num]) for one in job.attempts])) for job in jobs
    ]


def _is_apart(before: Sequence[AttemptFacts], after: Sequence[AttemptFacts], crons: tuple[str, ...]) -> bool:
    """Whether a later submission is of another firing: the earlier one succeeded, or the schedule was due since its
    end. One that the retry policy covers can be retried past that moment, but soon.
    """
    if not any(one.failed or one.cause is not None or one.exit_status for one in before):
        return True
    retried = any(one.retried for one in before)
    ends = [
        one.submitted_at + SECOND if one.finished_at is None else one.finished_at
        for one in before
        if one.submitted_at is not None
    ]
    begins = [one.submitted_at for one in after if one.submitted_at is not None]
    due = next_due(crons, max(ends)) if ends and begins else None
    if due is None:
        return not retried
    return due <= min(begins) and (not retried or min(begins) - max(ends) > _LONGEST_PAUSE)
