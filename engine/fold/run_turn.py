"""What one observation does to one run: its words are taken down, the rules are asked, the machine is moved."""

import msgspec

from engine.facts import RunFacts
from engine.fold.change import Anomaly, AnomalyKind, Change, Moved, Transition
from engine.fold.run import Attempt, Reported, ReportedJob, Run, Said
from engine.fold.run_machine import TRIGGER_TO, RunStepper, Trigger
from engine.fold.task_reports import heard, unheard
from engine.fold.tick import Seen, Tick
from engine.providers.reading import Scope
from engine.rules.current import attempt_of, progress
from engine.rules.moves import Live, Verdict
from engine.rules.sets import RuleSet
from engine.states import PROGRESS, Reason, State


class Turn:
    """One run's turn at one tick. `changes` collects what came of it."""

    __slots__ = ("at", "changes", "position", "rules", "run", "stepper")

    def __init__(self, run: Run, *, position: int, at: int, rules: RuleSet, stepper: RunStepper) -> None:
        self.run = run
        self.position = position
        self.at = at
        self.rules = rules
        self.stepper = stepper
        self.changes: list[Change] = []

    # -- the provider's words ----------------------------------------------------------------------------------------

    def take_down(self, seen: Seen, tick: Tick, unlike: str | None = None) -> tuple[bool, bool]:
        """Write down what the provider says; (whether it says something new, whether it began a new attempt).

        An answer older than the newest one applied from the same source says nothing new. `unlike`: how the answer
        contradicts itself about this run.
        """
        run, facts = self.run, seen.facts
        source = tick.source
        if tick.started_at < run.started.get(source, tick.started_at):
            return False, False
        run.started[source] = tick.started_at
        run.last_position, run.last_at = tick.position, tick.observed_at
        run.missing = None
        if unlike is not None:
            self.note(AnomalyKind.CONTRADICTION, unlike, once=True)
        if cost_is_whole(seen.facts, tick.scope):
            run.cost, run.cost_at = seen.cost, tick.position
        if run.facts is facts or run.facts == facts:
            return run.state is State.LOST, False
        retried = self._new_attempt(facts)
        run.facts = facts
        self._report(facts)
        if run.started_at is None and _shows_running(facts) and attempt_of(facts) in (None, run.attempt):
            run.started_at = tick.observed_at
        for drift in facts.drift:
            self.note(AnomalyKind.SCHEMA_DRIFT, drift, once=True)
        return True, retried

    def _report(self, facts: RunFacts) -> None:
        run = self.run
        run.name = facts.name or run.name
        run.project = facts.project or run.project
        run.submitted_at = facts.submitted_at if facts.submitted_at is not None else run.submitted_at
        shown = [job.newest for job in facts.jobs if job.newest is not None]
        jobs = tuple(ReportedJob(job.status, job.reason, job.exit_status) for job in shown)
        run.reported = Reported(status=facts.status, reason=facts.reason, jobs=jobs or run.reported.jobs)

    def _new_attempt(self, facts: RunFacts) -> bool:
        run, attempt = self.run, attempt_of(facts)
        if attempt is None or attempt == run.attempt:
            return False
        first = run.attempt is None
        if attempt < (run.attempt or 0):
            return False
        if attempt > (run.attempt or 0):
            self._attempt(run.attempts + attempt - (run.attempt or 0))
        run.attempt = attempt
        if first:
            return False
        run.started_at = None
        run.said = None if run.said is None else unheard(run.said)
        return True

    def _attempt(self, number: int) -> None:
        self.run.later_attempts = (*self.run.later_attempts, Attempt(number=number, position=self.position))

    # -- the rules' word ---------------------------------------------------------------------------------------------

    def judge(self, facts: RunFacts, *, retried: bool) -> None:
        """Ask the rules about an observation and move the run accordingly."""
        run = self.run
        if run.terminal and self.rules.final:
            return
        move = self.rules.judge(facts, stopped_by_policy=run.stop_by == "policy")
        if retried and not self.rules.final:
            self._requeue(f"{self.rules.name}/retry")
        match move:
            case Verdict():
                self.settle(move, facts)
            case Live():
                self.show(move, behind=(attempt_of(facts) or 0) < (run.attempt or 0) and bool(facts.jobs))

    def arrive(self, rule: str) -> None:
        """The run is there and no rule has looked at it yet."""
        self.show(Live(state=State.QUEUED, rule=f"{self.rules.name}/{rule}", sure=False))

    def settle(self, verdict: Verdict, facts: RunFacts | None) -> None:
        """The run has ended, says a rule."""
        run, verdict = self.run, self._heard(verdict)
        whole = facts is not None and bool(facts.jobs) and all(job.newest is not None for job in facts.jobs)
        if run.terminal and run.whole_evidence and not whole:
            return
        finished = _finished_at(facts) if facts is not None else None
        if run.terminal and (run.state, run.reason, run.exit_status) == (
            verdict.state,
            verdict.reason,
            verdict.exit_status,
        ):
            run.whole_evidence = run.whole_evidence or whole
            if finished is not None:
                run.finished_at = finished
            return
        if run.terminal and _contradicts(run, verdict):
            self.note(
                AnomalyKind.CONTRADICTION,
                f"{_said(run.state, run.reason, run.exit_status)}, now "
                f"{_said(verdict.state, verdict.reason, verdict.exit_status)}",
            )
        self._step(TRIGGER_TO[verdict.state], verdict.rule)
        run.reason, run.exit_status, run.rule = verdict.reason, verdict.exit_status, verdict.rule
        run.evidence, run.whole_evidence = self._evidence(verdict), whole
        run.finished_at = finished if finished is not None else self.at

    def hear(self, seq: int, frame: bytes, *, last: bool) -> None:
        """The task says something, or nothing more of its output is read. It moves no run, and ends none."""
        run, said = self.run, self.run.said
        if said is None or seq <= said.frames or said.over:
            return
        run.said = heard(said, seq, frame, last=last, position=self.position, at=self.at)
        error = run.said.error if self.rules.hears else None
        if error is not None and run.state is State.FAILED and run.reason is Reason.EXIT_NONZERO:
            run.reason, run.evidence = error, (self.position, *run.evidence)
        self.changes.append(Moved(run_id=run.run_id, transition=None))

    def _heard(self, verdict: Verdict) -> Verdict:
        """A non-zero exit for the reason the task gave, where it gave one; which came first makes no difference."""
        said = self.run.said
        if said is None or said.error is None or verdict.reason is not Reason.EXIT_NONZERO or not self.rules.hears:
            return verdict
        return msgspec.structs.replace(verdict, reason=said.error)

    def _evidence(self, verdict: Verdict) -> tuple[int, ...]:
        """What the task said, where the reason is its own, then the poll that decided."""
        said = self.run.said
        if said is None or said.error_position is None or verdict.reason is not said.error:
            return (self.position,)
        return (said.error_position, self.position)

    def show(self, live: Live, *, behind: bool = False) -> None:
        """The run goes on, says a rule. `behind`: the observation is of an attempt already over."""
        run = self.run
        if live.pending and not self.rules.final and run.state is not State.REQUESTED:
            self._requeue(live.rule)
            return
        target = live.state
        if target is None and run.state is State.REQUESTED:
            target = State.QUEUED
        elif target is None and run.state is State.LOST:
            before = run.transitions[-1].before
            target = before if before in PROGRESS[1:] else State.QUEUED
        if target is None:
            return
        if behind or not self._step(TRIGGER_TO[target], live.rule):
            if live.sure:
                self.note(AnomalyKind.ILLEGAL_TRANSITION, f"{run.state.value} → {target.value}", once=True)
            return
        run.reason, run.exit_status = None, None

    def lose(self, *, not_exists: bool) -> None:
        """The source has answered long enough without the run."""
        run = self.run
        reason = Reason.DELETED if not_exists else Reason.UNKNOWN_REASON
        if run.state is State.LOST and (run.reason is reason or not not_exists):
            return
        rule = f"{self.rules.name}/ten-answered-minutes"
        self._step(Trigger.LOSE, rule)
        run.reason, run.rule, run.evidence = reason, rule, (self.position,)

    def hold(self) -> None:
        """It waits in Steno's own queue."""
        if self.run.state is State.REQUESTED:
            self._step(Trigger.QUEUE, f"{self.rules.name}/held")

    def ask_again(self, why: str) -> None:
        """What is known of the run is of another attempt, or of another run: our own knowledge, no contradiction."""
        run, rule = self.run, f"{self.rules.name}/{why}"
        if run.terminal:
            self._step(Trigger.REOPEN, rule)
        else:
            self._step(Trigger.QUEUE if run.state is State.REQUESTED else Trigger.RETRY, rule)
        run.reason = run.exit_status = run.finished_at = run.attempt = run.facts = run.started_at = None
        run.cost = run.cost_at = run.missing = None
        run.whole_evidence = False
        run.said = None if run.said is None else Said(mark=run.said.mark)
        self._attempt(run.attempts + 1)

    # -- the machine -------------------------------------------------------------------------------------------------

    def _requeue(self, rule: str) -> None:
        run = self.run
        if run.terminal:
            said = _said(run.state, run.reason, run.exit_status)
            self.note(AnomalyKind.CONTRADICTION, f"{said}, now back in the provider's queue")
            self._step(Trigger.REOPEN, rule)
        elif run.state in (State.REQUESTED, State.QUEUED):
            return
        else:
            self._step(Trigger.RETRY, rule)
        run.reason = run.exit_status = run.finished_at = None
        run.whole_evidence = False

    def _step(self, trigger: Trigger, rule: str) -> bool:
        """Move the run if the machine allows it; whether it does."""
        run = self.run
        after = self.stepper.step(run.state, trigger)
        if after is None:
            return False
        if after is not run.state:
            step = Transition(position=self.position, at=self.at, before=run.state, after=after, rule=rule)
            run.state, run.rule, run.evidence = after, rule, (self.position,)
            run.transitions = (*run.transitions, step)
            self.changes.append(Moved(run_id=run.run_id, transition=step))
        return True

    def note(self, kind: AnomalyKind, detail: str, *, once: bool = False) -> None:
        """Write down an anomaly of this run; with `once` only the first of its wording."""
        mark = f"{kind.value}: {detail}"
        if once:
            if mark in self.run.noted:
                return
            self.run.noted = (*self.run.noted, mark)
        self.changes.append(Anomaly(kind=kind, subject=f"run/{self.run.run_id}", position=self.position, detail=detail))


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


def _finished_at(facts: RunFacts) -> int | None:
    """The latest `finished_at` of any job's newest submission, the provider's own time."""
    times = [
        job.newest.finished_at for job in facts.jobs if job.newest is not None and job.newest.finished_at is not None
    ]
    return max(times) if times else None


def _shows_running(facts: RunFacts) -> bool:
    newest = [job.newest for job in facts.jobs if job.newest is not None]
    if any(job.state is State.RUNNING and job.exit_status is None for job in newest):
        return True
    return facts.state is State.RUNNING and progress(facts).state is State.RUNNING


def cost_is_whole(facts: RunFacts, scope: Scope) -> bool:
    """Whether an answer's `cost` counts every submission: a provider may sum only those it returns."""
    if scope.jobs_omitted:
        return False
    if not scope.attempts_limited:
        return True
    return all(job.attempts and job.attempts[0].num == 0 for job in facts.jobs)
