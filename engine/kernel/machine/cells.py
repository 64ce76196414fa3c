"""Where strangers' programs run: cells, each for one program; nothing of it is there before or after. They are
processes of this machine (`local_cells.LocalCells`), or containers (`steno.engine.listener.sandbox.Containers`).
"""

from __future__ import annotations

import shlex
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from .clock import Freezer
from .exchange import CellExchange, CellGone

T = TypeVar("T")
_ENDING = 0.5  # seconds for a program to end after the end of its channel; what it left behind may hold that open
_KNOWN = 5.0  # seconds at most until the status of a program is known that ended
_ATTEMPTS = 8  # to find a cell whose shell lives: all that wait have stopped after a restart of the container engine
_RUN = """mkdir work && cd work && cp -r "$0/files/." . || exit
{words} 3<&- 4>&-
code=$?
[ -f {takes} ] && [ ! -L {takes} ] && head -c {most} <{takes} >"$0/out"
echo $code >&4
read -r _ <&3
"""
_OPEN = 'mkdir work && cd work && cp "$0/files/program" . && exec ./program "$0" {words}'
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


class Stopped(BaseException):
    """The judge was told to stop; raised in its thread."""


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
        name, means = _SIGNALS.get(ended.code - 128, ("", ""))  # a shell's way to report a signal
        means = "" if name == "SIGKILL" else means  # memory that ran out is told by `out_of_memory` there
        return f"it exited with status {ended.code}" + (f", as after {name}{means}" if name else "")
    name, means = _SIGNALS.get(-ended.code, (f"signal {-ended.code}", ""))
    return f"it was ended by {name}{means}"


class TimedBatch(NamedTuple):
    """Milliseconds of a batch by the judge's clock."""

    ms: float  # from before the thaw until everything of the program was frozen
    late_ms: float  # the part of it after the program said that it was done
    cpu_ms: float | None  # that processors worked for the program meanwhile; None: cannot be counted
    done: bool  # False: it did not say so in time


class Cell(ABC):
    """A place for one program. Methods raise `CellGone` when the program has ended or cannot be frozen."""

    freezer: Freezer
    coarse: str = ""
    """Why its times are not exact; empty: they are exact."""

    def __init__(self, cells: Cells, folder: Path) -> None:
        self._cells = cells
        self.exchange = CellExchange(folder)
        self.began = time.monotonic()  # when its program did
        self._status: int | None = None
        self._late: float | None = None  # the limit that passed, in seconds
        self._ended: ProgramEnd | None = None

    @abstractmethod
    def status(self, wait: float) -> int | None:
        """The exit status, negative for a signal; None: the program did not end in so many seconds."""

    def kill(self) -> None:
        """Kill every process at once; also from another thread."""
        self.freezer.kill()

    def out_of_memory(self, status: int | None) -> bool:  # noqa: ARG002
        return False

    def cpu_ms(self) -> float | None:
        """Milliseconds that processors have worked for it; None: not counted."""
        return None

    def gone(self) -> bool:
        """True if the program has ended, or must be ended."""
        return self.exchange.gone

    def freeze(self) -> None:
        """Stop every process of the cell until `thaw` or `batch`; returns when all are stopped."""
        if not self.freezer.freeze():
            raise CellGone

    def thaw(self) -> None:
        self.freezer.thaw()

    def batch(self, limit: float) -> TimedBatch:
        """Thaw a frozen program until it answers that it is done, at most for so many seconds, and freeze it again."""
        answers = self.exchange.folder / "answers"
        seen, cpu_ms = self.counted(lambda: self.freezer.batch(answers, limit, self.gone))
        began, came, frozen = seen.get("began"), seen.get("came"), seen.get("frozen")
        if began is None or frozen is None:
            raise CellGone
        return TimedBatch((frozen - began) / 1e6, (frozen - (came or frozen)) / 1e6, cpu_ms, came is not None)

    def counted(self, act: Callable[[], T]) -> tuple[T, float | None]:
        """The result of `act`, and the `cpu_ms` of the program meanwhile; nothing else of these cells runs."""
        self._cells.quiet()
        before = self.cpu_ms()
        result, after = act(), self.cpu_ms()
        return result, None if before is None or after is None else after - before

    def result(self, limit: float, cap: int) -> bytes | None:
        """Wait until a program ended that `Cells.run` started, at most so many seconds; the file that was taken, if it
        has 1 to `cap` bytes. What the program left running may change them or delay them, no more.
        """
        text = b""
        try:
            while not text.endswith(b"\n") and len(text) < len("-255\n"):
                text += self.exchange.receive(1, self.began + limit)
            self._status = int(text)
        except (CellGone, ValueError):
            self._late = limit if time.monotonic() >= self.began + limit else None
            return None
        return self.exchange.taken(cap)

    def end(self) -> ProgramEnd:
        """End every process of the cell, if there are any, and remove the cell; idempotent."""
        if self._ended is None:
            try:
                self._ended = self._finish()
            finally:
                if self in self._cells.open_cells:  # once, though `_finish` failed and the cell is ended again
                    self._cells.open_cells.remove(self)
                    self._cells.give_back(self)
        return self._ended

    def close(self) -> None:
        """Remove the files; idempotent."""
        self.exchange.close()

    def _finish(self) -> ProgramEnd:
        status, seconds = self._status, time.monotonic() - self.began
        if status is None:
            with suppress(CellGone):
                self.thaw()
            gone = self.exchange.finish(0 if self._late else _ENDING)
            status = self.status(_KNOWN if gone else 0)
            if status is None:
                self.kill()
        flooded = self.exchange.flooded
        if flooded:
            status = -signal.SIGKILL
        elif self._late is not None:
            status, seconds = None, self._late
        out_of_memory = not flooded and self.out_of_memory(status)
        if self._status is not None:
            self.kill()  # what it left behind
        return ProgramEnd(status, self.exchange.printed(), seconds, out_of_memory, flooded)


class Cells(ABC):
    """Makes cells of one kind. `compilers`: the programs looked for there, and what they say of their version.
    `objects`: what was compiled of the judge's own code, in cells without a solution.
    """

    cpus: int = 1
    """Processors that a program may use."""
    ranks: bool = True
    """True if times of these cells may be compared with others."""
    python_path: str = ""
    """Where a program finds the judge's numpy, if its Python has none."""

    def __init__(self) -> None:
        self.compilers: dict[str, str | None] = {}
        self.objects: dict[tuple[object, ...], bytes] = {}
        self.open_cells = set[Cell]()
        self.stops: Callable[[], bool] = lambda: False  # whether the judge is to stop

    @abstractmethod
    def take(self) -> Cell:
        """A cell in which nothing ran."""

    @abstractmethod
    def give_back(self, cell: Cell) -> None:
        """Close and remove a cell, soon, with whatever runs in it."""

    def quiet(self) -> None:  # noqa: B027 - processes need nothing
        """Returns when nothing else runs that these cells began; nothing begins until the next program."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While programs are timed: no other judge's programs run on this machine."""
        yield

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        """Run a program to its end in an empty folder with these files; the file `takes` of that folder is read
        afterwards: a regular file of 1 to `cap` bytes, else None. `limit`: seconds.
        """
        words = {"words": shlex.join(argv), "takes": shlex.quote(takes), "most": cap + 1}
        cell = self._begun(_RUN.format(**words), files)
        try:
            taken = cell.result(limit, cap)
        finally:
            ended = cell.end()
        self.check()
        return ended, taken

    def open(self, program: bytes, words: Sequence[str]) -> Cell:
        """Start the executable `program`. Its arguments: the folder of its exchange, as it sees it, and these words."""
        return self._begun(_OPEN.format(words=shlex.join(words)), {"program": program})

    def interrupt(self) -> None:
        """Kill the programs that run now; from another thread."""
        for cell in tuple(self.open_cells):
            cell.kill()

    def check(self) -> None:
        """Raises `Stopped` if the judge is to stop; it asks often enough to stop within a second."""
        if self.stops():
            raise Stopped

    def _begun(self, script: str, files: Mapping[str, bytes]) -> Cell:
        for attempt in range(_ATTEMPTS):
            cell = self.take()
            self.open_cells.add(cell)
            try:
                self.check()  # after it is known: `interrupt` may have been before
                cell.began = time.monotonic()
                cell.exchange.begin(script, files)
                break
            except CellGone:
                if attempt + 1 < _ATTEMPTS:
                    cell.end()
            except BaseException:
                cell.end()
                raise
        return cell
