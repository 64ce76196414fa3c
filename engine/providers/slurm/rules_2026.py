"""The rules of the first tool on this cluster (February 2026), kept to show what they made of a history.

A job that squeue no longer lists is failed, unless accounting has its row already; COMPLETING counts as running; the
number before the colon is the exit status, whatever ended the job.
"""

from typing import Final

from steno.engine.providers.slurm.witnesses import AWAITING
from steno.engine.rules.sets import Live, Move, ObservationFilter, RuleSet, Verdict
from steno.engine.state.facts import RunFacts
from steno.engine.state.states import Reason, State

NAME: Final = "2026-02-rv"
_ENDS: Final = {
    "COMPLETED": (State.SUCCEEDED, Reason.EXIT_ZERO),
    "CANCELLED": (State.STOPPED, Reason.STOPPED_BY_USER),
    "TIMEOUT": (State.FAILED, Reason.TIMED_OUT),
    "OUT_OF_MEMORY": (State.FAILED, Reason.OUT_OF_MEMORY),
    "NODE_FAIL": (State.FAILED, Reason.NODE_FAILED),
    "PREEMPTED": (State.FAILED, Reason.INTERRUPTED),
    "FAILED": (State.FAILED, Reason.EXIT_NONZERO),
}


def _judge(facts: RunFacts) -> Move:
    newest = facts.jobs[0].newest if facts.jobs else None
    ended = None if newest is None or not newest.over else _ENDS.get(newest.status or "")
    if ended is not None and newest is not None and not facts.requeued:
        state, reason = ended
        status = newest.exit_status if state is State.FAILED and newest.exit_status is not None else 0
        return Verdict(state=state, reason=reason, exit_status=status, rule=f"{NAME}/accounting")
    if facts.reason == AWAITING:
        rule = "vanished-is-failure" if newest is None else "no-end-in-accounting-is-failure"
        return Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule=f"{NAME}/{rule}")
    if facts.status == "COMPLETING":
        return Live(state=State.RUNNING, rule=f"{NAME}/completing-is-running", sure=False)
    return Live(state=facts.state, rule=f"{NAME}/squeue", pending=facts.requeued, sure=False)


RULE_SETS: Final = (
    RuleSet(
        name=NAME,
        watch=ObservationFilter.EVERY,
        judge_facts=_judge,
        final=True,
        metadata=True,
        summary="the first tool on Slurm: a job that squeue forgot has failed",
    ),
)
