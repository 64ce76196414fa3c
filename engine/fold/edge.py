"""One row of a table of moves."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

StateT = TypeVar("StateT", bound=StrEnum)
TriggerT = TypeVar("TriggerT", bound=StrEnum)
TriggerT_contra = TypeVar("TriggerT_contra", bound=StrEnum, contravariant=True)
StateT_co = TypeVar("StateT_co", bound=StrEnum, covariant=True)
TriggerT_co = TypeVar("TriggerT_co", bound=StrEnum, covariant=True)


class Edge(Protocol[StateT_co, TriggerT_co]):
    """By this trigger, from any of these states, to that state. A trigger has one row."""

    @property
    def trigger(self) -> TriggerT_co:
        """What moves it."""
        ...

    @property
    def sources(self) -> Sequence[StateT_co]:
        """From where it may move."""
        ...

    @property
    def dest(self) -> StateT_co:
        """Where it moves to."""
        ...
