"""Stop a run or a machine, or confirm that a machine is gone: check that it is allowed, and record the request."""

from engine.commands.submit import policy_in_force
from engine.decide.idle_policy import stop_request
from engine.decide.queue import may_be_made_again
from engine.errors import Conflict
from engine.fold.archives import refuse_archive
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, source_of
from engine.live.journal import Journal
from engine.providers.registry import kind
from engine.settings.settings import Settings
from engine.states import VmState
from events import types

_MAY_BE_GONE = frozenset({VmState.REQUESTED, VmState.TERMINATING, VmState.UNCONFIRMED})


def needs_stop(run: Run, state: WorldState, settings: Settings, now: int) -> bool:
    """Whether there is anything to stop; Conflict if the run is part of an archive. A run without capacity has ended,
    but may be submitted again.
    """
    if not run.terminal:
        refuse_archive(run, run.name or run.run_id)
        if run.schedule is not None:
            raise Conflict(
                f"{run.name or run.run_id} is a firing of a schedule, and {run.provider} stops a schedule as a whole: "
                f"`steno stop {run.schedule[:13]}`"
            )
        return True
    return may_be_made_again(run, policy_in_force(state, source_of(run), settings).queue_patience, now)


def request_stop(journal: Journal, run: Run, *, project: str, abort: bool, submitter: str) -> int:
    """Append a user's request to stop a run; its position. `abort`: at once, so that the task cannot clean up."""
    request = stop_request(run, project, by="user", submitter=submitter, abort=abort)
    return journal.write(f"run/{run.run_id}", request)


def needs_vm_stop(vm: Vm) -> bool:
    """Whether the machine has not ended; Conflict if Steno did not create it, or it is part of an archive."""
    if vm.state is VmState.TERMINATED:
        return False
    name = vm.facts.name or vm.provider_id
    refuse_archive(vm, name)
    if not vm.ours:
        own = kind(vm.provider).delete_machine.format(fleet=vm.facts.fleet or "FLEET")
        hint = f" (`{own}`)" if own else ""
        raise Conflict(
            f"Steno did not create {name} and never stops such a machine: use the provider's own command{hint}"
        )
    return True


def request_vm_stop(journal: Journal, vm: Vm, *, project: str, when_idle: bool, submitter: str) -> int:
    """Append a user's request to stop a machine, after its run (`when_idle`) or with it; its position."""
    request = types.VmStopRequested(
        vm_id=vm.vm_id,
        provider=vm.provider,
        project=project,
        provider_id=vm.provider_id,
        when_idle=when_idle,
        submitter=submitter,
    )
    return journal.write(f"vm/{vm.vm_id}", request)


def refuse_gone(vm: Vm) -> None:
    """Conflict if a poll has shown the end of the machine, or the newest poll shows it alive."""
    name = vm.facts.name or vm.provider_id
    if vm.state is VmState.TERMINATED:
        raise Conflict(f"a poll has already shown the end of {name}: `steno vms {vm.vm_id[:8]}` shows when")
    if vm.state not in _MAY_BE_GONE and vm.missing is None and not vm.facts.unreachable:
        raise Conflict(f"{name} is {vm.state} by the newest answer; `steno vms stop {name}` stops it")


def confirm_gone(journal: Journal, vm: Vm, *, ended_at: int, submitter: str) -> int:
    """Append a user's statement that a machine is gone, whatever the provider still says; its position. `ended_at`:
    when it ended by the cloud's own console (microseconds, UTC).
    """
    fact = types.VmGoneConfirmed(vm_id=vm.vm_id, provider=vm.provider, ended_at=ended_at, submitter=submitter)
    return journal.write(f"vm/{vm.vm_id}", fact)
