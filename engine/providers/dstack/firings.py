"""The firings of a run with a `schedule`. dstack counts submissions over all firings, and submits again within a firing
only by the task's retry policy.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from steno.engine.state.facts import AttemptFacts, JobFacts
from steno.events.clock import SECOND, next_due

_LONGEST_PAUSE: Final = 11 * 60 * SECOND
"""From a submission's end to its retry: at most 10 minutes (`_PENDING_RETRY_DELAYS` of dstack 0.22.5), and a round."""


def by_firing(jobs: Sequence[JobFacts], crons: tuple[str, ...]) -> list[JobFacts]:
    """The jobs, with the first submission number of its firing at each submission."""
    rounds: dict[int, list[AttemptFacts]] = {}
    for job in jobs:
        for attempt in job.attempts:
            rounds.setdefault(attempt.num, []).append(attempt)
    numbers = sorted(rounds)
    firsts = dict(zip(numbers[:1], numbers[:1], strict=True))
    for before, after in pairwise(numbers):
        firsts[after] = after if _is_apart(rounds[before], rounds[after], crons) else firsts[before]
    return [
        replace(job, attempts=tuple([replace(attempt, firing=firsts[attempt.num]) for attempt in job.attempts]))
        for job in jobs
    ]


def _is_apart(before: Sequence[AttemptFacts], after: Sequence[AttemptFacts], crons: tuple[str, ...]) -> bool:
    """True if a later submission is of another firing: the earlier submission succeeded, or the schedule was due since
    its end. A failure that the retry policy covers can be retried past that moment, but soon.
    """
    if not any(attempt.failed or attempt.cause is not None or attempt.exit_status for attempt in before):
        return True
    retried = any(attempt.retried for attempt in before)
    ends = [
        attempt.submitted_at + SECOND if attempt.finished_at is None else attempt.finished_at
        for attempt in before
        if attempt.submitted_at is not None
    ]
    begins = [attempt.submitted_at for attempt in after if attempt.submitted_at is not None]
    due = next_due(crons, max(ends)) if ends and begins else None
    if due is None:
        return not retried
    return due <= min(begins) and (not retried or min(begins) - max(ends) > _LONGEST_PAUSE)
