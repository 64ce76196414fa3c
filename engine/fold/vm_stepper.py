"""The VM machine, step by step."""

from typing import TypeAlias

from engine.fold.stepper import Compiled, Declared, Step
from engine.fold.vm_states import VM_EDGES, VmState, VmTrigger

VmStepper: TypeAlias = Step[VmState, VmTrigger]


class VmTableStepper(Compiled[VmState, VmTrigger]):
    """For replay."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(VM_EDGES)


class VmTransitionsStepper(Declared[VmState, VmTrigger]):
    """For the live path."""

    def __init__(self) -> None:
        super().__init__(VmState, VM_EDGES)
