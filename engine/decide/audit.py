"""Compares a recorded decision with those that follow from the world it was made from. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from steno.engine.decide.decisions import Decision, decide
from steno.engine.decide.situation import Situation
from steno.engine.state.kernel_mark import KERNELS
from steno.engine.state.world import World, policy_of, source_of
from steno.events import types
from steno.events.clock import SKEW
from steno.events.subjects import DecidedAt, OfVm

_WORDS: Final[dict[str, dict[str, Any]]] = {  # fields that a later version may word, or compute, otherwise
    "RunHeld": {"detail": ""},
    "RunPlaced": {"idle": None},
    "IntentAbandoned": {"why": ""},
    "SubmitFailed": {"error": ""},
    "VmDrainStarted": {"detail": ""},
    "VmDrainCancelled": {"why": ""},
    "BudgetCrossed": {"spent": 0},
}


class Basis(NamedTuple):
    """The arguments of a decision, beside the world and the policy."""

    source: str
    at: int  # now
    watched: bool


class RecordedDecision(NamedTuple):
    position: int  # of its event
    at: int  # record time of its event
    decision: Decision
    first: int  # the first position that it may be made from
    repeated: bool  # the same was decided about its subject behind the world that it was made from

    @property
    def decided(self) -> DecidedAt | None:
        return self.decision.decided_at


def is_decision(event: types.Event) -> TypeGuard[Decision]:
    """True for a decision of a policy; false for what a user asked for, and for the outcome of a call."""
    match event:
        case types.RunHeld():
            return event.decided_at is not None or event.why != "ambiguous"
        case types.StopRequested():
            return event.by == "policy" or event.lever is not None
        case types.IntentAbandoned():
            return event.policy
        case types.SubmitFailed():  # in records of older versions it cannot be told from the provider's refusal
            return event.decided_at is not None
        case types.RunPlaced() | types.RunRequeued() | types.RunIdleWarned() | types.BudgetCrossed():
            return True
        case types.VmDrainStarted() | types.VmDrainCancelled() | types.VmStopIntended():
            return True
        case _:
            return False


def subject_of(decision: Decision) -> str:
    """The stream of what it is about: `run/ID`, `vm/ID`; of a budget's alert its threshold and total."""
    if isinstance(decision, types.BudgetCrossed):
        return f"budget/{decision.threshold}/{decision.total}"
    return f"vm/{decision.vm_id}" if isinstance(decision, OfVm) else f"run/{decision.run_id}"


def sources_of(state: World, decision: Decision) -> tuple[str, ...]:
    """The sources that may have decided it; empty: the world does not know what it is about."""
    if isinstance(decision, types.BudgetCrossed):
        return tuple(state.policies)
    if isinstance(decision, OfVm):
        vm = state.vms.get(decision.vm_id)
        return () if vm is None else (vm.source,)
    run = state.runs.get(decision.run_id)
    return () if run is None else (source_of(run),)


def derived(state: World, basis: Basis) -> tuple[Decision, ...]:
    """The decisions that follow about a source, by the policy in force."""
    source, at, watched = basis
    policy = policy_of(state, source)
    decisions = decide(state, source, policy, at, watched)
    if not source.startswith(f"{KERNELS}/"):
        return decisions
    # A kernel without a machine is told why; the words depend on the machines beneath, and on a machine's output.
    others = tuple(each for each in decisions if not isinstance(each, types.RunHeld) or each.why != "machine")
    placed = {each.run_id for each in others if isinstance(each, types.RunPlaced)}
    queue = Situation(state=state, source=source, policy=policy, now=at).queue
    waiting = (run.run_id for run in queue if run.run_id not in placed)
    return (*others, *(types.RunHeld(run_id=run_id, provider=KERNELS, why="machine") for run_id in waiting))


def fits(recorded: RecordedDecision, other: Decision, software: str) -> bool:
    """True if the two are the same decision. Its words count only if this version of the software made it, and times
    only to a few seconds if it is not known when exactly it was made.
    """
    decision = replace(recorded.decision, decided_at=None)
    if type(decision) is not type(other):
        return False
    kernel = isinstance(other, types.RunHeld) and other.provider == KERNELS and other.why == "machine"
    if recorded.decided is None or recorded.decided.software != software or kernel:
        words = _WORDS.get(type(other).__name__, {})
        decision, other = replace(decision, **words), replace(other, **words)
    if isinstance(decision, types.RunRequeued) and isinstance(other, types.RunRequeued) and recorded.decided is None:
        near = abs(decision.not_before - other.not_before) <= SKEW
        other = replace(other, not_before=decision.not_before) if near else other
    return decision == other


def unmatched(
    recorded: Sequence[RecordedDecision], followed: Iterable[Decision], software: str
) -> tuple[list[RecordedDecision], list[Decision]]:
    """(recorded without a counterpart, derived without one). Each derived decision is the counterpart of one."""
    left, open_ = defaultdict[str, list[Decision]](list), list[RecordedDecision]()
    for decision in followed:
        left[subject_of(decision)].append(decision)
    for each in recorded:
        same = left[subject_of(each.decision)]
        index = next((index for index, other in enumerate(same) if fits(each, other, software)), None)
        if index is None:
            open_.append(each)
        else:
            del same[index]
    return open_, [decision for decisions in left.values() for decision in decisions]
