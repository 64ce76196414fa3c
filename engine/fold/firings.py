"""The firings of a schedule: one row of the provider shows them all. Each is a run of its own, with the attempts of
that firing only; the schedule itself has no job, and waits until it is stopped.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts
from steno.engine.state.run import Run
from steno.engine.state.states import Reason, State
from steno.engine.state.world import World

_STOPS: Final = frozenset({Reason.STOPPED_BY_USER, Reason.ABORTED_BY_USER})


def schedule_itself(facts: RunFacts) -> RunFacts:
    """The part of a row that is about the schedule alone: what ends a firing does not end it."""
    over = facts.final or _is_stopped(facts)
    return replace(
        facts,
        jobs=(),
        latest_exit_status=None,
        state=State.FINISHING if over else State.QUEUED,
        requeued=not over,
        cause=facts.cause if over else None,
        ending=facts.ending if facts.final else None,
    )


def split(state: World, schedule: Run, facts: RunFacts) -> Iterator[RunFacts]:
    """The part of a row that is about each firing, oldest first; without jobs: it is over, and no answer showed its
    end. Records in the schedule which firings are known.
    """
    newest, highest = schedule.fired or (None, None)
    least = min((attempt.num for attempt in facts.attempts), default=0)
    of: dict[int, set[int]] = {}  # the number of a firing's first attempt → the numbers of all its attempts
    for attempt in facts.attempts:
        of.setdefault(_first(state, schedule, attempt, least), set()).add(attempt.num)
    if newest is not None and of and min(of) > newest:
        yield _facts(facts, newest, ())
    for first in sorted(of):
        if highest is not None and newest is not None and first < newest and _known(state, schedule, first) is None:
            continue  # the last attempts of an older firing, whose first attempts the row leaves out
        if highest is not None:
            for number in range(highest + 1, first):
                yield _facts(facts, number, ())
        newest, highest = max(newest or 0, first), max(highest or 0, *of[first])
        schedule.fired = newest, highest
        jobs = tuple([job for job in (_job(job, of[first], first) for job in facts.jobs) if job.attempts])
        firing, known = _facts(facts, first, jobs), _known(state, schedule, first)
        ended = all(attempt.ended for attempt in firing.newest)
        goes_on = first == max(of) and not (ended and _is_over(facts, firing, known))
        if not goes_on:
            firing = _over(firing)
            if known is not None and known.terminal and known.facts is not None and known.facts.jobs == firing.jobs:
                firing = known.facts  # the row said more while the firing ended
        yield firing


def join(schedule: Run, firing: Run) -> None:
    """A firing of a schedule of ours is ours, though the provider starts it."""
    terms = None if schedule.terms is None else replace(schedule.terms, crons=())
    firing.schedule, firing.terms, firing.stop_by = schedule.run_id, terms, schedule.stop_by


def _first(state: World, schedule: Run, attempt: AttemptFacts, least: int) -> int:
    """The number of the first attempt of its firing, of which the row may show later attempts only. `least`: the
    lowest number in the row.
    """
    first = attempt.num if attempt.firing is None else attempt.firing
    if schedule.fired is None:
        return first
    newest, highest = schedule.fired
    known = _known(state, schedule, newest)
    # Only the row's own attempts tell a retry from a firing: without those before, it is one if it was to come.
    facts = None if known is None else known.facts
    retry = first == least == highest + 1 and facts is not None and any(attempt.retried for attempt in facts.newest)
    if attempt.num < newest or (first > highest and not retry):
        return first
    ended = known is not None and known.terminal and attempt.num > highest
    return highest + 1 if ended else newest  # a firing that has ended is not tried again


def _known(state: World, schedule: Run, first: int) -> Run | None:
    run_id = state.by_provider.get(f"{schedule.provider}/{schedule.provider_id}#{first}")
    return None if run_id is None else state.runs[run_id]


def _facts(facts: RunFacts, first: int, jobs: tuple[JobFacts, ...]) -> RunFacts:
    """A firing in the words of the schedule's row, which say what goes on now."""
    ending = facts.final or facts.state is State.FINISHING
    begun = [
        attempt.submitted_at
        for job in jobs
        for attempt in job.attempts
        if attempt.num == 0 and attempt.submitted_at is not None
    ]
    newest = jobs[0].newest if jobs else None
    return replace(
        facts,
        provider_id=f"{facts.provider_id}#{first}",
        jobs=jobs,
        finite=ending,  # until the row says that the firing ends, it may be tried again
        reason=facts.reason if ending else None,  # else it is of an earlier firing
        cause=facts.cause if ending else None,
        ending=facts.ending if ending else None,
        latest_exit_status=None if newest is None else newest.exit_status,
        submitted_at=min(begun, default=None),
        mark=None,
        drift=(),
        schedule=None,
        firing_of=facts.provider_id,
    )


def _job(job: JobFacts, numbers: set[int], first: int) -> JobFacts:
    there = tuple(
        [replace(attempt, num=attempt.num - first, firing=0) for attempt in job.attempts if attempt.num in numbers]
    )
    return replace(job, attempts=there)


def _is_over(facts: RunFacts, firing: RunFacts, known: Run | None) -> bool:
    """True if the newest firing, whose jobs have ended, is over: the schedule waits for the next, or was stopped since.
    It goes on while it waits to be tried again.
    """
    explained = all(attempt.exit_status is not None or attempt.cause is not None for attempt in firing.newest)
    if not facts.requeued:
        return explained and _is_stopped(facts)
    if (
        known is not None and known.terminal and known.attempt == max(attempt.num for attempt in firing.newest)
    ) or not any(job.failed for job in firing.jobs):
        return True
    due = None if facts.schedule is None else facts.schedule.next_at
    return due is not None and not any(attempt.retried for attempt in firing.newest)


def _over(firing: RunFacts) -> RunFacts:
    """A firing before the newest, or before the schedule waits again: its jobs alone say how it ended."""
    newest = firing.newest
    failed = next((attempt for job in firing.jobs if job.failed and (attempt := job.newest) is not None), newest[0])
    return replace(
        firing,
        status=failed.status,
        reason=failed.reason,
        state=State.FINISHING,
        requeued=False,
        final=True,
        finite=True,
        failed=any(job.failed and job.decides for job in firing.jobs),
        cause=None,
        ending=failed.ending,
    )


def _is_stopped(facts: RunFacts) -> bool:
    return facts.cause in _STOPS and (facts.final or facts.state is State.FINISHING)
