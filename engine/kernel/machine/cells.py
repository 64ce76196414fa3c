"""Where strangers' programs run: the port that the judge uses, and what it gets back. A cell is one place for one
program; nothing of it is there before or after. Implementations: `here.Here` (processes of this machine, with another
user's rights where this is root) and `engine.listener.sandbox.Containers` (a container each).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SIGNALS = {
    4: ("SIGILL", ": an instruction that this processor does not have"),
    6: ("SIGABRT", ": the program gave up"),
    7: ("SIGBUS", ": memory was used that is not there"),
    8: ("SIGFPE", ": a division by zero, or a number out of range"),
    9: ("SIGKILL", ": perhaps the machine had no more memory"),
    11: ("SIGSEGV", ": memory was used that is not there"),
    25: ("SIGXFSZ", ": a file was too large"),
    31: ("SIGSYS", ": a call of the system that is not allowed"),
}


class CellGone(Exception):
    """The program ended, closed its channel, or did not answer in time; `Cell.end` tells how."""


class ProgramEnd(NamedTuple):
    code: int | None  # exit status, negative for a signal; None: ended at its time limit
    output: str  # what it printed (standard output and error), bounded: the beginning and the end
    seconds: float
    out_of_memory: bool = False
    flooded: bool = False  # killed because it printed too much


def how_ended(ended: ProgramEnd) -> str:
    """How a program ended, for people."""
    if ended.out_of_memory:
        return "it needed more memory than it may have"
    if ended.flooded:
        return "it printed more than it may"
    if ended.code is None:
        return f"it did not end within {ended.seconds:.0f} s"
    if ended.code >= 0:
        name, means = _SIGNALS.get(ended.code - 128, ("", ""))  # a shell's way to tell of a signal
        means = "" if name == "SIGKILL" else means  # memory that ran out is told by `out_of_memory` there
        return f"it exited with status {ended.code}" + (f", as after {name}{means}" if name else "")
    name, means = _SIGNALS.get(-ended.code, (f"signal {-ended.code}", ""))
    return f"it was ended by {name}{means}"


class Cell(ABC):
    """A running program with a channel: its descriptors 3 (reads) and 4 (writes). All else that it writes is output."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write to the channel. Raises `CellGone`."""

    @abstractmethod
    def receive(self, size: int, until: float) -> bytes:
        """Exactly `size` bytes of the channel, before the monotonic time `until`. Raises `CellGone`."""

    @abstractmethod
    def threads(self) -> int | None:
        """How many threads there are in the cell, counted from outside; None: cannot be counted."""

    @abstractmethod
    def cpu_ms(self) -> float | None:
        """Milliseconds that processors have worked for the cell, counted from outside; None: cannot be counted."""

    @abstractmethod
    def end(self) -> ProgramEnd:
        """End every process of the cell, if there are any, and remove the cell; idempotent."""


class Cells(ABC):
    """Makes cells of one kind. `compilers`: the programs looked for there, and what they say of their version.
    `objects`: what was compiled of the judge's own code, in cells without a solution.
    """

    def __init__(self) -> None:
        self.compilers: dict[str, str | None] = {}
        self.objects: dict[tuple[str, ...], bytes] = {}

    @abstractmethod
    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        """Run a program to its end in an empty folder with these files; the file `takes` of that folder is read
        afterwards: a regular file of at most `cap` bytes, else None. `limit`: seconds.
        """

    @abstractmethod
    def open(self, program: bytes, words: Sequence[str], *, limit: float) -> Cell:
        """Start the executable `program` with these arguments. `limit`: seconds after which the cell is ended."""

    @abstractmethod
    def interrupt(self) -> None:
        """Kill the program that runs now, if one does; from another thread."""
