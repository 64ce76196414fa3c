"""Submit a run: admission, the idempotency key, and the request in the record."""

import uuid
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from engine.decide.budget import WorstCase, check
from engine.decide.placement import exceeds_limit
from engine.errors import Conflict, NameInUse, RefusedByPolicy
from engine.fold.sources import Observability, observability
from engine.fold.world_codec import WorldState, runs_of
from engine.policy import Policy
from engine.providers.readings import READINGS
from engine.settings.policy import policy_from
from events import types
from events.errors import IdConflict, VersionConflict
from events.shape.secrets import PREFIX

if TYPE_CHECKING:
    from engine.live.journal import Journal
    from engine.providers.task import Completed
    from engine.settings.settings import Settings

_NAMESPACE = uuid.UUID("5f0d7a52-91b5-5c7b-8f0e-57e000000002")
_ID_DIGITS = 32  # hexadecimal digits of an event id (16 bytes)


class AcceptedRequest(msgspec.Struct, frozen=True):
    """A request in the record, at that position."""

    run_id: str
    name: str
    position: int


class Key(NamedTuple):
    """An idempotency key, bound to its sender and to the request it came with."""

    text: str
    run_id: str  # derived from record, sender and text, so it survives a restart
    request_id: str  # the request event's id, derived from all of these and the request's content


def key_of(journal: "Journal", *, submitter: str, text: str, body: bytes) -> Key:
    """The key of a request with the content `body`, in canonical form; its digest uses the vault's key, because the
    content may hold secrets.
    """
    named = msgspec.json.encode([journal.record.id, submitter, text])
    digest = journal.record.vault.commitment(named + body).removeprefix(PREFIX)
    return Key(text=text, run_id=str(uuid.uuid5(_NAMESPACE, named.decode())), request_id=digest[:_ID_DIGITS])


def accepted_before(journal: "Journal", key: Key) -> AcceptedRequest | None:
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


def admit(
    provider: str,
    task: "Completed",
    submitter: str,
    policy: Policy,
    state: WorldState,
    now: int,
    *,
    elsewhere: int = 0,
) -> WorstCase | None:
    """The worst-case cost of a task that the policy admits; None if its machines are free. `elsewhere`: micro-dollars
    of the budget that other records spent, or may still spend.

    Raises:
        RefusedByPolicy: its worst case exceeds the remaining budget, or it needs more machines than the limit allows.
    """
    if policy.free:
        return None
    terms = READINGS.terms(provider, msgspec.json.encode(task.configuration), submitter, task.fallback)
    if (why := exceeds_limit(terms, policy)) is not None:
        raise RefusedByPolicy(why)
    return check(terms, policy, state, now, elsewhere=elsewhere)


def refuse_taken_name(state: WorldState, source: str, name: str, now: int) -> None:
    """NameInUse if an active run has the name by the source's fresh answer; otherwise the provider decides."""
    if observability(state.sources.get(source), now) is not Observability.FRESH:
        return
    for run in runs_of(state, source):
        if run.name == name and run.provider_id is not None:
            raise NameInUse(
                f"an active run is named {name}: choose another name, or stop it first (`steno stop {run.run_id}`)"
            )


def request_run(
    journal: "Journal",
    *,
    run_id: str,
    provider: str,
    project: str,
    task: "Completed",
    submitter: str,
    kernel: bytes | None = None,
    key: Key | None = None,
) -> AcceptedRequest:
    """Append the request for one run, or find the one that another process appended with the same key.

    Secret values of the configuration go to the vault first, under the run's id, and only their commitments into the
    record: a request in the record has its secrets until its outcome.

    Args:
        kernel: the mark of a task whose output is read.

    Raises:
        Conflict: the key came with another request.
    """
    from events.store.record import Batch

    concealed = journal.record.vault.conceal(msgspec.json.encode(task.configuration), owner=run_id)
    request = types.RunRequested(
        run_id=run_id,
        provider=provider,
        project=project,
        name=task.name,
        configuration=concealed,
        base=task.base,
        submitter=submitter,
        idempotency_key=None if key is None else key.text,
        fallback=task.fallback,
        kernel=kernel,
    )
    if key is None:
        return AcceptedRequest(run_id, task.name, journal.write(f"run/{run_id}", request))
    try:
        (position,) = journal.append(Batch(f"run/{run_id}", (request,), expected_version=0, ids=(key.request_id,)))
    except (VersionConflict, IdConflict):
        if (found := accepted_before(journal, key)) is None:
            raise
        return found
    return AcceptedRequest(run_id, task.name, position)


def policy_in_force(state: WorldState, source: str, settings: "Settings") -> Policy:
    """The policy that the record has for a source, else the settings' own; see `policy_from` for errors."""
    adopted = state.policies.get(source)
    return adopted[-1].policy if adopted else policy_from(settings, source.partition("/")[0])
