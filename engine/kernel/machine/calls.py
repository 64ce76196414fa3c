"""The calls of one program: a question in, its answer, and how long each took by two clocks."""

from __future__ import annotations

import math
import secrets
import struct
import time
from typing import Any, NamedTuple, NoReturn

from . import build, measure, tensors
from .cells import Cell, CellGone, Cells, how_ended
from .command import WRONG_OUTPUT
from .frames import Teller, tail

Json = dict[str, Any]

RIGHT, WRONG, BROKEN = 0, 1, 2  # exit statuses: success; the solution's fault; the problem's or machine's
POISON = 255  # what outputs are filled with before each call: no number, or -1
_LONGEST = 3600.0  # seconds of one cell with a solution, the references beside it included
_FAIR_TIME = 1.0  # seconds for what a solution started to end


class Over(Exception):
    """The job has ended with this exit status; its last frame."""

    def __init__(self, code: int, status: str, **facts: object) -> None:
        super().__init__(code)
        self.code, self.status, self.facts = code, status, facts


class Suspected(Exception):
    """What was seen that an honest solution does not do."""


class Called(NamedTuple):
    inputs: tuple[bytes, ...]
    outputs: bytes
    own_ms: float  # by the solution's clock
    wall_ms: float  # by ours
    work_ms: float | None  # of `wall_ms`, what processors worked for the cell; None: not seen, as on a GPU
    around_ms: float  # from its inputs to its outputs, without `wall_ms`; on a CPU at most what it worked


class Calls:
    def __init__(self, job: Json, cells: Cells, teller: Teller) -> None:
        self._job = job
        self._cells = cells
        self._teller = teller
        self._dtype = job["dtype"]
        self._is_command = job["language"] == "command"
        self._program = b""
        self._compiler: build.Compiler | None = None  # None: a command has none
        self._gpu = "CPU"
        self._evidence: Json = {}

    def _opened(self, program: bytes | None = None) -> Cell:
        cache = measure.GPUS["CPU" if self._is_command else self._gpu]["cache"]
        return self._cells.open(program or self._program, [str(cache)], limit=_LONGEST)

    def _configure(self, cell: Cell, case: Json, what: str) -> None:
        """Tell the harness the numbers of the case that the next calls are of."""
        entries = [one["entries"] for one in case["inputs"]] + list(case["outputs"].values())
        numbers = [*case["sizes"].values(), *entries, *case["parameters"].values()]
        try:
            cell.send(struct.pack(f"<QQ{len(numbers)}d", 2, len(numbers), *numbers))
        except CellGone:
            self._crashed(cell, what)

    def _bytes(self, case: Json) -> int:
        entries = sum(one["entries"] for one in case["inputs"]) + sum(case["outputs"].values())
        return int(entries * tensors.SIZES[self._dtype])

    def _ping(self, cell: Cell, what: str) -> tuple[float, float]:
        """Milliseconds from a question to its answer, and of processors in them (0: not seen)."""
        _, wall, work, _ = self._asked(cell, struct.pack("<QQ", 0, 0), b"", what)
        return wall, work or 0.0

    def _inputs(self, case: Json, seed: str) -> tuple[bytes, ...]:
        return tuple(
            tensors.made(
                one["entries"],
                self._dtype,
                f"{self._job['seed']}/{case['seed']}/{seed}/{index}",
                one["low"],
                one["high"],
            )
            for index, one in enumerate(case["inputs"])
        )

    def _call(self, cell: Cell, case: Json, what: str, inputs: tuple[bytes, ...]) -> Called:
        own, wall, work, before = self._asked(cell, struct.pack("<QQ", 1, POISON), b"".join(inputs), what)
        size = sum(case["outputs"].values()) * tensors.SIZES[self._dtype]
        returned = self._clocks(cell)
        try:
            outputs = cell.receive(size, until := time.monotonic() + self._job["limits"]["case"])
        except CellGone:
            self._crashed(cell, what, late=time.monotonic() >= until)
        around = min(map(sum, zip(before, self._since(cell, returned))))  # noqa: B905
        if not math.isfinite(own) or own < 0:
            raise Suspected(f"{what}: its clock says {own} ms")
        until = time.monotonic() + _FAIR_TIME
        while (self._gpu == "CPU" or self._is_command) and (cell.threads() or 1) > 1:
            if time.monotonic() > until:
                raise Suspected(f"{what}: threads or processes that it started still run after it returned")
            time.sleep(0.01)
        return Called(inputs, outputs, own, wall, work, around)

    def _work(self, cell: Cell) -> float | None:
        """Milliseconds of the cell's processors where the solution can work on nothing else."""
        return cell.cpu_ms() if self._gpu == "CPU" else None

    def _clocks(self, cell: Cell) -> tuple[float, float]:
        """Milliseconds of the clock, and of the cell's processors or else of the clock."""
        on_cpu = self._work(cell)
        now = time.perf_counter() * 1000
        return now, now if on_cpu is None else on_cpu

    def _since(self, cell: Cell, began: tuple[float, float]) -> tuple[float, float]:
        now = self._clocks(cell)
        return now[0] - began[0], now[1] - began[1]

    def _asked(
        self, cell: Cell, question: bytes, data: bytes, what: str
    ) -> tuple[float, float, float | None, tuple[float, float]]:
        """Milliseconds by its clock, by ours, and of processors, from the word to go to the word that it is done; and
        by both of ours from the `data` of the question until it is ready. The word is a random number, so that nothing
        can be answered before.
        """
        until = time.monotonic() + self._job["limits"]["case"]
        word = secrets.token_bytes(8)
        try:
            cell.send(question)  # may wait for what ran before
            asked = self._clocks(cell)
            cell.send(data)
            ready = cell.receive(8, until)
            before = self._since(cell, asked)
            worked = self._work(cell)
            began = time.perf_counter()
            cell.send(word)
            done = cell.receive(16, until)
            wall = (time.perf_counter() - began) * 1000
            on_cpu = self._work(cell)
        except CellGone:
            self._crashed(cell, what, late=time.monotonic() >= until)
        if ready != struct.pack("<Q", 1) or done[:8] != word:
            raise Suspected(f"{what}: it wrote to the channel of its results")
        work = None if worked is None or on_cpu is None else min(wall, on_cpu - worked)  # of several threads less
        return struct.unpack("<d", done[8:])[0], wall, work, before

    def _crashed(self, cell: Cell, what: str, *, late: bool = False) -> NoReturn:
        """`late`: it did not answer in time. It may end well now, since its channel is closed."""
        ended = cell.end()
        limit = self._job["limits"]["case"]
        why = {
            0: "it ended before its work was done",
            3: f"the {self._gpu} reported an error (status 3)",  # see harness.hpp
            None: f"it did not end within {limit:.0f} s",
        }.get(None if late and ended.code == 0 else ended.code)
        if self._is_command and ended.code == WRONG_OUTPUT:
            why = tail(ended.output.strip()).rpartition("\n")[2]
        message = f"{what}: {why if why is not None and not ended.out_of_memory else how_ended(ended)}"
        raise Over(WRONG, "RUNTIME_ERROR", message=message, output=tail(ended.output.strip()), seed=self._job["seed"])

    def _broken(self, message: str) -> NoReturn:
        raise Over(BROKEN, "ERROR", message=message)
