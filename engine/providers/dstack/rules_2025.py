"""The rules of the first pollers (December 2025), kept to show what they made of a history.

Each judges one run by dstack's own words; the rule set's `watch` says which observations reached that poller.
"""

from functools import partial
from typing import Final

from steno.engine.rules.sets import Live, Move, ObservationFilter, RuleSet, Verdict
from steno.engine.state.facts import RunFacts
from steno.engine.state.states import Reason, State

SDK: Final = "2025-12-sdk"
ENUM: Final = "2025-12-sdk-enum"
STALE: Final = "2025-12-sdk-stale"
FIX: Final = "2025-12-fix"

TIMEOUT: Final = 600_000_000  # microseconds after first sight: the poller that knew no status gave up


def _word(facts: RunFacts) -> str | None:
    """The run's status; of another provider, dstack's word for its state."""
    if facts.status in ("done", "failed", "terminating", "terminated"):
        return facts.status
    if not facts.final:
        return "terminating" if facts.state is State.FINISHING else None
    return "failed" if facts.failed else "done" if facts.cause is Reason.EXIT_ZERO else "terminated"


def _live(facts: RunFacts, rules: str) -> Live:
    return Live(state=facts.state, rule=f"{rules}/run-status", pending=facts.requeued, sure=False)


def _judge_sdk(rules: str, facts: RunFacts) -> Move:
    """The first poller: an ending run is failed; no exit status, no reason."""
    word = _word(facts)
    if word is None:
        return _live(facts, rules)
    if word == "done":
        return Verdict(state=State.SUCCEEDED, reason=Reason.EXIT_ZERO, rule=f"{rules}/done")
    rule = "failed" if word == "failed" else "terminated-is-failure"
    return Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule=f"{rules}/{rule}")


def _judge_enum(now: int, first_seen: int) -> Move:
    """The poller that compared `runstatus.done` with `done`: nothing matches, so ten minutes end every run."""
    if now - first_seen >= TIMEOUT:
        return Verdict(state=State.FAILED, reason=Reason.TIMED_OUT, rule=f"{ENUM}/ten-minutes")
    return Live(state=State.QUEUED, rule=f"{ENUM}/no-status-matches", sure=False)


def _judge_fix(facts: RunFacts) -> Move:
    """That team's fix: the exit status of the first job's newest submission decides once the run is ending."""
    exit_status = facts.latest_exit_status

    def verdict(state: State, reason: Reason, rule: str) -> Verdict:
        return Verdict(state=state, reason=reason, exit_status=exit_status, rule=f"{FIX}/{rule}")

    match _word(facts):
        case "done":
            return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "done")
        case "failed":
            return verdict(State.FAILED, Reason.EXIT_NONZERO if exit_status else Reason.UNKNOWN_REASON, "failed")
        case "terminating" | "terminated":
            if exit_status:
                return verdict(State.FAILED, Reason.EXIT_NONZERO, "terminated-exit-nonzero")
            if exit_status == 0:
                return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "terminated-exit-zero")
            if facts.reason == "all_jobs_done":
                return verdict(State.SUCCEEDED, Reason.EXIT_ZERO, "terminated-all-jobs-done")
            return Live(state=State.RUNNING, rule=f"{FIX}/keep-polling", sure=False)
        case _:
            return _live(facts, FIX)


_first_verdict = partial(RuleSet, final=True, metadata=False)

RULE_SETS: Final = (
    _first_verdict(
        name=SDK,
        watch=ObservationFilter.EVERY,
        judge_facts=partial(_judge_sdk, SDK),
        summary="the first poller: terminating or terminated is failure",
    ),
    _first_verdict(
        name=ENUM,
        watch=ObservationFilter.CLOCK,
        judge_facts=partial(_judge_sdk, SDK),
        timeout=_judge_enum,
        summary="no status ever matches, so every run fails ten minutes after first sight",
    ),
    _first_verdict(
        name=STALE,
        watch=ObservationFilter.FIRST_OF_NAME,
        judge_facts=partial(_judge_sdk, STALE),
        summary="only the first observation of a name counts",
    ),
    _first_verdict(
        name=FIX,
        watch=ObservationFilter.NAMED_LIST,
        judge_facts=_judge_fix,
        metadata=True,
        summary="the first poller repaired: exit status of the newest submission, active-only list, by name",
    ),
)
