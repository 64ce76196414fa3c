"""What decisions and bills ask of a world about the machines and runs of one source."""

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.states import State

_DEFAULT = Policy()


def source_of(run: Run) -> str:
    """The source a run belongs to: `<provider>/<project>`."""
    return f"{run.provider}/{run.project}" if run.project else run.provider


def vms_of(state: WorldState, source: str) -> tuple[Vm, ...]:
    """The machines of a source not seen gone, in order of first sight: every one that may be billed is among them."""
    machines = (state.vms[vm_id] for vm_id in state.open_vms)
    return tuple(vm for vm in machines if vm.source == source and vm.archive is None)


def ours_of(state: WorldState, source: str) -> tuple[Vm, ...]:
    """As `vms_of`, the machines that Steno made: they alone count to the cap and are stopped."""
    return tuple(vm for vm in vms_of(state, source) if vm.ours)


def policy_of(state: WorldState, source: str) -> Policy:
    """The policy in force for a source; the default where none was ever adopted."""
    steps = state.policies.get(source)
    return steps[-1].policy if steps else _DEFAULT


def idle_evidence(state: WorldState, vm: Vm) -> int:
    """For how long (microseconds) polls show the machine idle, blind time left out; 0 where it is not idle.

    It ends at the last poll that listed the machine: what its source answered since about other things is no evidence.
    """
    source = state.sources.get(vm.source)
    if vm.idle_from is None or source is None:
        return 0
    unseen = max(0, (source.last_answered or 0) - vm.last_at)
    return max(0, source.answered_time - unseen - vm.idle_from)


def runs_of(state: WorldState, source: str) -> tuple[Run, ...]:
    """The runs of a source without a verdict, in order of first sight (or of request)."""
    runs = (state.runs[run_id] for run_id in state.unsettled)
    return tuple(run for run in runs if source_of(run) == source and run.archive is None)


def awaiting_machine(state: WorldState, source: str) -> tuple[Run, ...]:
    """Runs placed or handed over, not ended and not lost, that have no machine yet: each may still get one made."""
    return tuple(
        run
        for run in runs_of(state, source)
        if run.vm_id is None and run.state is not State.LOST and (run.provider_id is not None or run.placed is not None)
    )
