"""A user's requests, checked and recorded: to submit a completed task (the idempotency key, admission), to stop a run
or a machine, and to believe that a machine is gone.
"""

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from steno.engine.decide.budget import WorstCase, check
from steno.engine.decide.idle_policy import stop_request
from steno.engine.decide.limits import OwnerLimits
from steno.engine.decide.placement import exceeds_limit
from steno.engine.decide.queue import may_be_made_again
from steno.engine.errors import Conflict, NameInUse, RefusedByPolicy
from steno.engine.live.journal import Journal
from steno.engine.providers.registry import READINGS, kind
from steno.engine.providers.task import Completed
from steno.engine.settings.settings import Settings, policy_from
from steno.engine.state.archives import refuse_archive
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.sources import Observability, observability
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, runs_of, source_of
from steno.events import types
from steno.events.errors import IdConflict, VersionConflict
from steno.events.shape.secrets import PREFIX
from steno.events.store.record import Batch, Unless

_NAMESPACE = uuid.UUID("5f0d7a52-91b5-5c7b-8f0e-57e000000002")
_REQUESTS = frozenset({"RunRequested", "BudgetMoved"})
_ID_DIGITS = 32  # hexadecimal digits of an event id (16 bytes)


Newest = Callable[[], AbstractContextManager[tuple[World, Policy, int]]]
"""Enters the world at the head of the record, with the policy in force and the time (microseconds, UTC)."""


class AcceptedRequest(msgspec.Struct, frozen=True):
    """A request in the record, at that position."""

    run_id: str
    name: str
    position: int
    worst: WorstCase | None = None  # its worst-case cost, if it was computed now


class Key(NamedTuple):
    """An idempotency key, bound to its sender and to the request it came with."""

    commitment: str  # to its text, which stays the sender's
    run_id: str  # derived from record, sender and text, so it survives a restart
    request_id: str  # the request event's id, derived from all of these and the request's content


def key_of(journal: "Journal", *, submitter: str, text: str, content: bytes) -> Key:
    """The key of a request with this content, in canonical form; its digest uses the vault's key, because the content
    may hold secrets.
    """
    named = msgspec.json.encode([journal.record.id, submitter, text])
    commitment = journal.record.vault.commitment
    run_id, digest = str(uuid.uuid5(_NAMESPACE, named.decode())), commitment(named + content).removeprefix(PREFIX)
    return Key(commitment=commitment(text.encode()), run_id=run_id, request_id=digest[:_ID_DIGITS])


def accepted_before(journal: Journal, key: Key) -> AcceptedRequest | None:
    """The result of the first request with this key, or None; Conflict if the key came with another request."""
    first = next(iter(journal.record.read(stream=f"run/{key.run_id}", limit=1)), None)
    if first is None:
        return None
    if first.event_id != key.request_id or not isinstance(first.data, types.RunRequested):
        raise Conflict(
            f"this key was used at position {first.position} for a different request: use a new key, or repeat that "
            "request unchanged"
        )
    return AcceptedRequest(key.run_id, first.data.name, first.position)


def submit(
    journal: Journal,
    *,
    run_id: str,
    provider: str,
    project: str,
    task: Completed,
    submitter: str,
    key: Key | None = None,
    newest: Newest | None = None,
) -> AcceptedRequest:
    """Admit the task of a run and append its request, or find the request that another process appended with the key.

    Secret values of the configuration go to the vault first, under the run's id, and only their commitments into the
    record: a request in the record has its secrets until its outcome.

    Args:
        newest: the world at the head of the record, which must admit the run; entered again if another request came
            meanwhile, so that of two requests of one name only one is appended. None: it needs no admission.

    Raises:
        NameInUse: another active run has the name.
        RefusedByPolicy: its worst case exceeds a remaining budget, or it needs more machines than a limit allows.
        Conflict: the key came with another request.
    """

    def admitted() -> tuple[WorstCase | None, Unless | None]:
        if newest is None:
            return None, None
        with newest() as (state, policy, now):
            _refuse_taken_name(state, f"{provider}/{project}", task.name, run_id, now)
            return _admit(provider, project, task, submitter, policy, state, now), Unless(_REQUESTS, state.position)

    worst, unless = admitted()  # first, so that the vault keeps no secret of a refused request
    request = types.RunRequested(
        run_id=run_id,
        provider=provider,
        project=project,
        name=task.name,
        configuration=journal.record.vault.conceal(msgspec.json.encode(task.configuration), owner=run_id),
        base=task.base,
        submitter=submitter,
        idempotency_key=None if key is None else key.commitment,
        fallback=task.fallback,
        kernel=task.kernel,
    )
    batch = Batch(f"run/{run_id}", (request,))
    if key is not None:
        batch = Batch(f"run/{run_id}", (request,), expected_version=0, ids=(key.request_id,))
    while True:
        try:
            (position,) = journal.append(batch, unless=unless)
        except (VersionConflict, IdConflict) as error:
            if key is not None and (accepted := accepted_before(journal, key)) is not None:
                return accepted
            if unless is None or isinstance(error, IdConflict):
                raise
            worst, unless = admitted()
        else:
            return AcceptedRequest(run_id, task.name, position, worst)


def _admit(
    provider: str, project: str, task: Completed, submitter: str, policy: Policy, state: World, now: int
) -> WorstCase | None:
    """The worst-case cost of a task that the policy admits; None if its machines are free."""
    if policy.free and not policy.limits:
        return None
    terms = READINGS.terms(provider, msgspec.json.encode(task.configuration), submitter, task.fallback)
    if not policy.free and (why := exceeds_limit(terms, policy)) is not None:
        raise RefusedByPolicy(why)
    OwnerLimits(state, policy, now).check(terms, project)
    return None if policy.free else check(terms, policy, state, now)


def _refuse_taken_name(state: World, source: str, name: str, run_id: str, now: int) -> None:
    """NameInUse if another active run has the name, where the provider's names are unique: a request that the provider
    does not have yet, or one of its runs by its fresh answer. Without one the provider decides.
    """
    if kind(source.partition("/")[0]).repeats_names:
        return
    fresh = observability(state.sources.get(source), now) is Observability.FRESH
    for run in runs_of(state, source):
        if run.name == name and run.run_id != run_id and (fresh or run.provider_id is None):
            raise NameInUse(
                f"the active run {run.run_id} is named {name}: choose another name, or stop it first "
                f"(`steno stop {run.run_id}`)"
            )


def policy_in_force(state: World, source: str, settings: Settings) -> Policy:
    """The policy that the record has for a source, else the settings' own; see `policy_from` for errors."""
    adopted = state.policies.get(source)
    return adopted[-1].policy if adopted else policy_from(settings, source.partition("/")[0])


_MAY_BE_GONE = frozenset({VmState.REQUESTED, VmState.TERMINATING, VmState.UNCONFIRMED})


def needs_stop(run: Run, state: World, settings: Settings, now: int) -> bool:
    """True if there is anything to stop; Conflict if the run is part of an archive. A run without capacity has ended,
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
    """True if the machine has not ended; Conflict if Steno did not create it, or it is part of an archive."""
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
