"""The VM machine: its states, triggers and moves, what each state is billed as, and the reasons of an end."""

from enum import StrEnum
from typing import Final, TypeAlias

from engine.fold.state_machine import Row, StateMachine, Stepper


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


class VmReason(StrEnum):
    """The reason beside the end of a machine."""

    IDLE_TIMEOUT = "idle_timeout"  # also 0.19.37's `Idle timeout`
    STOPPED_BY_POLICY = "stopped_by_policy"  # our own decision
    STOPPED_BY_USER = "stopped_by_user"
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    PROVISIONING_FAILED = "provisioning_failed"
    FLEET_DELETED = "fleet_deleted"
    PROVIDER_ERROR = "provider_error"
    UNKNOWN_REASON = "unknown_reason"


VM: Final = StateMachine(
    "vm",
    VmState,
    VmTrigger,
    (
        Row(VmTrigger.PROVISION, (VmState.REQUESTED, VmState.UNCONFIRMED), VmState.PROVISIONING),
        Row(
            VmTrigger.BUSY,
            (VmState.REQUESTED, VmState.PROVISIONING, VmState.IDLE, VmState.DRAINING, VmState.UNCONFIRMED),
            VmState.BUSY,
        ),
        Row(VmTrigger.IDLE, (VmState.REQUESTED, VmState.PROVISIONING, VmState.BUSY, VmState.UNCONFIRMED), VmState.IDLE),
        Row(VmTrigger.DRAIN, (VmState.IDLE,), VmState.DRAINING),
        Row(VmTrigger.KEEP, (VmState.DRAINING,), VmState.IDLE),
        Row(
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
        Row(
            VmTrigger.TERMINATED,
            tuple(state for state in VmState if state is not VmState.TERMINATED),
            VmState.TERMINATED,
        ),
        Row(
            VmTrigger.DOUBT,
            tuple(state for state in VmState if state not in (VmState.TERMINATED, VmState.UNCONFIRMED)),
            VmState.UNCONFIRMED,
        ),
        Row(VmTrigger.REAPPEAR, (VmState.TERMINATED,), VmState.UNCONFIRMED),
    ),
    ends=(VmState.TERMINATED,),
)

VmStepper: TypeAlias = Stepper[VmState, VmTrigger]

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
