"""Which run that has a place may be about to come to a machine that still looks idle."""

from collections.abc import Sequence
from typing import Final

from engine.control.decisions import Place
from engine.control.match import differences
from engine.control.scene import SLOT, Scene, terms_of
from engine.policy import MINUTE
from engine.world.runs import Run
from engine.world.vms import Vm

LANDING: Final = 5 * MINUTE
"""A run that was handed over this long ago, and was seen without a machine since, does not come to an idle one."""


def comer(scene: Scene, placed: Sequence[Place], vm: Vm) -> str | None:
    """The run that may be about to come to this machine; None: none is.

    `placed` are the runs that get their place in this very decision.
    """
    for place in placed:
        if _could_land(scene.state.runs[place.run_id], vm, slot=place.slot, meant=place.vm_id):
            return place.run_id
    for lacking in scene.lacking:
        run = lacking.run
        slot, meant = (None, None) if run.placed is None else (run.placed.slot, run.placed.vm_id)
        if not _has_waited(run) and _could_land(run, vm, slot=slot, meant=meant):
            return run.run_id
    return None


def _could_land(run: Run, vm: Vm, *, slot: str | None, meant: str | None) -> bool:
    if slot is not None:
        return vm.facts.fleet == slot
    if meant == vm.vm_id:
        return True
    terms = terms_of(run)
    if (vm.facts.fleet or "").startswith(SLOT) and not terms.fleets:
        return False
    return not differences(terms, vm)


def _has_waited(run: Run) -> bool:
    """Whether it was seen without a machine for longer than a run takes to come to an idle one."""
    since = run.placed.at if run.placed is not None else run.first_at
    return run.provider_id is not None and run.last_at - since > LANDING
