"""Which machine a waiting run could go to, and what is in the way on each other one."""

from collections.abc import Iterator

from engine.decide.matching import differences
from engine.decide.source_view import SLOT, Scene, terms_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.states import VmState


def unfit(scene: Scene, run: Run, vm: Vm) -> tuple[str, ...]:
    """Why the run can never go to this machine, as long as both are what they are; empty: it can."""
    terms = terms_of(run)
    if terms.creation == "create":
        return ("its creation_policy is `create`: it always gets a new machine",)
    found = list(differences(terms, vm))
    if not vm.ours and not terms.fleets:
        found.append("Steno did not create the machine")
    slot, pooled = (vm.facts.fleet or "").startswith(SLOT), scene.policy.mode == "pool" and terms.nodes == 1
    if not terms.fleets and slot != pooled:
        found.append(f"it is in a {'pool slot' if slot else 'shared fleet'}, and this run uses none of those")
    if is_single_use(scene, vm):
        found.append("it was created for a run with creation_policy `create`, which shares it with no other run")
    if not is_shared_with(scene, terms.submitter, vm):
        found.append("runs of other users were on it (`vms.share` is `user`)")
    return tuple(found)


def hindrances(scene: Scene, vm: Vm) -> tuple[str, ...]:
    """Why no run can go to this machine now; empty: it is free."""
    found = list(_obstacles(vm))
    if vm.vm_id in scene.reserved:
        found.append("another run was placed on it")
    return tuple(found)


def looks_idle(vm: Vm) -> bool:
    """Whether it is free but for a run that may have been placed on it."""
    return not any(_obstacles(vm))


def _obstacles(vm: Vm) -> Iterator[str]:
    match vm.state:
        case VmState.IDLE:
            pass
        case VmState.BUSY:
            yield "it is busy"
        case VmState.DRAINING:
            yield "it is draining"
        case VmState.TERMINATING | VmState.TERMINATED | VmState.UNCONFIRMED:
            yield "it is going"
        case VmState.REQUESTED | VmState.PROVISIONING:
            yield "it is still being made"
    if vm.state is not VmState.BUSY and is_occupied(vm):
        yield "it is busy"
    if vm.wish is not None:
        yield "a user wants it gone"
    if vm.facts.unreachable:
        yield "it does not answer the provider"
    if vm.missing is not None:
        yield "the provider no longer lists it"


def is_occupied(vm: Vm) -> bool:
    """Whether anything says that a run is on it: its row, or a submission that has not ended."""
    said = vm.state in (VmState.IDLE, VmState.DRAINING) and bool(vm.facts.busy_blocks)
    return vm.state is VmState.BUSY or said or bool(vm.occupants)


def is_told(vm: Vm) -> bool:
    """Whether the provider was told to end it and has not refused; an intent without an outcome counts."""
    told = vm.told
    if told is None or told.refused_at is not None:
        return False
    return told.taken_at is None or vm.drain is None or told.position > vm.drain.position


def is_single_use(scene: Scene, vm: Vm) -> bool:
    """Whether it was made for a run that wanted a machine of its own."""
    maker = None if vm.made_for is None else scene.state.runs.get(vm.made_for)
    return maker is not None and maker.terms is not None and maker.terms.creation == "create"


def is_shared_with(scene: Scene, submitter: str, vm: Vm) -> bool:
    """Whether this user's run may follow the runs that were on it."""
    if scene.policy.share == "any":
        return True
    known = (scene.state.runs.get(run_id) for run_id in vm.runs)
    return all(run is not None and run.terms is not None and run.terms.submitter == submitter for run in known)


def by_idleness(vm: Vm) -> tuple[int, str]:
    """Sorts machines by how long they idle, the longest first; equals by their id, so that the order is one."""
    return (vm.idle_since if vm.idle_since is not None else vm.last_at, vm.vm_id)
