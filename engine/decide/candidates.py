"""Which machine a waiting run could go to, what is in the way on each other one, and which run that has a place may be
about to come to a machine that still looks idle.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.decide.decisions import Place
from engine.decide.matching import differences
from engine.decide.source_view import SLOT, Scene, terms_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.policy import MINUTE
from engine.states import State, VmState


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


# -- runs on their way ------------------------------------------------------------------------------------------------

LANDING: Final = 5 * MINUTE
"""A run that was handed over this long ago, and was seen without a machine since, does not come to an idle one."""


def comer(scene: Scene, placed: Sequence[Place], vm: Vm) -> str | None:
    """The run that may be about to come to this machine; None: none is.

    `placed` are the runs that get their place in this very decision.
    """
    coming = (one.run.run_id for one in _in_flight(scene, placed) if one.could_land(vm))
    return next(coming, None)


def claims(scene: Scene, placed: Sequence[Place], vms: Collection[Vm]) -> int:
    """How many of these machines the runs in flight take at most: each as many as it still lacks."""
    return sum(min(one.nodes, sum(map(one.could_land, vms))) for one in _in_flight(scene, placed))


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A run that has its place and may be about to come to a machine."""

    run: Run
    nodes: int
    """How many machines it lacks."""
    slot: str | None
    vm_id: str | None

    def could_land(self, vm: Vm) -> bool:
        """Whether the provider may put it on this machine."""
        if self.slot is not None:
            return vm.facts.fleet == self.slot
        if self.vm_id == vm.vm_id:
            return True
        terms = terms_of(self.run)
        if (vm.facts.fleet or "").startswith(SLOT) and not terms.fleets:
            return False
        return not differences(terms, vm)


def _in_flight(scene: Scene, placed: Sequence[Place]) -> Iterator[_InFlight]:
    for place in placed:
        run = scene.state.runs[place.run_id]
        yield _InFlight(run, terms_of(run).nodes, place.slot, place.vm_id)
    for lacking in scene.lacking:
        run = lacking.run
        if not _has_waited(run) and not _has_chosen(run):
            slot, vm_id = (None, None) if run.placed is None else (run.placed.slot, run.placed.vm_id)
            yield _InFlight(run, lacking.nodes, slot, vm_id)


def _has_chosen(run: Run) -> bool:
    """Whether the provider has said that its machine is chosen, though that has no address to be known by yet.

    Of a run of several nodes that is said as soon as one of them is.
    """
    return run.state not in (State.REQUESTED, State.QUEUED) and terms_of(run).nodes == 1


def _has_waited(run: Run) -> bool:
    """Whether it was seen without a machine for longer than a run takes to come to an idle one."""
    since = run.placed.at if run.placed is not None else run.first_at
    return run.provider_id is not None and run.last_at - since > LANDING
