"""Where two rule sets disagree about one history."""

from dataclasses import dataclass

from engine.fold.run import Run
from engine.replay.result import JsonObject, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one rule set says of a run."""

    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]

    def to_json(self) -> JsonObject:
        """As printed by `steno replay --diff --json`."""
        return {
            "state": self.state,
            "reason": self.reason,
            "exit_status": self.exit_status,
            "rule": self.rule,
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """One run two rule sets see differently; None where a rule set does not know the run."""

    run_id: str
    name: str | None
    left: Opinion | None
    right: Opinion | None
    parts_at: int | None
    """The first position at which their states differ; None if only reason or exit status do."""


def _opinion(run: Run | None, replay: Replay) -> Opinion | None:
    if run is None:
        return None
    return Opinion(
        state=run.state.value,
        reason=None if run.reason is None else run.reason.value,
        exit_status=run.exit_status if replay.rules.metadata else None,
        rule=run.rule,
        evidence=run.evidence,
    )


def _said(opinion: Opinion | None) -> tuple[str, str | None, int | None] | None:
    return None if opinion is None else (opinion.state, opinion.reason, opinion.exit_status)


def diff(left: Replay, right: Replay) -> tuple[RunDifference, ...]:
    """The runs whose state, reason or exit status differ, in order of first sight; empty if the rule sets agree."""
    lefts = {run.run_id: run for run in left.runs}
    rights = {run.run_id: run for run in right.runs}
    found = []
    for run_id in dict.fromkeys((*lefts, *rights)):
        one, other = _opinion(lefts.get(run_id), left), _opinion(rights.get(run_id), right)
        if _said(one) != _said(other):
            run = lefts.get(run_id) or rights[run_id]
            found.append(
                RunDifference(
                    run_id=run_id,
                    name=run.name,
                    left=one,
                    right=other,
                    parts_at=_parting(lefts.get(run_id), rights.get(run_id)),
                )
            )
    return tuple(found)


def _parting(left: Run | None, right: Run | None) -> int | None:
    """The first position after which the two histories of states are not the same."""
    if left is None or right is None:
        return None
    positions = sorted({step.position for run in (left, right) for step in run.transitions})
    for position in positions:
        if _state_at(left, position) != _state_at(right, position):
            return position
    return None


def _state_at(run: Run, position: int) -> str | None:
    passed = [step.after.value for step in run.transitions if step.position <= position]
    return passed[-1] if passed else None


def diff_object(left: Replay, right: Replay) -> JsonObject:
    """What `steno replay --diff --json` prints."""
    return {
        "rules": [left.rules.name, right.rules.name],
        "events": left.events,
        "runs": len({run.run_id for run in (*left.runs, *right.runs)}),
        "differences": [
            {
                "run_id": difference.run_id,
                "name": difference.name,
                "parts_at": difference.parts_at,
                "left": None if difference.left is None else difference.left.to_json(),
                "right": None if difference.right is None else difference.right.to_json(),
            }
            for difference in diff(left, right)
        ],
    }
