"""The Run machine, step by step."""

from typing import TypeAlias

from engine.fold.run_states import EDGES, State, Trigger
from engine.fold.stepper import Compiled, Declared, Step

Stepper: TypeAlias = Step[State, Trigger]


class TableStepper(Compiled[State, Trigger]):
    """For replay."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(EDGES)


class TransitionsStepper(Declared[State, Trigger]):
    """For the live path."""

    def __init__(self) -> None:
        super().__init__(State, EDGES)
