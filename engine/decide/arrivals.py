"""Which run that has a place may be about to come to a machine that still looks idle."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.decide.decisions import Place
from engine.decide.matching import differences
from engine.decide.source_view import SLOT, Scene, terms_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.policy import MINUTE
from engine.states import State

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
