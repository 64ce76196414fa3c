"""The rules of the first pollers (December 2025), kept to show what they made of a history.

Each judges one run as that poller saw it; which observations reached it is the rule set's `watch`
(`engine.rules.sets`).
"""

from typing import Final

from engine.facts import RunFacts
from engine.fold.run_machine import Reason, State
from engine.rules.moves import Live, Move, Verdict
from engine.rules.progress import state_by_run

SDK: Final = "2025-12-sdk"
ENUM: Final = "2025-12-sdk-enum"
STALE: Final = "2025-12-sdk-stale"
FIX: Final = "2025-12-fix"

TIMEOUT: Final = 600_000_000
"""Microseconds after first sight at which the poller that recognised no status gave up."""


def _live(facts: RunFacts, rules: str) -> Live:
    pending = facts.status == "pending"
    return Live(state=state_by_run(facts.status), rule=f"{rules}/run-status", pending=pending, sure=False)


def judge_sdk(facts: RunFacts, rules: str = SDK) -> Move:
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


def judge_enum(now: int, first_seen: int) -> Move:
    """The poller that compared `runstatus.done` with `done`: nothing ever matches, so ten minutes end every run."""
    if now - first_seen >= TIMEOUT:
        return Verdict(state=State.FAILED, reason=Reason.TIMED_OUT, rule=f"{ENUM}/ten-minutes")
    return Live(state=State.QUEUED, rule=f"{ENUM}/no-status-matches", sure=False)


def judge_fix(facts: RunFacts) -> Move:
    """That team's fix: the exit status of the first job's newest submission decides once the run is ending."""
    latest = facts.latest
    exit_status = None if latest is None else latest.exit_status

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
