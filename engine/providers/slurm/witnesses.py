"""Combines the answers of Slurm's sources about a job, and lists who says what. Pure; rules as in `reading`."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from steno.engine.providers.slurm.words import LIVE
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, Waits
from steno.engine.state.states import State

CONTROLLER: Final = "controller"
ACCOUNTING: Final = "accounting"
ACCOUNTING_JSON: Final = "accounting-json"
SCRIPT: Final = "script"
AWAITING: Final = "awaiting accounting"
UNSEEN: Final = "the controller has forgotten the job, and its script wrote no end"
"""Without accounting nothing can say more: a node that died, or SIGKILL, between two polls."""
UNLISTED: Final = "neither source lists it any more, as of a task that was cancelled while it waited"
_AWAITED: Final = Waits(why=AWAITING)


def newest_of(facts: RunFacts) -> int:
    return max(
        (attempt.submitted_at or 0 for job in facts.jobs for attempt in job.attempts), default=facts.submitted_at or 0
    )


def together(before: RunFacts, views: Mapping[str, RunFacts | None], *, back: bool = False) -> RunFacts:
    """The job by all sources, as `Reading.together` gets it."""
    controller = views.get(CONTROLLER)
    accounting = _fuller(views.get(ACCOUNTING), views.get(ACCOUNTING_JSON))
    lists_it = controller is not None and controller.state is not State.FINISHING
    script = views.get(SCRIPT)
    if script is not None and controller is None:
        return replace(script, name=before.name, mark=before.mark, submitted_at=before.submitted_at)
    if accounting is None:
        if controller is not None:
            return controller
        why = AWAITING if not before.jobs else UNSEEN if ACCOUNTING not in views else UNLISTED
        return replace(before, state=State.FINISHING, reason=why, waits=Waits(why=why), requeued=False)
    if controller is not None and controller.final:
        return controller
    listed_only = _ends_in_list(accounting)
    if listed_only and _has_started(accounting, controller, before):
        begun = {"state": State.RUNNING, "over": False, "failed": False, "cause": None, "finished_at": None}
        accounting = replace(accounting, final=False, failed=False, cause=None, jobs=_newest(accounting.jobs, **begun))
    if controller is not None and newest_of(controller) < newest_of(accounting):
        # It listed an earlier attempt, and was not heard since.
        return together(before, {name: view for name, view in views.items() if name != CONTROLLER}, back=back)
    merged = _merged(accounting, controller, before)
    newer = newest_of(merged) > newest_of(accounting)
    requeued = any(attempt.retried for attempt in accounting.newest)
    # After some ends the controller may have the job in its queue again: it must have been asked, and have decided;
    # while the attempt's processes end (COMPLETING) it has not. Then accounting must be asked once more, because a
    # further attempt may have come and gone. A database that is back answers with old rows for 16 s.
    heard = list(views)
    since = CONTROLLER in views and max(map(heard.index, views.keys() & {ACCOUNTING, ACCOUNTING_JSON})) > heard.index(
        CONTROLLER
    )
    settled = since and not back and (controller is None or controller.status not in LIVE)
    stands = before.final and newest_of(before) == newest_of(merged)
    decided = not lists_it and (settled or stands)
    ended = accounting.final and all(attempt.ended for attempt in merged.newest)
    over = ended and not newer and (not requeued or decided) and not (listed_only and lists_it)
    if over and not any(attempt.status == "REQUEUED" for attempt in accounting.newest):
        return replace(merged, final=True)
    live = controller if lists_it or newer else None
    if live is not None and live.state is not None:
        return _unended(
            merged,
            state=live.state,
            status=live.status,
            reason=live.reason,
            waits=live.waits,
            requeued=live.requeued,
        )
    if accounting.final and not newer:
        return _unended(merged, state=State.FINISHING, status=accounting.status, reason=accounting.reason)
    gone = CONTROLLER in views
    if gone:
        return _unended(merged, state=State.FINISHING, status=accounting.status, reason=AWAITING, waits=_AWAITED)
    return merged


def _ends_in_list(accounting: RunFacts) -> bool:
    """True if accounting has a task only in its list of tasks that waited until they were cancelled. It writes that
    list at once, and up to 5 s later the row of a task that had left it.
    """
    waited = not any(attempt.started_at or attempt.hosts for attempt in accounting.newest)
    return accounting.group is not None and accounting.final and waited


def _has_started(accounting: RunFacts, controller: RunFacts | None, before: RunFacts) -> bool:
    """True if the controller showed that this submission of the task started."""
    if newest_of(before) == newest_of(accounting) and any(attempt.state is State.RUNNING for attempt in before.newest):
        return True  # as was found before
    if controller is None or newest_of(controller) != newest_of(accounting):
        return False
    return controller.state is not State.QUEUED and controller.status != accounting.status


def testimony(views: Mapping[str, RunFacts | None]) -> Iterator[str]:
    """The last answer of each source in a sentence, the controller first."""
    if not views:
        return
    controller, script = views.get(CONTROLLER), views.get(SCRIPT)
    accounting = _fuller(views.get(ACCOUNTING), views.get(ACCOUNTING_JSON))
    without = accounting is None and (script is not None or (controller is not None and bool(controller.jobs)))
    if controller is not None:
        why = f" ({controller.reason})" if controller.reason else ""
        yield f"The controller lists it as {controller.status}{why}."
    else:
        yield "The controller no longer lists it." if CONTROLLER in views else "The controller has not been heard."
    if accounting is not None:
        end = "that is its record of the end" if accounting.final else "no end yet"
        yield f"Accounting says {accounting.status}{_exited(accounting)}: {end}."
    elif not without:
        yield "Accounting has no record of it yet; until it has, there is no verdict."
    if without:
        yield "This cluster has no accounting: the verdict rests on the controller and on the job's own script."
        wrote = "has written no exit status" if script is None else f"wrote its end{_exited(script)}"
        yield f"The job's script {wrote}."
    known = controller if without and controller is not None and controller.final else accounting or script
    if known is not None and known.final and not _exited(known):
        yield "Unknown: the exit status of the script; Slurm keeps none for such an end."


def _exited(facts: RunFacts) -> str:
    status = next((attempt.exit_status for attempt in facts.newest), None)
    return "" if status is None else f", exit status {status}"


def _unended(facts: RunFacts, *, state: State, requeued: bool = False, **changes: object) -> RunFacts:
    """A job that goes on, although accounting says that its newest attempt ended: another may follow."""
    jobs, again = facts.jobs, not requeued and all(attempt.ended for attempt in facts.newest)
    if again:
        jobs = _newest(jobs, state=state, over=False, failed=False, cause=None, cut_off=False, exit_status=None)
    elif len(jobs) > 1:  # accounting may be behind with those components that go on
        jobs = tuple(job if job.attempts[-1].ended else _newest((job,), state=state)[0] for job in jobs)
    changes = {"final": False, "failed": False, "cause": None, "ending": None, **changes}
    return replace(facts, state=state, requeued=requeued, jobs=jobs, **changes)


def _newest(jobs: tuple[JobFacts, ...], **changes: object) -> tuple[JobFacts, ...]:
    """The jobs, with other words for the newest attempt of each."""
    return tuple(replace(job, attempts=(*job.attempts[:-1], replace(job.attempts[-1], **changes))) for job in jobs)


def _fuller(text: RunFacts | None, other: RunFacts | None) -> RunFacts | None:
    """Accounting's text rather than its JSON, unless only that has the newest attempt's end."""
    if text is None or other is None:
        return text or other
    return other if (newest_of(other), other.final) > (newest_of(text), text.final) else text


def _merged(accounting: RunFacts, controller: RunFacts | None, before: RunFacts) -> RunFacts:
    """Accounting's attempts, and those it lacks: one requeued at the controller, and what was known before. After an
    outage the database first answers with old rows, which must not end a job that was retried.
    """
    known, jobs = {job.job_num: job for job in before.jobs}, list[JobFacts]()
    last = before if controller is None and not before.jobs else controller  # without jobs it is the controller's too
    for job in accounting.jobs:
        attempts, newest = job.attempts, max((attempt.submitted_at or 0 for attempt in job.attempts), default=0)
        earlier = known.pop(job.job_num, None)
        for old in () if earlier is None else earlier.attempts:
            if (old.submitted_at or 0) > newest:
                attempts, newest = (*attempts, replace(old, num=len(attempts))), old.submitted_at or 0
        if last is not None and (last.submitted_at or 0) > newest:
            again = AttemptFacts(num=len(attempts), status=last.status, submitted_at=last.submitted_at)
            attempts = (*attempts, again)
        jobs.append(replace(job, attempts=attempts))
    jobs = sorted([*jobs, *known.values()], key=lambda job: job.job_num)  # accounting may not show all components yet
    listed = accounting if controller is None else controller
    # Accounting cuts a long name and changes its quotes.
    name = (None if controller is None else controller.name) or before.name or accounting.name
    return replace(accounting, jobs=tuple(jobs), mark=accounting.mark or listed.mark, name=name)
