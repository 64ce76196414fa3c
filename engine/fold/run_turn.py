"""What one event does to one run: its words are taken down, the rules are asked, the machine is moved."""

from msgspec.structs import replace

from engine.facts import AttemptFacts, RunFacts
from engine.fold.change import AnomalyKind, Moved, Transition
from engine.fold.run import Attempt, Reported, ReportedJob, Run, Said
from engine.fold.state_machines import TRIGGER_TO, Trigger
from engine.fold.task_reports import heard, unheard
from engine.fold.tick import Seen, Tick
from engine.fold.turn import Turn
from engine.providers.reading import Scope
from engine.rules.current import attempt_of, progress
from engine.rules.moves import Live, Verdict
from engine.states import PROGRESS, Reason, State

# -- the provider's words --------------------------------------------------------------------------------------------


def take_down(turn: Turn, run: Run, seen: Seen, tick: Tick, unlike: str | None = None) -> tuple[bool, bool]:
    """Write down what the provider says; (whether it says something new, whether it began a new attempt).

    An answer older than the newest one applied from the same source says nothing new. `unlike`: how the answer
    contradicts itself about this run.
    """
    facts = seen.facts
    if not turn.sees(run, tick, unlike):
        return False, False
    if cost_is_whole(facts, tick.scope):
        run.cost, run.cost_at = seen.cost, turn.position
    if run.facts is facts or run.facts == facts:
        return run.state is State.LOST, False
    retried = _is_new_attempt(turn, run, attempt_of(facts))
    run.facts = facts
    run.name = facts.name or run.name
    run.project = facts.project or run.project
    run.submitted_at = facts.submitted_at if facts.submitted_at is not None else run.submitted_at
    jobs = tuple(ReportedJob(job.status, job.reason, job.exit_status) for job in _newest(facts))
    run.reported = Reported(status=facts.status, reason=facts.reason, jobs=jobs or run.reported.jobs)
    if run.started_at is None and _shows_running(facts) and attempt_of(facts) in (None, run.attempt):
        run.started_at = turn.at
    for drift in facts.drift:
        turn.note(run, AnomalyKind.SCHEMA_DRIFT, drift, once=True)
    return True, retried


def _is_new_attempt(turn: Turn, run: Run, attempt: int | None) -> bool:
    known = run.attempt
    if attempt is None or attempt == known or attempt < (known or 0):
        return False
    if attempt > (known or 0):
        _begin_attempt(turn, run, run.attempts + attempt - (known or 0))
    run.attempt = attempt
    if known is None:
        return False
    run.started_at = None
    run.said = None if run.said is None else unheard(run.said)
    return True


def _begin_attempt(turn: Turn, run: Run, number: int) -> None:
    run.later_attempts = (*run.later_attempts, Attempt(number=number, position=turn.position))


# -- the rules' word -------------------------------------------------------------------------------------------------


def judge(turn: Turn, run: Run, facts: RunFacts, *, retried: bool = False) -> None:
    """Ask the rules about an observation and move the run accordingly."""
    rules = turn.rules
    if run.terminal and rules.final:
        return
    move = rules.judge(facts, stopped_by_policy=run.stop_by == "policy")
    if retried and not rules.final:
        _requeue(turn, run, f"{rules.name}/retry")
    match move:
        case Verdict():
            settle(turn, run, move, facts)
        case Live():
            show(turn, run, move, behind=(attempt_of(facts) or 0) < (run.attempt or 0) and bool(facts.jobs))


def arrive(turn: Turn, run: Run) -> None:
    """The run is there and no rule has looked at it yet."""
    show(turn, run, Live(state=State.QUEUED, rule=f"{turn.rules.name}/first-sight", sure=False))


def settle(turn: Turn, run: Run, verdict: Verdict, facts: RunFacts | None = None) -> None:
    """The run has ended, says a rule."""
    said = run.said if turn.rules.hears and verdict.reason is Reason.EXIT_NONZERO else None
    if said is not None and said.error is not None:  # whether the task or the provider spoke first makes no difference
        verdict = replace(verdict, reason=said.error)
    newest = [] if facts is None else _newest(facts)
    whole = facts is not None and bool(newest) and len(newest) == len(facts.jobs)
    if run.terminal and run.whole_evidence and not whole:
        return
    # The provider's own time: the latest of any job's newest submission.
    finished = max((one.finished_at for one in newest if one.finished_at is not None), default=None)
    was, now = (run.state, run.reason, run.exit_status), (verdict.state, verdict.reason, verdict.exit_status)
    if run.terminal and was == now:
        run.whole_evidence = run.whole_evidence or whole
        run.finished_at = run.finished_at if finished is None else finished
        return
    if run.terminal and _contradicts(run, verdict):
        turn.note(run, AnomalyKind.CONTRADICTION, f"{_said(*was)}, now {_said(*now)}")
    _step(turn, run, TRIGGER_TO[verdict.state], verdict.rule)
    run.reason, run.exit_status, run.rule, run.whole_evidence = verdict.reason, verdict.exit_status, verdict.rule, whole
    told_at = None if run.said is None or verdict.reason is not run.said.error else run.said.error_position
    run.evidence = (turn.position,) if told_at is None else (told_at, turn.position)
    run.finished_at = turn.at if finished is None else finished


def hear(turn: Turn, run: Run, seq: int, frame: bytes, *, last: bool) -> None:
    """The task says something, or nothing more of its output is read. It moves no run, and ends none."""
    if run.said is None or seq <= run.said.frames or run.said.over:
        return
    run.said = heard(run.said, seq, frame, last=last, position=turn.position, at=turn.at)
    error = run.said.error if turn.rules.hears else None
    if error is not None and run.state is State.FAILED and run.reason is Reason.EXIT_NONZERO:
        run.reason, run.evidence = error, (turn.position, *run.evidence)
    turn.changed(run)


def show(turn: Turn, run: Run, live: Live, *, behind: bool = False) -> None:
    """The run goes on, says a rule. `behind`: the observation is of an attempt already over."""
    if live.pending and not turn.rules.final and run.state is not State.REQUESTED:
        _requeue(turn, run, live.rule)
        return
    target = live.state
    if target is None and run.state is State.REQUESTED:
        target = State.QUEUED
    elif target is None and run.state is State.LOST:
        before = run.transitions[-1].before
        target = before if before in PROGRESS[1:] else State.QUEUED
    if target is None:
        return
    if behind or not _step(turn, run, TRIGGER_TO[target], live.rule):
        if live.sure:
            turn.note(run, AnomalyKind.ILLEGAL_TRANSITION, f"{run.state.value} → {target.value}", once=True)
        return
    run.reason, run.exit_status = None, None


def lose(turn: Turn, run: Run, *, not_exists: bool) -> None:
    """The source has answered long enough without the run."""
    reason = Reason.DELETED if not_exists else Reason.UNKNOWN_REASON
    if run.state is State.LOST and (run.reason is reason or not not_exists):
        return
    rule = f"{turn.rules.name}/ten-answered-minutes"
    _step(turn, run, Trigger.LOSE, rule)
    run.reason, run.rule, run.evidence = reason, rule, (turn.position,)


def hold(turn: Turn, run: Run) -> None:
    """It waits in Steno's own queue."""
    if run.state is State.REQUESTED:
        _step(turn, run, Trigger.QUEUE, f"{turn.rules.name}/held")


def ask_again(turn: Turn, run: Run, why: str) -> None:
    """What is known of the run is of another attempt, or of another run: our own knowledge, no contradiction."""
    rule = f"{turn.rules.name}/{why}"
    if run.terminal:
        _step(turn, run, Trigger.REOPEN, rule)
    else:
        _step(turn, run, Trigger.QUEUE if run.state is State.REQUESTED else Trigger.RETRY, rule)
    run.reason = run.exit_status = run.finished_at = run.attempt = run.facts = run.started_at = None
    run.cost = run.cost_at = run.missing = None
    run.links, run.vm_id, run.start = {}, None, None
    run.whole_evidence = False
    run.said = None if run.said is None else Said(mark=run.said.mark)
    _begin_attempt(turn, run, run.attempts + 1)


# -- the machine -----------------------------------------------------------------------------------------------------


def _requeue(turn: Turn, run: Run, rule: str) -> None:
    if run.terminal:
        said = _said(run.state, run.reason, run.exit_status)
        turn.note(run, AnomalyKind.CONTRADICTION, f"{said}, now back in the provider's queue")
        _step(turn, run, Trigger.REOPEN, rule)
    elif run.state in (State.REQUESTED, State.QUEUED):
        return
    else:
        _step(turn, run, Trigger.RETRY, rule)
    run.reason = run.exit_status = run.finished_at = None
    run.whole_evidence = False


def _step(turn: Turn, run: Run, trigger: Trigger, rule: str) -> bool:
    """Move the run if the machine allows it; whether it does."""
    after = turn.fold.step_run(run.state, trigger)
    if after is None:
        return False
    if after is not run.state:
        step = Transition(position=turn.position, at=turn.at, before=run.state, after=after, rule=rule)
        run.state, run.rule, run.evidence = after, rule, (turn.position,)
        run.transitions = (*run.transitions, step)
        turn.changes.append(Moved(run_id=run.run_id, transition=step))
    return True


def _said(state: State, reason: Reason | None, exit_status: int | None) -> str:
    words = state.value if reason is None else f"{state.value}/{reason.value}"
    return words if exit_status is None else f"{words} (exit {exit_status})"


def _contradicts(run: Run, verdict: Verdict) -> bool:
    """Whether a newer verdict takes the old one back, rather than adding what was not known yet."""
    if run.state is not verdict.state:
        return True
    if run.exit_status is not None and verdict.exit_status is not None and run.exit_status != verdict.exit_status:
        return True
    return run.whole_evidence and run.reason not in (verdict.reason, Reason.UNKNOWN_REASON)


def _newest(facts: RunFacts) -> list[AttemptFacts]:
    return [job.newest for job in facts.jobs if job.newest is not None]


def _shows_running(facts: RunFacts) -> bool:
    if any(job.state is State.RUNNING and job.exit_status is None for job in _newest(facts)):
        return True
    return facts.state is State.RUNNING and progress(facts).state is State.RUNNING


def cost_is_whole(facts: RunFacts, scope: Scope) -> bool:
    """Whether an answer's `cost` counts every submission: a provider may sum only those it returns."""
    if scope.jobs_omitted:
        return False
    if not scope.attempts_limited:
        return True
    return all(job.attempts and job.attempts[0].num == 0 for job in facts.jobs)
