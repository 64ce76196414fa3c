"""The VM machine: its states, triggers and moves, what each state is billed as, and the reasons of an end."""

from enum import StrEnum
from typing import Final, TypeAlias

from engine.fold.state_machine import Row, StateMachine, Stepper
from engine.states import VmState


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
