"""Rule sets over cases for tests: `current` with other moves for some cases, and the bugs of the first pollers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as changed

from steno.engine.rules.cases import RunCase
from steno.engine.rules.sets import CURRENT, Live, Move, ObservationFilter, RuleSet, Verdict, judge
from steno.engine.state.states import Reason, State

MOVES: Final[tuple[Move, ...]] = (
    Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule="other/failed"),
    Verdict(state=State.SUCCEEDED, reason=Reason.EXIT_ZERO, exit_status=0, rule="other/succeeded"),
    Verdict(state=State.STOPPED, reason=Reason.STOPPED_BY_USER, rule="other/stopped"),
    Live(state=State.RUNNING, rule="other/running"),
    Live(state=State.FINISHING, rule="other/finishing", sure=False),
    Live(state=None, rule="other/nothing"),
    Live(state=State.QUEUED, rule="other/pending", pending=True),
)


def with_moves(moves: Mapping[RunCase, Move], name: str = "other") -> RuleSet:
    """`current`, but for these cases."""
    return with_judge(lambda case: moves.get(case) or judge(case), name)


def with_judge(function: Callable[[RunCase], Move], name: str) -> RuleSet:
    return replace(CURRENT, name=name, judge=function)


# -- what was wrong with the pollers of December 2025, each alone


def _enum(case: RunCase) -> Move:
    """No status of a run ever matches; its jobs are read."""
    return judge(changed(case, final=False, state=None, requeued=False))


def _terminated(case: RunCase) -> Move:
    """A run that ends, or was ended, has failed."""
    done = case.final and (case.failed or case.cause is None)
    if case.state is State.FINISHING or (case.final and not done and case.cause is not Reason.EXIT_ZERO):
        return Verdict(state=State.FAILED, reason=Reason.UNKNOWN_REASON, rule="terminated/is-failure")
    return judge(case)


def _no_metadata(case: RunCase) -> Move:
    """Exit statuses are not read from the answer."""
    move = judge(case)
    return changed(move, exit_status=None) if isinstance(move, Verdict) else move


ENUM: Final = with_judge(_enum, "enum")
TERMINATED: Final = with_judge(_terminated, "terminated")
NO_METADATA: Final = with_judge(_no_metadata, "no-metadata")
STALE: Final = replace(CURRENT, name="stale", watch=ObservationFilter.FIRST_OF_NAME)
"""Only the first observation of a name counts."""
