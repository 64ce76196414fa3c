"""Folds one event into one run: stores what it says, applies the rules, moves the state machine."""

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from steno.engine.fold import vm_step
from steno.engine.fold.step import FoldStep
from steno.engine.rules.cases import case_of, encode_case
from steno.engine.rules.sets import Live, Verdict, attempt_of
from steno.engine.state.case_log import logged
from steno.engine.state.changes import AnomalyKind, Heard, Missing, Transition
from steno.engine.state.facts import RunFacts
from steno.engine.state.kernel_mark import FORGOTTEN, gpu_named, read_frame, read_mark
from steno.engine.state.reading import Scope, Seen, Tick
from steno.engine.state.run import Attempt, PhaseStep, Reported, ReportedJob, ReportedPhase, Run, Said
from steno.engine.state.sources import is_back
from steno.engine.state.state_machines import TRIGGER_TO, Trigger
from steno.engine.state.states import PROGRESS, Reason, State

_PHASES: Final = {phase.name: phase for phase in ReportedPhase}
_ERRORS: Final = {
    reason.name: reason
    for reason in (Reason.COMPILE_ERROR, Reason.WRONG_ANSWER, Reason.RUNTIME_ERROR, Reason.CHEATING_SUSPECTED)
}
_LAST: Final = frozenset({*_ERRORS, "ERROR", "BENCHMARKED"})
"""Nothing comes after these, nor after CHECKED if only a check was requested."""


def take_down(turn: FoldStep, run: Run, seen: Seen, tick: Tick) -> tuple[bool, bool]:
    """Record what the provider says; (whether it is new, whether it began a new attempt). An answer older than the
    newest one applied from the same source says nothing new.
    """
    if not turn.sees(run, tick, seen.facts):
        return False, False
    if run.unlisted is not None and run.unlisted.source == tick.asked:
        run.unlisted = None
        for vm_id in run.links.values():
            vm_step.listed_again(turn, turn.state.vms[vm_id])
    facts = _from_all_sources(turn, run, tick, seen.facts)
    if cost_is_whole(facts, tick.scope):
        run.cost, run.cost_at = seen.cost, turn.position
    if run.facts is facts or run.facts == facts:
        return run.state is State.LOST, False
    return True, _write(turn, run, facts)


@lru_cache(maxsize=1024)  # most runs end alike: equal words are one object
def _reported_job(status: str | None, reason: str | None, exit_status: int | None) -> ReportedJob:
    return ReportedJob(status, reason, exit_status)


@lru_cache(maxsize=1024)
def _reported(status: str | None, reason: str | None, jobs: tuple[ReportedJob, ...]) -> Reported:
    return Reported(status=status, reason=reason, jobs=jobs)


def not_listed(turn: FoldStep, run: Run, tick: Tick) -> None:
    """A source among several no longer lists the run; the others may then say more."""
    if run.facts is None or run.views.get(tick.scope.witness or "", run.facts) is None:
        return
    if tick.started_at < run.started.get(tick.asked, tick.started_at):
        return
    source, listed_at = turn.source(tick.source), run.started.get(tick.asked, run.first_at)
    run.unlisted = Missing(source=tick.asked, since=source.answered_time, at=listed_at)
    run.started[tick.asked] = tick.started_at
    facts, begin = _from_all_sources(turn, run, tick, None), len(turn.changes)
    if facts != run.facts:
        _write(turn, run, facts)
        judge(turn, run, facts)
        turn.changed(run, begin)


def _from_all_sources(turn: FoldStep, run: Run, tick: Tick, facts: RunFacts | None) -> RunFacts:
    """The facts of all sources of the provider together, now that a source says this; None: it no longer lists it."""
    scope = tick.scope
    reading = turn.fold.readings.of(scope.provider) if scope.witness is not None else None
    before = facts if run.facts is None else run.facts
    assert before is not None  # noqa: S101 - a run must be seen before it can be missed
    if reading is None or scope.witness is None:
        return facts or before
    source, order = turn.source(tick.source), list(run.views)
    doubted = source.outage is not None and run.state is State.FINISHING
    if scope.witness not in order or run.views[scope.witness] != facts:
        run.news_of = scope.witness
        turn.changes.append(Heard(run_id=run.run_id))  # the other sources are read again
    elif run.facts is not None and order.index(scope.witness) >= order.index(run.news_of or order[0]) and not doubted:
        return run.facts  # it repeats itself, and nobody has said anything new since
    run.views.pop(scope.witness, None)  # the views are in the order in which they were heard
    run.views = {**run.views, scope.witness: facts}
    if run.facts is None:
        before = replace(before, final=False)  # one source alone has concluded nothing
    return reading.together(before, run.views, back=is_back(source, tick.started_at) and not run.terminal)


def _write(turn: FoldStep, run: Run, facts: RunFacts) -> bool:
    """Record new facts; whether they show a new attempt."""
    attempt, newest = attempt_of(facts), facts.newest
    retried = _is_new_attempt(turn, run, facts)
    run.facts = facts
    run.name = facts.name or run.name
    run.project = facts.project or run.project
    run.submitted_at = facts.submitted_at if facts.submitted_at is not None else run.submitted_at
    jobs = tuple([_reported_job(job.status, job.reason, job.exit_status) for job in newest])
    run.reported = _reported(facts.status, facts.reason, jobs or run.reported.jobs)
    if run.started_at is None and attempt in (None, run.attempt) and _shows_running(facts):
        run.started_at = turn.at
    for drift in facts.drift:
        turn.note(run, AnomalyKind.SCHEMA_DRIFT, drift, once=True)
    if facts.mismatch is not None:
        turn.note(run, AnomalyKind.GPU_MISMATCH, facts.mismatch, once=True)
    return retried


def _is_new_attempt(turn: FoldStep, run: Run, facts: RunFacts) -> bool:
    """True if they show a new attempt: a higher number, or a later submission if they or the last facts have none."""
    known, attempt, before = run.attempt, attempt_of(facts), run.facts
    ahead = 0 if attempt is None else attempt - (known or 0)
    if ahead > 0:
        run.later_attempts = (*run.later_attempts, Attempt(number=run.attempts + ahead, position=turn.position))
    if ahead > 0 or known is None:
        run.attempt = attempt
    new = ahead > 0 and known is not None
    if before is not None and not (before.jobs and facts.jobs):
        at, last = before.last_submitted_at or 0, facts.last_submitted_at or 0
        earlier = {attempt.submitted_at for job in facts.jobs for attempt in job.attempts[:-1]}
        new = (new and at != last) or (at in earlier if facts.jobs else at < last)
    if new:
        run.started_at = None
        run.said = None if run.said is None else unheard(run.said)
    return new


def judge(turn: FoldStep, run: Run, facts: RunFacts, *, retried: bool = False) -> None:
    """Apply the rules to an observation and move the run accordingly."""
    rules = turn.rules
    if run.terminal and rules.final:
        return
    stopped_by_policy = run.stop_by == "policy"
    if rules.judge is None:
        move = rules.move(facts, stopped_by_policy=stopped_by_policy)
    else:
        case, cases = case_of(facts, stopped_by_policy=stopped_by_policy), turn.state.cases
        run.cases = logged(run.cases, turn.position, cases.setdefault(encode_case(case).decode(), len(cases) + 1))
        move = rules.judge(case)
    if retried and not rules.final:
        _requeue(turn, run, f"{rules.name}/retry")
    match move:
        case Verdict():
            settle(turn, run, move, facts)
            if facts.cause is Reason.EXIT_ZERO and move.state is State.FAILED:
                ended = _said(move.state, move.reason, move.exit_status)
                turn.note(run, AnomalyKind.CONTRADICTION, f"{facts.reason or facts.status}, yet {ended}", once=True)
        case Live():
            behind = bool(run.attempt and facts.jobs) and (attempt_of(facts) or 0) < (run.attempt or 0)
            show(turn, run, move, behind=behind)


def settle(turn: FoldStep, run: Run, verdict: Verdict, facts: RunFacts | None = None) -> None:
    """End the run by a rule's verdict."""
    output = run.said if turn.rules.hears and verdict.reason is Reason.EXIT_NONZERO else None
    if output is not None and output.error is not None:  # the order of task and provider makes no difference
        verdict = replace(verdict, reason=output.error)
    if verdict.exit_status == FORGOTTEN and turn.rules.hears and _keeps_machine(run):
        verdict = replace(verdict, state=State.STOPPED, reason=Reason.STOPPED_BY_POLICY)
    if verdict.reason is Reason.STOPPED_BY_POLICY and run.stop_idle:
        verdict = replace(verdict, reason=Reason.GPU_IDLE)
    newest = [] if facts is None else facts.newest
    whole = facts is not None and bool(newest) and len(newest) == len(facts.jobs)
    if run.terminal and run.whole_evidence and not whole:
        return
    # The provider's own time: the latest of any job's newest submission.
    finished = max((attempt.finished_at for attempt in newest if attempt.finished_at is not None), default=None)
    was, now = (run.state, run.reason, run.exit_status), (verdict.state, verdict.reason, verdict.exit_status)
    if run.terminal and was == now:
        run.whole_evidence = run.whole_evidence or whole
        run.finished_at = run.finished_at if finished is None else finished
        return
    if run.terminal and _contradicts(run, verdict):
        turn.note(run, AnomalyKind.CONTRADICTION, f"{_said(*was)}, now {_said(*now)}")
    step(turn, run, TRIGGER_TO[verdict.state], verdict.rule)
    run.reason, run.exit_status, run.rule, run.whole_evidence = verdict.reason, verdict.exit_status, verdict.rule, whole
    told_at = None if run.said is None or verdict.reason is not run.said.error else run.said.error_position
    run.evidence = (turn.position,) if told_at is None else (told_at, turn.position)
    run.finished_at = turn.at if finished is None else finished


def hear(turn: FoldStep, run: Run, seq: int, frame: bytes, *, last: bool) -> None:
    """The task reports something, or its output is no longer read. It moves no run, and ends none."""
    if run.said is None or seq <= run.said.frames or run.said.over:
        return
    run.said = heard(run.said, seq, frame, last=last, position=turn.position, at=turn.at)
    error = run.said.error if turn.rules.hears else None
    if error is not None and run.state is State.FAILED and run.reason is Reason.EXIT_NONZERO:
        run.reason, run.evidence = error, (turn.position, *run.evidence)
    turn.changed(run)


def show(turn: FoldStep, run: Run, live: Live, *, behind: bool = False) -> None:
    """Move a run that goes on, by a rule. `behind`: the observation is of an attempt already over."""
    if live.pending and not turn.rules.final and run.state is not State.REQUESTED:
        _requeue(turn, run, live.rule)
        return
    target = live.state
    if target is None and run.state in (State.REQUESTED, State.LOST):
        before = run.transitions[-1].before if run.transitions else State.REQUESTED
        target = before if run.state is State.LOST and before in PROGRESS[1:] else State.QUEUED
    if target is None:
        return
    if behind or not step(turn, run, TRIGGER_TO[target], live.rule):
        if live.sure:
            turn.note(run, AnomalyKind.ILLEGAL_TRANSITION, f"{run.state.value} → {target.value}", once=True)
        return
    run.reason, run.exit_status = None, None


def lose(turn: FoldStep, run: Run, *, not_exists: bool) -> None:
    """Mark the run lost: its source has answered long enough without it."""
    reason = Reason.DELETED if not_exists else Reason.UNKNOWN_REASON
    if run.state is State.LOST and (run.reason is reason or not not_exists):
        return
    rule = f"{turn.rules.name}/ten-answered-minutes"
    step(turn, run, Trigger.LOSE, rule)
    run.reason, run.rule, run.evidence = reason, rule, (turn.position,)


def ask_again(turn: FoldStep, run: Run, why: str) -> None:
    """Forget what is known of the run: it is of another attempt, or of another run. This is not a contradiction."""
    rule = f"{turn.rules.name}/{why}"
    begun = Trigger.REOPEN if run.terminal else Trigger.RETRY
    step(turn, run, Trigger.QUEUE if run.state is State.REQUESTED else begun, rule)
    run.reason = run.exit_status = run.finished_at = run.attempt = run.facts = run.started_at = None
    run.cost = run.cost_at = run.missing = None
    run.links, run.views, run.news_of, run.vm_id, run.start = {}, {}, None, None, None
    run.whole_evidence = False
    run.said = None if run.said is None else Said(mark=run.said.mark)
    run.later_attempts = (*run.later_attempts, Attempt(number=run.attempts + 1, position=turn.position))


def _requeue(turn: FoldStep, run: Run, rule: str) -> None:
    if run.state in (State.REQUESTED, State.QUEUED):
        return
    if run.terminal:
        sentence = _said(run.state, run.reason, run.exit_status)
        turn.note(run, AnomalyKind.CONTRADICTION, f"{sentence}, now back in the provider's queue")
    step(turn, run, Trigger.REOPEN if run.terminal else Trigger.RETRY, rule)
    run.reason = run.exit_status = run.finished_at = None
    run.whole_evidence = False


def step(turn: FoldStep, run: Run, trigger: Trigger, rule: str) -> bool:
    """Move the run if the state machine allows it; returns whether it moved."""
    after = turn.fold.step_run(run.state, trigger)
    if after is None:
        return False
    if after is not run.state:
        made = Transition(position=turn.position, at=turn.at, before=run.state, after=after, rule=rule)
        run.state, run.rule, run.evidence = after, rule, (turn.position,)
        run.transitions = (*run.transitions, made)
        turn.changes.append(run.moved(made))
    return True


def _said(state: State, reason: Reason | None, exit_status: int | None) -> str:
    words = state.value if reason is None else f"{state.value}/{reason.value}"
    return words if exit_status is None else f"{words} (exit {exit_status})"


def _contradicts(run: Run, verdict: Verdict) -> bool:
    """True if a newer verdict contradicts the earlier verdict, rather than adding what was unknown."""
    if run.state is not verdict.state:
        return True
    if run.exit_status is not None and verdict.exit_status is not None and run.exit_status != verdict.exit_status:
        return True
    return run.whole_evidence and run.reason not in (verdict.reason, Reason.UNKNOWN_REASON)


def _keeps_machine(run: Run) -> bool:
    """True if the run's program is our listener, which ends by itself when its engine is silent for too long."""
    ours = run.requested_at is not None or (run.facts is not None and run.facts.mark == run.run_id)  # or imported
    return ours and run.name is not None and gpu_named(run.name) is not None


def _shows_running(facts: RunFacts) -> bool:
    """A job is shown running; or no job shows a state, and the run itself is."""
    newest = facts.newest
    if any(job.state is State.RUNNING and job.exit_status is None for job in newest):
        return True
    silent = not any(job.ended or job.state is not None for job in newest)
    return facts.state is State.RUNNING and not facts.requeued and silent


def cost_is_whole(facts: RunFacts, scope: Scope) -> bool:
    """True if an answer's `cost` counts every submission: a provider may sum only those it returns."""
    if scope.jobs_omitted or facts.schedule is not None or facts.firing_of is not None:
        return False  # of all firings, or of the newest firings: of none alone
    if not scope.attempts_limited:
        return True
    return all(job.attempts and job.attempts[0].num == 0 for job in facts.jobs)


def heard(output: Said, seq: int, line: bytes, *, last: bool, position: int, at: int) -> Said:
    """The output of a task after one more line; an unreadable line counts as said."""
    output = replace(output, frames=seq, over=last)
    frame = None if last else read_frame(line)
    if frame is None:
        return output
    if frame.status == "COMPILING":
        output = replace(unheard(output), over=False)
    phase = _PHASES.get(frame.status)
    if phase is not None:
        step = PhaseStep(phase=phase, position=position, at=at)
        output = replace(output, phases=(*output.phases, step))
    error = _ERRORS.get(frame.status)
    if error is not None:
        output = replace(output, error=error, error_position=position)
    mark = read_mark(output.mark) if frame.status == "CHECKED" else None
    if frame.status in _LAST or (mark is not None and mark.endpoint == "checker"):
        output = replace(output, ended=True)
    return output


def unheard(output: Said) -> Said:
    """The same task restarts: its earlier reports do not count."""
    return Said(mark=output.mark, frames=output.frames)
