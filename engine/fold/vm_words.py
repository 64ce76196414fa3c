"""What dstack's words about a machine mean in ours (0.19.37 to 0.22.5; the local provider speaks the same words)."""

from typing import Final

from engine.fold.vm_machine import VmReason, VmTrigger
from engine.providers.dstack.words import instance_reason

TRIGGER_OF: Final[dict[str, VmTrigger]] = {
    "provisioning": VmTrigger.PROVISION,
    "idle": VmTrigger.IDLE,
    "busy": VmTrigger.BUSY,
    "terminating": VmTrigger.TERMINATE,
    "terminated": VmTrigger.TERMINATED,
}
"""The status of a row → how it moves the machine. `pending`, with a price or without, is no machine yet, and a word we
do not know moves nothing.
"""

ALIVE: Final = frozenset({"provisioning", "idle", "busy"})
"""Statuses of a machine that nobody has told to go."""

_OURS: Final = {reason.value: reason for reason in VmReason}
_REASON_OF: Final[dict[str, VmReason]] = {
    "idle_timeout": VmReason.IDLE_TIMEOUT,
    "terminated_by_user": VmReason.STOPPED_BY_USER,
    "provisioning_timeout": VmReason.PROVISIONING_FAILED,
    "no_offers": VmReason.PROVISIONING_FAILED,
    "master_failed": VmReason.PROVISIONING_FAILED,
    "unreachable": VmReason.UNREACHABLE,
    "error": VmReason.PROVIDER_ERROR,
    "no_balance": VmReason.PROVIDER_ERROR,
    "job_finished": VmReason.STOPPED_BY_POLICY,
    "max_instances_limit": VmReason.STOPPED_BY_POLICY,
    "fleet_spec_mismatch": VmReason.STOPPED_BY_POLICY,
}


def reason_of(word: str | None, *, ends_are_told: bool = True) -> VmReason:
    """Why a machine goes, by the provider's word.

    A server that tells no ends (0.19.37) gives no reason in one case only: its fleet, or it itself, was deleted
    (`_terminate_fleet_instances`); later ones call that `terminated_by_user`.
    """
    if word is None:
        return VmReason.UNKNOWN_REASON if ends_are_told else VmReason.FLEET_DELETED
    known = instance_reason(word)
    if known is not None:
        return _REASON_OF[known]
    return _OURS.get(word, VmReason.UNKNOWN_REASON)
