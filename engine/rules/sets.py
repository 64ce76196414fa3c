"""Rule sets: which observations the rules see, what they say of them, and what would flip it.

The rule set `current` is ours, memoryless, without a time limit of its own, and the same for every provider. An
observation is decisive, or it shows where the run is. Source: the Run machine of the design (docs/concepts.md).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from sys import intern
from typing import Final

import msgspec

from steno.engine.rules.cases import AttemptCase, RunCase, attempt_case, case_of
from steno.engine.state.facts import JobFacts, RunFacts
from steno.engine.state.states import PROGRESS, Reason, State


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, by a rule."""

    state: State
    reason: Reason
    exit_status: int | None = None
    rule: str

    def __str__(self) -> str:
        return f"{self.state.value}/{self.reason.value}"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The run is not over, by a rule."""

    state: State | None  # None: the observation does not say; the run stays where it is
    rule: str
    pending: bool = False  # the provider requeued the run, whatever it did before
    sure: bool = (
        True  # false: the observation may lag: it moves the run forward only, and is not an anomaly when behind
    )

    def __str__(self) -> str:
        return "no verdict yet" if self.state is None else f"no verdict yet ({self.state.value})"


Move = Verdict | Live


class ObservationFilter(StrEnum):
    """The observations that a rule set looks at."""

    EVERY = "every"  # every answer that shows the run
    FIRST_OF_NAME = "first-of-name"  # only the first that ever showed a run of that name
    CLOCK = "clock"  # none: only the time since first sight
    NAMED_LIST = "named-list"  # what the client's `runs.list()` would return, matched by name


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """A named way to fold a history."""

    name: str
    texts: tuple[str, ...] = ()  # of a rule file: its own, then those of the sets that it extends
    watch: ObservationFilter
    judge: Callable[[RunCase], Move] | None = None
    """The meaning of an observation; None: it needs more than its case."""
    judge_facts: Callable[[RunFacts], Move] | None = None  # the same, of a rule set that sees facts
    final: bool  # the first verdict stays, whatever comes
    metadata: bool  # it uses exit status and cost
    timeout: Callable[[int, int], Move] | None = None
    """(now, first sight of the run) → what it says of a run by the time alone; None: nothing."""
    hears: bool = False  # a task's own reports explain a nonzero exit status
    summary: str

    def move(self, facts: RunFacts, *, stopped_by_policy: bool = False) -> Move:
        """The meaning of one observation. `stopped_by_policy`: our newest request to stop came from a policy."""
        if self.judge is not None:
            return self.judge(case_of(facts, stopped_by_policy=stopped_by_policy))
        assert self.judge_facts is not None  # noqa: S101 - a rule set sees cases or facts
        return self.judge_facts(facts)


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that could have gone otherwise, and the verdict of the rules then."""

    change: str  # `had the job exited 0`
    facts: RunFacts  # the whole observation as it would have been
    verdict: str  # `succeeded/exit_zero`

    def __str__(self) -> str:
        return f"{self.change}: {self.verdict}"


def flips(
    facts: RunFacts, judge: Callable[[RunFacts], Move], alternatives: Iterable[tuple[str, RunFacts]]
) -> tuple[Flip, ...]:
    """The alternatives to an observation (`Reading.alternatives`) of which the rules say another thing."""
    given = str(judge(facts))
    candidates = (Flip(change=change, facts=other, verdict=str(judge(other))) for change, other in alternatives)
    return tuple(flip for flip in candidates if flip.verdict != given)


NAME: Final = "current@1"
_STOPS: Final = frozenset({Reason.STOPPED_BY_USER, Reason.ABORTED_BY_USER})


class Decisive(StrEnum):
    """Why an observation is enough for a verdict."""

    FINAL_STATUS = "final-status"  # the run's own status is final
    TERMINATING = "terminating-and-ended"  # it is ending and every job has ended
    ENDED = "ended-and-not-retried"  # every job has ended in a way the task's own retry policy does not cover


def judge(case: RunCase) -> Move:
    """The meaning of one observation: a function of its case, of nothing else."""
    return progress(case) if decisive(case) is None else _verdict(case)


def decisive(case: RunCase) -> Decisive | None:
    """Why this observation ends the run; None: it does not."""
    if case.final:
        return Decisive.FINAL_STATUS
    if not case.finite or case.requeued or not case.attempts:
        return None
    if case.bare or not all(attempt.ended for attempt in case.attempts):
        return None
    if case.state is State.FINISHING:
        return Decisive.TERMINATING
    explained = all(attempt.exit_status is not None or attempt.cause is not None for attempt in case.attempts)
    if any(attempt.fails and not attempt.decides for attempt in case.attempts):
        return None  # before or after its master was done: the provider's word for the run says it
    return Decisive.ENDED if explained and not any(attempt.retried for attempt in case.attempts) else None


_PENDING: Final = Live(state=State.QUEUED, rule=f"{NAME}/pending", pending=True)
_SCHEDULED: Final = Live(state=State.QUEUED, rule=f"{NAME}/scheduled", pending=True)
_TERMINATING: Final = Live(state=State.FINISHING, rule=f"{NAME}/terminating")
_EVERY_JOB_ENDING: Final = Live(state=State.FINISHING, rule=f"{NAME}/every-job-ending")
_SOME_JOBS_ENDED: Final = {
    state: Live(state=state, rule=intern(f"{NAME}/some-jobs-ended"), sure=False) for state in State
}
_BY_JOB: Final = {state: Live(state=state, rule=intern(f"{NAME}/most-advanced-job")) for state in State}
_BY_STATUS: Final = {
    state: Live(state=state, rule=intern(f"{NAME}/run-status"), sure=False) for state in (None, *State)
}  # made once: every run keeps the rules of its moves


def progress(case: RunCase) -> Live:
    """Where an observation that is not decisive shows the run: the most advanced job decides that has not ended and is
    not ending, not the lagging run. If others have, it only moves the run forward: they may have been further. If no
    job is in the answer, the run's own status may move it forward.
    """
    if case.requeued:
        return _SCHEDULED if case.scheduled else _PENDING
    if case.state is State.FINISHING:
        return _TERMINATING
    by_job = [State.FINISHING if attempt.ended else attempt.state for attempt in case.attempts]
    states = [state for state in by_job if state is not None]
    if not states:
        return _BY_STATUS[case.state]
    going = [state for state in states if state is not State.FINISHING]
    if not going:
        return _EVERY_JOB_ENDING
    furthest = going[0] if len(going) == 1 else max(going, key=PROGRESS.index)
    return (_BY_JOB if len(going) == len(states) else _SOME_JOBS_ENDED)[furthest]


def attempt_of(facts: RunFacts) -> int | None:
    """The number of the newest attempt of any job; None: no job shows one."""
    return max((attempt.num for attempt in facts.newest), default=None)


def _verdict(case: RunCase) -> Verdict:
    """The verdict of a decisive observation: the first rule that matches. Its exit status is that of the job that
    decided; if none did, the first that is not zero by (replica_num, job_num), else the first job's.
    """
    failing = _failing(case)
    exits, any_exit = _exits(case), exit_status_of(case)

    def verdict(state: State, reason: Reason, rule: str, exit_status: int | None = any_exit) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=intern(f"{NAME}/{rule}"))

    whole = bool(exits) and not case.bare
    if whole and all(status == 0 for status in exits) and not case.failed and all(job.decides for job in failing):
        rule = "all-exits-zero" if len(exits) == len(case.attempts) else "master-done"
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, rule)
    if case.cause in _STOPS:
        return verdict(
            State.STOPPED, Reason.STOPPED_BY_POLICY if case.stopped_by_policy else case.cause, "stop-asked-for"
        )
    if case.cause is Reason.EXIT_ZERO and not failing:
        return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "all-jobs-done")
    if case.cause is None and not failing:
        return verdict(State.STOPPED, Reason.UNKNOWN_REASON, "ended-unexplained")
    rule = "failed-yet-done" if case.cause is Reason.EXIT_ZERO else "failure-reported"
    last = decider_of(case)
    if last is None:
        own = case.cause is Reason.PROVIDER_ERROR
        return verdict(State.FAILED, Reason.PROVIDER_ERROR if own else Reason.UNKNOWN_REASON, rule)
    exited = Reason.EXIT_NONZERO if last.exit_status else Reason.UNKNOWN_REASON
    return verdict(State.FAILED, last.cause or exited, rule, last.exit_status)


def exit_status_of(case: RunCase) -> int | None:
    """The exit status of a run without an attempt that decided: the first that is not zero, else the first."""
    exits = _exits(case)
    return next(filter(None, exits), exits[0] if exits else None)


def _exits(case: RunCase) -> list[int | None]:
    return [attempt.exit_status for attempt in case.attempts if attempt.decides]


def decider(facts: RunFacts) -> JobFacts | None:
    """The job that decided that the run failed. None: no job; it was the provider's own fault, or no job shows a
    failure.
    """
    decided = decider_of(case_of(facts))
    return None if decided is None else next(job for job in facts.jobs if attempt_case(job) == decided)


def decider_of(case: RunCase) -> AttemptCase | None:
    """The first attempt with a cause, else with a nonzero exit status, else with a failed status."""
    if case.cause is Reason.PROVIDER_ERROR:
        return None
    return min(_failing(case), key=_failure_rank, default=None)  # the first of equals


def _failure_rank(attempt: AttemptCase) -> int:
    if attempt.cause is not None:
        return 0
    return 1 if attempt.exit_status else 2


def _failing(case: RunCase) -> list[AttemptCase]:
    """The attempts whose end makes the run fail; of a job that does not decide only if the provider does not call the
    run done.
    """
    return [job for job in case.attempts if job.fails and (job.decides or case.cause is not Reason.EXIT_ZERO)]


CURRENT: Final = RuleSet(
    name="current",
    watch=ObservationFilter.EVERY,
    judge=judge,
    final=False,
    metadata=True,
    hears=True,
    summary="ours: the newest decisive observation alone gives the verdict",
)

ADOPTED: Final = replace(
    CURRENT, name="adopted", judge=None, summary="those in force: `current`, until the record adopts others"
)
"""Stands for the rules that the record says, from each position on; see `RulesAdopted`."""
