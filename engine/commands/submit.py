"""Submit a run: admission, the idempotency key, and the request in the record."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from engine.decide.budget import WorstCase, check
from engine.decide.placement import exceeds_limit
from engine.errors import Conflict, NameInUse, RefusedByPolicy
from engine.fold.sources import Observability, observability
from engine.fold.world_codec import WorldState, runs_of
from engine.policy import Policy
from engine.providers.readings import READINGS
from engine.providers.registry import kind
from engine.settings.policy import policy_from
from events import types
from events.errors import IdConflict, VersionConflict
from events.shape.secrets import PREFIX

if TYPE_CHECKING:
    from engine.live.journal import Journal
    from engine.providers.task import Completed
    from engine.settings.settings import Settings

_NAMESPACE = uuid.UUID("5f0d7a52-91b5-5c7b-8f0e-57e000000002")
_REQUESTS = frozenset({"RunRequested"})
_ID_DIGITS = 32  # hexadecimal digits of an event id (16 bytes)


class AcceptedRequest(msgspec.Struct, frozen=True):
    """A request in the record, at that position."""

    run_id: str
    name: str
    position: int


class Key(NamedTuple):
    """An idempotency key, bound to its sender and to the request it came with."""

    commitment: str  # to its text, which stays the sender's
    run_id: str  # derived from record, sender and text, so it survives a restart
    request_id: str  # the request event's id, derived from all of these and the request's content


def key_of(journal: "Journal", *, submitter: str, text: str, body: bytes) -> Key:
    """The key of a request with the content `body`, in canonical form; its digest uses the vault's key, because the
    content may hold secrets.
    """
    named = msgspec.json.encode([journal.record.id, submitter, text])
    commitment = journal.record.vault.commitment
    run_id, digest = str(uuid.uuid5(_NAMESPACE, named.decode())), commitment(named + body).removeprefix(PREFIX)
    return Key(commitment=commitment(text.encode()), run_id=run_id, request_id=digest[:_ID_DIGITS])


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
    provider: str, task: "Completed", submitter: str, policy: Policy, state: WorldState, now: int
) -> WorstCase | None:
    """The worst-case cost of a task that the policy admits; None if its machines are free.

    Raises:
        RefusedByPolicy: its worst case exceeds the remaining budget, or it needs more machines than the limit allows.
    """
    if policy.free:
        return None
    terms = READINGS.terms(provider, msgspec.json.encode(task.configuration), submitter, task.fallback)
    if (why := exceeds_limit(terms, policy)) is not None:
        raise RefusedByPolicy(why)
    return check(terms, policy, state, now)


def refuse_taken_name(state: WorldState, provider: str, project: str, name: str, run_id: str, now: int) -> None:
    """NameInUse if another active run than `run_id` has the name, where the provider's names are unique: a request that
    the provider does not have yet, or one of its runs by its fresh answer. Without one the provider decides.
    """
    if kind(provider).repeats_names:
        return
    source = f"{provider}/{project}"
    fresh = observability(state.sources.get(source), now) is Observability.FRESH
    for run in runs_of(state, source):
        if run.name == name and run.run_id != run_id and (fresh or run.provider_id is None):
            raise NameInUse(
                f"the active run {run.run_id} is named {name}: choose another name, or stop it first "
                f"(`steno stop {run.run_id}`)"
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
    check: Callable[[], int] | None = None,
) -> AcceptedRequest:
    """Append the request for one run, or find the one that another process appended with the same key.

    Secret values of the configuration go to the vault first, under the run's id, and only their commitments into the
    record: a request in the record has its secrets until its outcome.

    Args:
        kernel: the mark of a task whose output is read.
        check: raises if the newest world does not admit the run, else gives that world's position; called again if
            another request came after that position, so that of two requests of one name only one is appended.

    Raises:
        Conflict: the key came with another request.
    """
    from events.store.record import Batch, Unless

    concealed = journal.record.vault.conceal(msgspec.json.encode(task.configuration), owner=run_id)
    request = types.RunRequested(
        run_id=run_id,
        provider=provider,
        project=project,
        name=task.name,
        configuration=concealed,
        base=task.base,
        submitter=submitter,
        idempotency_key=None if key is None else key.commitment,
        fallback=task.fallback,
        kernel=kernel,
    )
    batch = Batch(f"run/{run_id}", (request,))
    if key is not None:
        batch = Batch(f"run/{run_id}", (request,), expected_version=0, ids=(key.request_id,))
    while True:
        unless = None if check is None else Unless(_REQUESTS, check())
        try:
            (position,) = journal.append(batch, unless=unless)
        except (VersionConflict, IdConflict) as error:
            if key is not None and (found := accepted_before(journal, key)) is not None:
                return found
            if check is None or isinstance(error, IdConflict):
                raise
        else:
            return AcceptedRequest(run_id, task.name, position)


def policy_in_force(state: WorldState, source: str, settings: "Settings") -> Policy:
    """The policy that the record has for a source, else the settings' own; see `policy_from` for errors."""
    adopted = state.policies.get(source)
    return adopted[-1].policy if adopted else policy_from(settings, source.partition("/")[0])
