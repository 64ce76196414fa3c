"""Taking requests that come from elsewhere, each of which may come twice: the same key names the same run for ever."""

import uuid
from typing import TYPE_CHECKING

import msgspec

from engine.commands.request import request_run
from engine.errors import Conflict, NameInUse, RefusedByPolicy
from engine.fold.queries import runs_of
from engine.fold.sources import Observability, observability
from engine.fold.world_codec import WorldState
from engine.money.budget import WorstCase, check
from engine.policy import Policy
from engine.readings.terms import read_terms
from events import types
from events.errors import IdConflict, VersionConflict
from events.secrets import PREFIX

if TYPE_CHECKING:
    from engine.act.journal import Journal

_NAMESPACE = uuid.UUID("5f0d7a52-91b5-5c7b-8f0e-57e000000002")
_ID_DIGITS = 32
"""Of an event's id, which has 16 bytes."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is in the record."""

    run_id: str
    name: str
    position: int
    """Of the request."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a request the same one when it comes again."""

    text: str
    """As the sender chose it."""
    run_id: str
    """Of record, sender and text alone, so that it survives a restart."""
    request_id: str
    """Of all that, and of what is asked for: the request event's own identity."""


def key_of(journal: "Journal", *, submitter: str, text: str, body: bytes) -> Key:
    """The key of a request.

    Args:
        body: what is asked for, in one fixed form. It may hold secrets, so its digest is made with the vault's key.
    """
    named = msgspec.json.encode([journal.record.id, submitter, text])
    digest = journal.record.vault.commitment(named + body).removeprefix(PREFIX)
    return Key(text=text, run_id=str(uuid.uuid5(_NAMESPACE, named.decode())), request_id=digest[:_ID_DIGITS])


def accepted_before(journal: "Journal", key: Key) -> Accepted | None:
    """What the same request led to when it came first; None where it never came.

    Raises:
        Conflict: the key came with something else.
    """
    first = next(iter(journal.record.read(stream=f"run/{key.run_id}", limit=1)), None)
    if first is None:
        return None
    if first.event_id != key.request_id or not isinstance(first.data, types.RunRequested):
        raise Conflict(
            f"this key was used at position {first.position} to ask for something else: take a new key, or repeat the "
            "request as it was"
        )
    return Accepted(run_id=key.run_id, name=first.data.name, position=first.position)


def accept_run(
    journal: "Journal",
    *,
    run_id: str,
    provider: str,
    project: str,
    name: str,
    configuration: dict[str, object],
    submitter: str,
    key: Key | None = None,
    kernel: bytes | None = None,
) -> Accepted:
    """Append the request for one run, or find that another process just did.

    Raises:
        Conflict: the key came with something else meanwhile.
    """
    try:
        position = request_run(
            journal,
            journal.record.vault,
            run_id=run_id,
            provider=provider,
            project=project,
            name=name,
            configuration=configuration,
            submitter=submitter,
            idempotency_key=None if key is None else key.text,
            kernel=kernel,
            request_id=None if key is None else key.request_id,
        )
    except (VersionConflict, IdConflict):
        found = None if key is None else accepted_before(journal, key)
        if found is None:
            raise
        return found
    return Accepted(run_id=run_id, name=name, position=position)


def refuse_taken_name(state: WorldState, source: str, name: str, now: int) -> None:
    """Refuse a name that an active run at the provider has, if somebody has just looked; else the handover finds out.

    Raises:
        NameInUse: nothing was appended.
    """
    if observability(state.sources.get(source), now) is not Observability.FRESH:
        return
    for run in runs_of(state, source):
        if run.name == name and run.provider_id is not None:
            raise NameInUse(
                f"an active run is named {name}: choose another name, or stop it first (`steno stop {run.run_id}`)"
            )


def afford(
    configuration: dict[str, object], submitter: str, policy: Policy, state: WorldState, now: int
) -> WorstCase | None:
    """The worst case of a task that policy allows; None where its machines cost nothing.

    Raises:
        RefusedByPolicy: its worst case would overrun the budget, or it needs more machines than are allowed at all.
    """
    if policy.free:
        return None
    terms = read_terms(msgspec.json.encode(configuration), submitter)
    if policy.max_vms is not None and terms.nodes > policy.max_vms:
        raise RefusedByPolicy(
            f"It needs {terms.nodes} machines at once, and the machine limit is {policy.max_vms} (`vms.max`)."
        )
    return check(terms, policy, state, now)
