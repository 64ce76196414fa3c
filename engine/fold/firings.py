"""The firings of a schedule: one row of the provider shows them all. Each is a run of its own, with the attempts of
that firing only; the schedule itself has no job, and waits until it is stopped.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from engine.facts import AttemptFacts, JobFacts, RunFacts
from engine.fold.run import Run
from engine.fold.world_codec import WorldState
from engine.states import Reason, State

_STOPS: Final = frozenset({Reason.STOPPED_BY_USER, Reason.ABORTED_BY_USER})


def schedule_itself(facts: RunFacts) -> RunFacts:
    """What a row says of the schedule alone: what ends a firing does not end it."""
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


def split(state: WorldState, schedule: Run, facts: RunFacts) -> Iterator[RunFacts]:
    """What a row says of each firing, oldest first; without jobs: it is over, and no answer showed its end. Records in
    the schedule which firings are known.
    """
    newest, highest = schedule.fired or (None, None)
    least = min((one.num for job in facts.jobs for one in job.attempts), default=0)
    of: dict[int, set[int]] = {}  # the number of a firing's first attempt → the numbers of all its attempts
    for one in (one for job in facts.jobs for one in job.attempts):
        of.setdefault(_first(state, schedule, one, least), set()).add(one.num)
    if newest is not None and of and min(of) > newest:
        yield _facts(facts, newest, ())
    for first in sorted(of):
        if highest is not None and newest is not None and first < newest and _known(state, schedule, first) is None:
            continue  # the last attempts of an older firing, whose first ones the row leaves out
        if highest is not None:
            for number in range(highest + 1, first):
                yield _facts(facts, number, ())
        newest, highest = max(newest or 0, first), max(highest or 0, *of[first])
        schedule.fired = newest, highest
        jobs = tuple([job for job in (_job(job, of[first], first) for job in facts.jobs) if job.attempts])
        shown, known = _facts(facts, first, jobs), _known(state, schedule, first)
        ended = all(one.ended for one in shown.newest)
        goes_on = first == max(of) and not (ended and _is_over(facts, shown, known))
        if not goes_on:
            shown = _over(shown)
            if known is not None and known.terminal and known.facts is not None and known.facts.jobs == shown.jobs:
                shown = known.facts  # the row said more while the firing ended
        yield shown


def join(schedule: Run, firing: Run) -> None:
    """A firing of a schedule of ours is ours, though the provider starts it."""
    terms = None if schedule.terms is None else replace(schedule.terms, crons=())
    firing.schedule, firing.terms, firing.stop_by = schedule.run_id, terms, schedule.stop_by


def _first(state: WorldState, schedule: Run, one: AttemptFacts, least: int) -> int:
    """The number of the first attempt of its firing, of which the row may show the later ones only. `least`: the
    lowest number in the row.
    """
    first = one.num if one.firing is None else one.firing
    if schedule.fired is None:
        return first
    newest, highest = schedule.fired
    known = _known(state, schedule, newest)
    # Only the row's own attempts tell a retry from a firing: without those before, it is one if it was to come.
    facts = None if known is None else known.facts
    retry = first == least == highest + 1 and facts is not None and any(one.retried for one in facts.newest)
    if one.num < newest or (first > highest and not retry):
        return first
    ended = known is not None and known.terminal and one.num > highest
    return highest + 1 if ended else newest  # a firing that has ended is not tried again


def _known(state: WorldState, schedule: Run, first: int) -> Run | None:
    run_id = state.by_provider.get(f"{schedule.provider}/{schedule.provider_id}#{first}")
    return None if run_id is None else state.runs[run_id]


def _facts(facts: RunFacts, first: int, jobs: tuple[JobFacts, ...]) -> RunFacts:
    """A firing in the words of the schedule's row, which say what goes on now."""
    ending = facts.final or facts.state is State.FINISHING
    begun = [one.submitted_at for job in jobs for one in job.attempts if one.num == 0 and one.submitted_at is not None]
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
    there = tuple([replace(one, num=one.num - first, firing=0) for one in job.attempts if one.num in numbers])
    return replace(job, attempts=there)


def _is_over(facts: RunFacts, shown: RunFacts, known: Run | None) -> bool:
    """Whether the newest firing, whose jobs have ended, is over: the schedule waits for the next, or was stopped since.
    It goes on while it waits to be tried again.
    """
    explained = all(one.exit_status is not None or one.cause is not None for one in shown.newest)
    if not facts.requeued:
        return explained and _is_stopped(facts)
    if (known is not None and known.terminal and known.attempt == max(one.num for one in shown.newest)) or not any(
        job.failed for job in shown.jobs
    ):
        return True
    due = None if facts.schedule is None else facts.schedule.next_at
    return due is not None and not any(one.retried for one in shown.newest)


def _over(shown: RunFacts) -> RunFacts:
    """A firing before the newest, or before the schedule waits again: its jobs alone say how it ended."""
    newest = shown.newest
    failed = next((one for job in shown.jobs if job.failed and (one := job.newest) is not None), newest[0])
    return replace(
        shown,
        status=failed.status,
        reason=failed.reason,
        state=State.FINISHING,
        requeued=False,
        final=True,
        finite=True,
        failed=any(job.failed and job.decides for job in shown.jobs),
        cause=None,
        ending=failed.ending,
    )


def _is_stopped(facts: RunFacts) -> bool:
    return facts.cause in _STOPS and (facts.final or facts.state is State.FINISHING)
