"""The states of a machine and the table between them, as data: both steppers and the diagrams read this."""

from enum import StrEnum
from typing import Final, NamedTuple


class VmState(StrEnum):
    """Where a machine is, in our words."""

    REQUESTED = "requested"  # asked for; no poll has shown it yet
    PROVISIONING = "provisioning"  # it is being made, and billed
    IDLE = "idle"  # up, no run on it
    BUSY = "busy"  # up, a run on it
    DRAINING = "draining"  # idle, and by our own intent no run comes any more; billed as idle
    TERMINATING = "terminating"  # told to go
    TERMINATED = "terminated"  # seen gone
    UNCONFIRMED = "unconfirmed"  # should be gone and was not seen gone: still billed


class VmTrigger(StrEnum):
    """What can move a machine."""

    PROVISION = "provision"
    BUSY = "busy"
    IDLE = "idle"
    DRAIN = "drain"  # our intent
    KEEP = "keep"  # a run came in the last moment, or the drain was taken back
    TERMINATE = "terminate"
    TERMINATED = "end"
    DOUBT = "doubt"  # 14 minutes after it was told to go, or no longer listed: nobody saw it go
    REAPPEAR = "reappear"  # the provider takes an end back


class VmEdge(NamedTuple):
    """One row of the table."""

    trigger: VmTrigger
    sources: tuple[VmState, ...]
    dest: VmState


VM_EDGES: Final[tuple[VmEdge, ...]] = (
    VmEdge(VmTrigger.PROVISION, (VmState.REQUESTED, VmState.UNCONFIRMED), VmState.PROVISIONING),
    VmEdge(
        VmTrigger.BUSY,
        (VmState.REQUESTED, VmState.PROVISIONING, VmState.IDLE, VmState.DRAINING, VmState.UNCONFIRMED),
        VmState.BUSY,
    ),
    VmEdge(VmTrigger.IDLE, (VmState.REQUESTED, VmState.PROVISIONING, VmState.BUSY, VmState.UNCONFIRMED), VmState.IDLE),
    VmEdge(VmTrigger.DRAIN, (VmState.IDLE,), VmState.DRAINING),
    VmEdge(VmTrigger.KEEP, (VmState.DRAINING,), VmState.IDLE),
    VmEdge(
        VmTrigger.TERMINATE,
        (
            VmState.REQUESTED,
            VmState.PROVISIONING,
            VmState.IDLE,
            VmState.BUSY,
            VmState.DRAINING,
            VmState.UNCONFIRMED,
        ),
        VmState.TERMINATING,
    ),
    VmEdge(
        VmTrigger.TERMINATED,
        tuple(state for state in VmState if state is not VmState.TERMINATED),
        VmState.TERMINATED,
    ),
    VmEdge(
        VmTrigger.DOUBT,
        tuple(state for state in VmState if state not in (VmState.TERMINATED, VmState.UNCONFIRMED)),
        VmState.UNCONFIRMED,
    ),
    VmEdge(VmTrigger.REAPPEAR, (VmState.TERMINATED,), VmState.UNCONFIRMED),
)
"""Every legal move (design: provisioning → busy, busy → terminating and any → terminated are legal)."""

BILLED: Final = frozenset(state for state in VmState if state not in (VmState.REQUESTED, VmState.TERMINATED))
"""States in which a machine may be billed: such a machine is never forgotten."""


class Phase(StrEnum):
    """What an interval of a machine's life is billed as."""

    PROVISIONING = "provisioning"
    BUSY = "busy"
    IDLE = "idle"
    TERMINATING = "terminating"
    UNCONFIRMED = "unconfirmed"


PHASE_OF: Final[dict[VmState, Phase]] = {
    VmState.PROVISIONING: Phase.PROVISIONING,
    VmState.BUSY: Phase.BUSY,
    VmState.IDLE: Phase.IDLE,
    VmState.DRAINING: Phase.IDLE,
    VmState.TERMINATING: Phase.TERMINATING,
    VmState.UNCONFIRMED: Phase.UNCONFIRMED,
}
