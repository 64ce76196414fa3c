"""Batches on a GPU, where device code is not frozen with its process: the tensors lie in memory of a process of the
judge, which gives it away when the clock begins, and ends the clock when it has gathered entries of the outputs
(`device_judge.hpp`).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from .batches import STARTS, WRONG, Json, Over, Solution
from .cells import Cell, Cells, TimedBatch, how_ended
from .exchange import CellGone
from .framing import Teller, tail
from .layout import SIZES

_ORDER = "<14Q"  # as `steno::Order`
_COPIES = 120.0  # seconds for its process to zero the GPU's memory, or to copy a batch
_LOOK = 0.05  # seconds between two checks of whether a solution has ended
_NOTICES = 2.0  # seconds for its process to notice that a solution has ended
_KNOWN = bytes(32)  # the seed of the inputs of the call that is not timed


class Device:
    """The judge's own process on the GPU, in a cell without a solution. Every method raises `Over` (RUNTIME_ERROR) if
    the GPU reports an error.
    """

    def __init__(self, cells: Cells, program: bytes, gpu: str) -> None:
        self._cells, self._gpu = cells, gpu
        self.cell = cells.open(program, [])
        try:
            self._socket, _ = _connected(self.cell, b".", 1, time.monotonic() + _COPIES)
            self._socket.settimeout(_LOOK)
        except CellGone:
            self.failed()

    def ask(
        self, seconds: float, *numbers: int, solution: Sequence[int] = (), gone: Callable[[], bool] = lambda: False
    ) -> tuple[int, ...]:
        """Order a batch of the solution that this descriptor leads to; without numbers, compare the last batch.
        Returns the numbers of the answer; none: not within so many seconds, or the solution was `gone` before.
        """
        with suppress(OSError):  # there is no answer then
            socket.send_fds(self._socket, [struct.pack(_ORDER, *numbers, *[0] * (14 - len(numbers)))], solution)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                answer = self._socket.recv(64)
            except TimeoutError:
                until = min(until, time.monotonic() + _NOTICES) if gone() else until
            except OSError:
                self.failed()
            else:
                return struct.unpack(f"<{len(answer) // 8}q", answer) or self.failed()
        return ()

    def end(self) -> None:
        self.cell.end()
        self._socket.close()

    def failed(self) -> NoReturn:
        ended = self.cell.end()
        why = (ended.output.strip().splitlines() or [how_ended(ended)])[-1]
        message = f"the {self._gpu} reported an error: {why}"
        raise Over(WRONG, "RUNTIME_ERROR", message=message, output=tail(ended.output.strip()))


class DeviceSolution(Solution):
    """A program on a GPU. Every batch has a process of its own, which makes one call on known inputs before, to load
    code and context.
    """

    def __init__(self, cells: Cells, program: bytes, job: Json, gpu: str, teller: Teller, device: Device) -> None:
        super().__init__(cells, program, job, gpu, teller)
        self._program, self._device, self._runs = program, device, True
        self.files, self.coarse = device.cell.exchange, ""

    def run(self, calls: int, what: str, *, same: bool = False) -> tuple[TimedBatch, bytes]:
        """Time a batch on inputs drawn after the process was ready for them."""
        if not self._runs:
            self.cell, self._runs = self._cells.open(self._program, []), True
        until = time.monotonic() + STARTS
        try:
            solution, way = _connected(self.cell, self._numbers(calls), 8, until)
        except CellGone:
            self.crashed(what, late=time.monotonic() >= until)
        self._set_way(way)
        with solution:
            self._fill(_KNOWN, 1)
            self._batch(solution, 1, what)
            seed = os.urandom(32)
            self._fill(seed, calls, same=same)
            batch = self._batch(solution, calls, what)
        self.close()
        (changed,) = self._device.ask(_COPIES) or self._device.failed()
        if changed:
            message = f"{what}: {changed} entries changed after it had said that it was done"
            raise Over(WRONG, "WRONG_ANSWER", message=message)
        return batch, seed

    def close(self) -> None:
        if self._runs:
            self._runs = False
            super().close()

    def _send_case(self, calls: int, what: str) -> None:
        """Every process gets its case when it starts."""

    def _batch(self, solution: socket.socket, calls: int, what: str) -> TimedBatch:
        layout, size, limit = self._layout, SIZES[self._dtype], self._job["limits"]["case"]
        numbers = [calls, layout.input_bytes, layout.output_bytes, size, int(limit * 1000), len(layout.outputs)]
        numbers += [number for at, length in layout.outputs.values() for number in (at, length // size)]
        ask = partial(self._device.ask, limit + _COPIES, *numbers, solution=[solution.fileno()], gone=self.cell.gone)
        answer, worked = self.cell.counted(ask)
        began, came, ended = answer or self.crashed(what)
        if not came:
            self.crashed(what, late=ended - began >= 1e9 * limit)
        return TimedBatch((ended - began) / 1e6, (ended - came) / 1e6, worked, done=True)


def _connected(cell: Cell, sent: bytes, size: int, until: float) -> tuple[socket.socket, bytes]:
    """The socket of a program that reads this on its channel, connects and answers. Raises `CellGone`."""
    with cell.exchange.listen() as listening:
        cell.exchange.send(sent)
        answer = cell.exchange.receive(size, until)
        listening.settimeout(0)
        try:
            return listening.accept()[0], answer
        except BlockingIOError:
            raise CellGone from None
