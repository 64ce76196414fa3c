"""Asking for something: the request goes into the record before anybody talks to a provider."""

from typing import TYPE_CHECKING

import msgspec

from engine.act.journal import Journal
from engine.fold.vm import Vm
from events import types

if TYPE_CHECKING:
    from events.store.vault import Vault


def request_run(
    journal: Journal,
    vault: "Vault",
    *,
    run_id: str,
    provider: str,
    project: str,
    name: str,
    configuration: dict[str, object],
    submitter: str,
    base: str | None = None,
    idempotency_key: str | None = None,
    fallback: tuple[str, ...] = (),
    request_id: str | None = None,
    kernel: bytes | None = None,
) -> int:
    """Append the request for one run; its position.

    Args:
        fallback: GPU models to ask for, in this order, where the first has no capacity.
        kernel: the mark of a task whose output is to be read.
        request_id: the identity of the request itself (32 hexadecimal digits), where it may come twice.

    Raises:
        VersionConflict, IdConflict: with a `request_id`, another request for that run is there; nothing was appended.

    Secret values of the configuration go to the vault under the run's id first and only their commitments into the
    record, so that a request in the record always has its secrets until its outcome.
    """
    concealed = vault.conceal(msgspec.json.encode(configuration), owner=run_id)
    request = types.RunRequested(
        run_id=run_id,
        provider=provider,
        project=project,
        name=name,
        configuration=concealed,
        base=base,
        submitter=submitter,
        idempotency_key=idempotency_key,
        fallback=fallback,
        kernel=kernel,
    )
    if request_id is None:
        return journal.run(run_id, request)
    from events.store.record import Batch

    return journal.append(Batch(f"run/{run_id}", (request,), expected_version=0, ids=(request_id,)))[0]


def request_stop(
    journal: Journal,
    *,
    run_id: str,
    provider: str,
    project: str,
    provider_id: str | None,
    name: str,
    abort: bool,
    submitter: str,
) -> int:
    """Append a user's request to end one run; its position."""
    return journal.run(
        run_id,
        types.StopRequested(
            run_id=run_id,
            provider=provider,
            project=project,
            provider_id=provider_id,
            name=name,
            abort=abort,
            by="user",
            submitter=submitter,
        ),
    )


def request_vm_stop(journal: Journal, vm: Vm, *, project: str, when_idle: bool, submitter: str) -> int:
    """Append a user's request that a machine go; its position.

    Args:
        when_idle: only once no run is on it; else a run on it is stopped first.
    """
    return journal.vm(
        vm.vm_id,
        types.VmStopRequested(
            vm_id=vm.vm_id,
            provider=vm.provider,
            project=project,
            provider_id=vm.provider_id,
            when_idle=when_idle,
            submitter=submitter,
        ),
    )


def confirm_gone(journal: Journal, vm: Vm, *, ended_at: int, submitter: str) -> int:
    """Append somebody's word that a machine is gone, whatever the provider still says; its position.

    Args:
        ended_at: when it ended, as the cloud's own console says (microseconds, UTC).
    """
    fact = types.VmGoneConfirmed(vm_id=vm.vm_id, provider=vm.provider, ended_at=ended_at, submitter=submitter)
    return journal.vm(vm.vm_id, fact)
