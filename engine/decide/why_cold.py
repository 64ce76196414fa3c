"""Why a run did not get a warm machine, in sentences, by the recorded steps as of when it was handed over; and, from
`engine.decide.why_up`, why a machine is still up.
"""

from collections.abc import Iterator

import msgspec

from engine.decide.candidates import unfit
from engine.decide.queue import waits
from engine.decide.source_view import SLOT, Scene
from engine.decide.why_up import why_up
from engine.fold.queries import source_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.states import VmReason, VmState
from events.clock import SECOND
from events.duration import span

__all__ = ["label", "policy_at", "state_at", "why_not_warm", "why_up"]


def why_not_warm(state: WorldState, run: Run) -> tuple[str, ...]:
    """Every cause for which the run has no warm machine, the most general first; empty: it has one.

    One sentence for each machine that was there when the run was handed over, and one for the fitting machine that had
    gone last. A run that still waits is told what it waits for, and how the machines are at the last poll.
    """
    if run.start == "warm":
        return ()
    if run.terminal and not _was_handed_over(run):
        return (f"It was never submitted to {run.provider}, so no machine was chosen for it.",)
    found = []
    if run.held is not None:
        found.append(f"It waits ({run.held.why}): {waits(run.held)}.")
    if run.terms is not None and run.terms.creation == "create":
        return (*found, "Its creation_policy is `create`: it always gets a new machine.")
    at = _handed_at(state, run)
    source = source_of(run)
    scene = Scene(state=state, source=source, policy=policy_at(state, source, at), now=at)
    before = [
        vm
        for vm in state.vms.values()
        if vm.source == source
        and (vm.archive is None) == (run.archive is None)
        and vm.created < at
        and vm.made_for != run.run_id
        and vm.vm_id != run.vm_id
    ]
    there = [vm for vm in before if vm.finished_at is None or vm.finished_at > at]
    when = "" if _was_handed_over(run) else ", at the last poll"
    found += [f"{label(vm)}{when}: {_cause(scene, run, vm, at)}." for vm in there]
    gone = [vm for vm in before if vm not in there]
    if gone and not there:
        last = max(gone, key=lambda vm: (vm.finished_at or 0, vm.vm_id))
        found.append(f"{label(last)}: {_cause(scene, run, last, at)}.")
    if not before:
        found.append("There was no earlier machine.")
    return tuple(found)


def label(vm: Vm) -> str:
    """A machine as people know it: its name, which is given again, and the beginning of its id, which is not."""
    return f"{vm.facts.name or 'machine'} ({vm.vm_id[:8]})"


def policy_at(state: WorldState, source: str, at: int) -> Policy:
    """The policy in force for a source at a time; the default one where none was."""
    steps = [step for step in state.policies.get(source, ()) if step.at <= at]
    return steps[-1].policy if steps else Policy()


def state_at(vm: Vm, at: int) -> VmState | None:
    """Where the record shows the machine at a time; None: no poll had shown it yet."""
    shown = [step for step in vm.steps if step.at <= at]
    return shown[-1].after if shown else None


def _handed_at(state: WorldState, run: Run) -> int:
    """When its place was decided: of the first submission where one is known; of a run that waits, the last poll."""
    if not _was_handed_over(run) and state.last_at is not None:
        return state.last_at
    sinces = [
        one.since
        for vm_id in dict.fromkeys(run.links.values())
        for one in state.vms[vm_id].occupancies
        if one.run_id == run.run_id
    ]
    known = (run.placed.at if run.placed is not None else None, run.submitted_at, run.requested_at, run.first_at)
    return min(sinces) if sinces else next(at for at in known if at is not None)


def _cause(scene: Scene, run: Run, vm: Vm, at: int) -> str:
    """What was in the way on one machine."""
    if vm.finished_at is not None and vm.finished_at <= at:
        return _gone(vm, at)
    return "; ".join((*_state(scene, run, vm, at), *_unfit(scene, run, vm, at))) or _passed_over(scene.state, run)


def _passed_over(state: WorldState, run: Run) -> str:
    """Why a machine that was idle and fits was not the run's, as far as it is known."""
    idle = "it was idle and fits by what is recorded"
    if not _was_handed_over(run):
        return f"{idle}; the run has not been submitted to {run.provider} yet"
    if run.vm_id is None:
        return f"{idle}; {run.provider} shows no machine for the run"
    fleet = state.vms[run.vm_id].facts.fleet or ""
    if fleet.startswith(SLOT):
        return f"{idle}; Steno had chosen {fleet} for the run"
    return f"{idle}; {run.provider} chose another machine"


def _was_handed_over(run: Run) -> bool:
    return run.provider_id is not None or bool(run.former_ids)


def _gone(vm: Vm, at: int) -> str:
    ago = _about(at - (vm.finished_at or at))
    if vm.reason is VmReason.IDLE_TIMEOUT:
        left = next((step.at for step in reversed(vm.steps) if step.before in (VmState.IDLE, VmState.DRAINING)), None)
        over = "" if left is None or left > at else f"; its idle window had ended {_about(at - left)} earlier"
        return f"it had ended {ago} earlier (idle timeout){over}"
    return f"it had ended {ago} earlier ({'no reason known' if vm.reason is None else vm.reason.value})"


def _state(scene: Scene, run: Run, vm: Vm, at: int) -> Iterator[str]:
    on_it = [
        one.run_id
        for one in vm.occupancies
        if one.since < at and (one.until is None or one.until > at) and one.run_id != run.run_id
    ]
    match state_at(vm, at):
        case _ if on_it:
            names = ", ".join(_name(scene.state, run_id) for run_id in dict.fromkeys(on_it))
            yield f"it was busy with {names}"
        case VmState.BUSY:
            yield "it was busy"
        case VmState.DRAINING:
            by = "" if vm.drain is None else f" ({vm.drain.by})"
            yield f"it was draining{by}, so no new run was placed on it"
        case VmState.TERMINATING | VmState.UNCONFIRMED | VmState.TERMINATED:
            yield "it was being stopped"
        case VmState.PROVISIONING | VmState.REQUESTED:
            yield "it was still being provisioned" + (f" for {_name(scene.state, vm.made_for)}" if vm.made_for else "")
        case VmState.IDLE | None:
            pass
    if any(one.since <= at and (one.until is None or one.until > at) for one in vm.unreachable):
        yield "it was unreachable for the provider"


def _unfit(scene: Scene, run: Run, vm: Vm, at: int) -> Iterator[str]:
    if run.terms is None:
        yield "the run was not submitted through Steno, so its requirements are not known"
        return
    then = tuple(dict.fromkeys(one.run_id for one in vm.occupancies if one.since < at and one.run_id != run.run_id))
    yield from unfit(scene, run, msgspec.structs.replace(vm, runs=then))


def _about(duration: int) -> str:
    """A duration to the second: what is between two polls is not known better."""
    return span(duration // SECOND * SECOND)


def _name(state: WorldState, run_id: str) -> str:
    run = state.runs.get(run_id)
    return f"run {run_id[:8] if run is None or run.name is None else run.name}"
