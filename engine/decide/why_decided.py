"""Why a policy decided as it did, in one sentence with the numbers that it compared: from the event and the world."""

from typing import assert_never

from steno.engine.decide.decisions import Decision
from steno.engine.decide.situation import run_name
from steno.engine.state.run import Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, policy_of, source_of
from steno.engine.wire import usd
from steno.events import types
from steno.events.clock import SECOND, duration, format_second


def why_decided(state: World, decision: Decision, at: int) -> str:
    """The reason of a decision, as a sentence. `at`: record time of its event, if the decision does not say its own."""
    at = at if decision.decided_at is None else decision.decided_at.at
    match decision:
        case types.RunPlaced():
            return f"It got its place: {_place(state, decision, at)}."
        case types.RunHeld():
            until = "" if decision.not_before is None else f", until {format_second(decision.not_before)}"
            return f"It waits ({decision.why}): {decision.detail or 'no detail is recorded'}{until}."
        case types.RunRequeued():
            wanted = "the same" if decision.gpu is None else decision.gpu
            pause = duration(max(0, decision.not_before - at) // SECOND * SECOND)
            due = format_second(decision.not_before)
            return (
                f"The provider had no machine for it, and `queue.patience` has not passed: attempt {decision.attempt} "
                f"asks for {wanted} from {due} on, {pause} later."
            )
        case types.IntentAbandoned():
            return f"It was refused: {decision.why}"
        case types.SubmitFailed():
            return f"It was given up: {decision.error}."
        case types.StopRequested() | types.RunIdleWarned():
            return _stop(state, decision, at)
        case types.VmDrainStarted():
            return f"It was drained ({decision.by}): {decision.detail or 'no detail is recorded'}."
        case types.VmDrainCancelled():
            return f"Its drain was cancelled: {decision.why}."
        case types.VmStopIntended():
            return f"It was stopped ({decision.by}): {_end(state.vms.get(decision.vm_id), at)}."
        case types.BudgetCrossed(threshold=threshold, spent=spent, total=total):
            return f"{usd(spent)} of {usd(total)} were spent, which is {threshold / 10:g} % or more."
        case _:
            assert_never(decision)


def _place(state: World, place: types.RunPlaced, at: int) -> str:
    gpu = "" if place.gpu is None else f", with {place.gpu} instead of its own GPU"
    vm = None if place.vm_id is None else state.vms.get(place.vm_id)
    if vm is not None:
        left = max((stay.until for stay in vm.occupancies if stay.until is not None and stay.until <= at), default=None)
        idle = "" if left is None else f", which was idle for {duration((at - left) // SECOND * SECOND)}"
        return f"on {vm.facts.name or vm.vm_id}{idle} and fits{gpu}"
    if place.slot is not None:
        return f"on a new machine in {place.slot}: no idle machine fits{gpu}"
    run = state.runs.get(place.run_id)
    policy = None if run is None else policy_of(state, source_of(run))
    limit = "there is no machine limit" if policy is None or policy.free or policy.max_vms is None else None
    limit = limit or f"the machine limit (now {policy.max_vms if policy else ''}, `vms.max`) was not reached"
    return f"{place.provider} chooses an idle machine or makes one, and {limit}{gpu}"


def _stop(state: World, decision: types.StopRequested | types.RunIdleWarned, at: int) -> str:
    run = state.runs.get(decision.run_id)
    if isinstance(decision, types.StopRequested) and decision.lever is not None:
        halt = None if run is None else run.halt
        why = "" if halt is None else f": {halt.why}"
        return f"It was stopped: {decision.submitter} stopped many runs at once{why}."
    since = decision.since if isinstance(decision, types.RunIdleWarned) else decision.idle_since
    if since is None:
        return f"It was stopped: {_cause(state, run)}."
    idle = f"its GPUs were idle for {duration(max(0, at - since) // SECOND * SECOND)}, since {format_second(since)}"
    if isinstance(decision, types.RunIdleWarned):
        return f"It was warned: {idle}; it is stopped at {format_second(decision.stops_at)} unless they work before."
    return f"It was stopped: {idle}, and samples after the warning show no work (`vms.busy_idle_timeout`)."


def _cause(state: World, run: Run | None) -> str:
    if run is not None and run.terms is not None and run.terms.race is not None:
        first = [other for other in state.runs.raced(run.terms.race) if other.started_at and other.stop_by != "policy"]
        names = ", ".join(run_name(state, other.run_id) for other in first) or "another"
        return f"it was requested together with others, and {names} started first"
    vm = None if run is None or run.vm_id is None else state.vms.get(run.vm_id)
    wish = "" if vm is None or vm.wish is None else f" at {format_second(vm.wish.at)}"
    return f"a user requested the stop of its machine{wish}"


def _end(vm: Vm | None, at: int) -> str:
    drains = () if vm is None else [step.at for step in vm.steps if step.after is VmState.DRAINING and step.at <= at]
    if not drains:
        return "the stop before it was not carried out"
    return f"a poll that began after its drain of {format_second(drains[-1])} showed it empty"
