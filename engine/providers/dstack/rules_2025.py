"""The rules of the first pollers (December 2025), kept to show what they made of a history.

Each judges one run by dstack's own words, as that poller saw it; which observations reached it is the rule set's
`watch`.
"""

from typing import Final

from engine.facts import RunFacts
from engine.rules.moves import Live, Move, Verdict
from engine.rules.sets import ObservationFilter, RuleSet, RunJudge
from engine.states import Reason, State

SDK: Final = "2025-12-sdk"
ENUM: Final = "2025-12-sdk-enum"
STALE: Final = "2025-12-sdk-stale"
FIX: Final = "2025-12-fix"

TIMEOUT: Final = 600_000_000
"""Microseconds after first sight at which the poller that recognised no status gave up."""


def _live(facts: RunFacts, rules: str) -> Live:
    return Live(state=facts.state, rule=f"{rules}/run-status", pending=facts.requeued, sure=False)


def _judge_sdk(facts: RunFacts, rules: str) -> Move:
    """The first poller: an ending run is a failed one; no exit status, no reason."""
    match facts.status:
        case "done":
            return Verdict(state=State.SUCCEEDED, reason=Reason.EXIT_ZERO, rule=f"{rules}/done")
        case "failed":
            return Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule=f"{rules}/failed")
        case "terminating" | "terminated":
            return Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule=f"{rules}/terminated-is-failure")
        case _:
            return _live(facts, rules)


def _judge_enum(now: int, first_seen: int) -> Move:
    """The poller that compared `runstatus.done` with `done`: nothing ever matches, so ten minutes end every run."""
    if now - first_seen >= TIMEOUT:
        return Verdict(state=State.FAILED, reason=Reason.TIMED_OUT, rule=f"{ENUM}/ten-minutes")
    return Live(state=State.QUEUED, rule=f"{ENUM}/no-status-matches", sure=False)


def _judge_fix(facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:  # noqa: ARG001 - it knew no policies
    """That team's fix: the exit status of the first job's newest submission decides once the run is ending."""
    exit_status = facts.latest_exit_status

    def verdict(state: State, reason: Reason, rule: str) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=f"{FIX}/{rule}")

    match facts.status:
        case "done":
            return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "done")
        case "failed":
            return verdict(State.FAILED, Reason.EXIT_NONZERO if exit_status else Reason.UNKNOWN_REASON, "failed")
        case "terminating" | "terminated":
            if exit_status is not None:
                if exit_status == 0:
                    return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "terminated-exit-zero")
                return verdict(State.FAILED, Reason.EXIT_NONZERO, "terminated-exit-nonzero")
            if facts.reason == "all_jobs_done":
                return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "terminated-all-jobs-done")
            return Live(state=State.RUNNING, rule=f"{FIX}/keep-polling", sure=False)
        case _:
            return _live(facts, FIX)


def _sdk(rules: str) -> RunJudge:
    def judge(facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:  # noqa: ARG001 - it knew no policies
        return _judge_sdk(facts, rules)

    return judge


RULE_SETS: Final = (
    RuleSet(
        name=SDK,
        watch=ObservationFilter.EVERY,
        judge=_sdk(SDK),
        final=True,
        metadata=False,
        summary="the first poller: terminating or terminated is failure",
    ),
    RuleSet(
        name=ENUM,
        watch=ObservationFilter.CLOCK,
        judge=_sdk(SDK),
        timeout=_judge_enum,
        final=True,
        metadata=False,
        summary="no status ever matches, so every run fails ten minutes after first sight",
    ),
    RuleSet(
        name=STALE,
        watch=ObservationFilter.FIRST_OF_NAME,
        judge=_sdk(STALE),
        final=True,
        metadata=False,
        summary="only the first observation of a name counts",
    ),
    RuleSet(
        name=FIX,
        watch=ObservationFilter.NAMED_LIST,
        judge=_judge_fix,
        final=True,
        metadata=True,
        summary="the first poller repaired: exit status of the newest submission, active-only list, by name",
    ),
)
