"""The port of a pool: the same work on the pieces of a record at once, in other processes or on other machines."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class WorkPool(Protocol):
    """Where pieces are worked on. It starts when it is first used."""

    @property
    def size(self) -> int:
        """How many pieces keep all of it busy."""

    @property
    def least(self) -> int:
        """Events of a record from which pieces are worth the start."""

    def map(self, work: Callable[[T], R], pieces: Sequence[T], done: Callable[[T], None]) -> list[R]:
        """What `work`, a function of a module, gives of each piece, in order; both can be pickled. `done` gets each
        piece that is ready. An error of one piece ends the others and is raised here.
        """
