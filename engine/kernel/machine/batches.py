"""Batches of calls: fresh inputs in, outputs out, each compared with the problem's reference. A program's own claims do
not count, only its outputs and the judge's clock.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from . import tensors
from .cells import Cell, Cells, TimedBatch, how_ended
from .exchange import CellExchange, CellGone, OutputChanged
from .framing import Teller, tail
from .layout import SIZES, Layout

Json = dict[str, Any]

RIGHT, WRONG, BROKEN = 0, 1, 2  # exit statuses: success; the solution's fault; the problem's or machine's
WAYS = {1: "solution", 2: "solve_batch"}  # what the harness calls
STARTS = 60.0  # seconds for a program to map its files


class Over(Exception):
    """The job has ended with this exit status; its last frame."""

    def __init__(self, code: int, status: str, **facts: object) -> None:
        super().__init__(code)
        self.code, self.status, self.facts = code, status, facts


class ReferenceCell:
    """The problem's own Python, in a cell of its own: it computes one call after the other."""

    def __init__(self, cells: Cells, job: Json) -> None:
        self.job, self.check = job, cells.check
        self._kind = np.dtype(tensors.EXPECTED[job["dtype"]])
        self._starts = dict[str, int]()  # of the outputs of a call
        self._case: Json | None = None
        self.cell = cells.open(_reference_program(), [cells.python_path])
        self._send({"source": job["reference"], "dtype": job["dtype"]})

    def expected(self, case: Json, inputs: Iterable[bytes | memoryview], *, changed_by: float = 0) -> None:
        """Compute the right outputs for these inputs (pieces, in order; none: those of before); `read` gives them.

        `changed_by`: the right outputs for the inputs as float64, each larger or smaller by this share. Raises `Over`
        (ERROR) if it fails.
        """
        exchange, end = self.cell.exchange, 0
        if case is not self._case:
            self._case = case
            for name, entries in case["outputs"].items():
                self._starts[name], end = end, end + entries * self._kind.itemsize
            given = sum(tensor["entries"] * SIZES[tensor["dtype"]] for tensor in case["inputs"])
            _make_room(exchange, given, end, self.check)
        at = 0
        for piece in inputs:
            exchange.write_input(at, piece)
            at += len(piece)
        self._send({**case, "changed_by": changed_by})
        until = time.monotonic() + self.job["limits"]["reference"]
        try:
            exchange.receive(1, until)
        except CellGone:
            self._failed(late=time.monotonic() >= until)

    def read(self, name: str, start: int, end: int) -> tensors.Array:
        size = self._kind.itemsize
        try:
            data = self.cell.exchange.read_output(self._starts[name] + start * size, (end - start) * size)
        except OutputChanged:
            self._failed()
        return np.frombuffer(data, self._kind)

    def _send(self, line: Json) -> None:
        try:
            self.cell.exchange.send(json.dumps(line).encode() + b"\n")
        except CellGone:
            self._failed()

    def _failed(self, *, late: bool = False) -> NoReturn:
        ended = self.cell.end()
        lines = ended.output.strip().splitlines()
        why = f"it did not end within {self.job['limits']['reference']:.0f} s" if late else how_ended(ended)
        if lines and not late and not ended.out_of_memory:
            why = lines[-1]
        raise Over(
            BROKEN, "ERROR", message=f"the reference of the problem failed: {why}", output=tail("\n".join(lines))
        )


def _make_room(exchange: CellExchange, inputs: int, outputs: int, check: Callable[[], None]) -> None:
    """Resize the tensors. Raises `Over` (ERROR) if there is no memory."""
    try:
        exchange.resize(inputs, outputs, check)
    except OSError as error:
        message = f"this machine has no memory for the {inputs + outputs >> 20} MiB of a batch: {error.strerror}"
        raise Over(BROKEN, "ERROR", message=message) from None


def _reference_program() -> bytes:
    here, packed = Path(__file__).parent, io.BytesIO(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(packed, "a") as archive:
        archive.write(here / "reference.py", "__main__.py")
        for name in ("tensors.py", "layout.py"):
            archive.write(here / name, name)
    return packed.getvalue()


class Solution:
    """A program in its cell; it is frozen except during its batches, and while it gets a case."""

    def __init__(self, cells: Cells, program: bytes, job: Json, gpu: str, teller: Teller) -> None:
        self._cells, self._job, self._gpu, self._teller = cells, job, gpu, teller
        self._dtype = job["dtype"]
        self.cell: Cell = cells.open(program, [])
        self.files, self.coarse = self.cell.exchange, self.cell.coarse
        self.way = WAYS[1]
        self._known: tuple[Json, int] | None = None

    def configure(self, case: Json, calls: int, what: str) -> None:
        """Send it a case of which a batch has so many calls, if it has another. Raises `Over` (RUNTIME_ERROR)."""
        if self._known == (case, calls):
            return
        self._known = case, calls
        self._case, self._layout = case, Layout(case, self._dtype)
        layout = self._layout
        _make_room(self.files, calls * layout.input_bytes, calls * layout.output_bytes, self._cells.check)
        self._send_case(calls, what)

    def _send_case(self, calls: int, what: str) -> None:
        until = time.monotonic() + STARTS
        try:
            self.cell.thaw()
            self.files.order(0)
            self.files.send(self._numbers(calls))
            self._set_way(self.files.receive(8, until))
            self.cell.freeze()
        except CellGone:
            self.crashed(what, late=time.monotonic() >= until)

    def _numbers(self, calls: int) -> bytes:
        """The numbers of a case, as the harness reads them."""
        layout = self._layout
        numbers = [*self._case["sizes"].values(), *self._case["parameters"].values()]
        numbers += [at for at, _ in (*layout.inputs.values(), *layout.outputs.values())]
        numbers += [layout.input_bytes, layout.output_bytes]
        return struct.pack(f"<2d{len(numbers)}d", len(numbers), calls, *numbers)

    def _set_way(self, way: bytes) -> None:
        self.way = WAYS.get(int.from_bytes(way, "little"), WAYS[1])

    def run(self, calls: int, what: str, *, same: bool = False) -> tuple[TimedBatch, bytes]:
        """Time a batch on inputs that are drawn now, by a seed, while it is frozen. `same`: all calls have the same."""
        seed, limit = os.urandom(32), self._job["limits"]["case"]
        try:
            self._fill(seed, calls, same=same)
            self.files.poison(self._cells.check)
            self.files.order(calls)
            batch = self.cell.batch(limit)
        except (CellGone, OutputChanged) as gone:
            self.crashed(what, changed=isinstance(gone, OutputChanged))
        if not batch.done:
            self.crashed(what, late=batch.ms >= 1000 * limit)
        return batch, seed

    def _fill(self, seed: bytes, calls: int, *, same: bool = False) -> None:
        """Write the inputs of these calls, which follow from the seed."""
        layout = self._layout
        for call in range(calls):
            for index, given in enumerate(self._case["inputs"]):
                at = call * layout.input_bytes + layout.inputs[given["name"]][0]
                tensor = hashlib.sha256(seed + struct.pack("<QQ", 0 if same else call, index)).digest()
                for piece in tensors.made(tensor, given["entries"], given["dtype"], given["low"], given["high"]):
                    self._cells.check()
                    self.files.write_input(at, piece.view(np.uint8).data)
                    at += piece.nbytes

    def compare(self, calls: int, reference: ReferenceCell, what: str) -> tuple[list[Json], str]:
        """The comparison of each call's outputs, and the digest of all outputs."""
        results, digest = list[Json](), hashlib.sha256()
        try:
            for call in range(calls):
                self._cells.check()
                reference.expected(self._case, self._inputs(call))
                results.append(self._compared(call, reference, digest))
        except OutputChanged:
            self.crashed(what, changed=True)
        return results, digest.hexdigest()[:16]

    def crashed(self, what: str, *, late: bool = False, changed: bool = False) -> NoReturn:
        """`late`: it did not answer in time. It may end well now, since its channel is closed."""
        ended = self.cell.end()
        limit = self._job["limits"]["case"]
        why = {
            0: "it ended before its work was done",
            3: f"the {self._gpu} reported an error (status 3)",  # see harness.hpp
            None: f"it did not end within {limit:.0f} s",
        }.get(None if late else ended.code)
        if changed:
            why = "it changed the size of its output file"
        message = f"{what}: {why if why is not None and not ended.out_of_memory else how_ended(ended)}"
        raise Over(WRONG, "RUNTIME_ERROR", message=message, output=tail(ended.output.strip()))

    def close(self) -> None:
        self._teller.show(self.cell.end().output)

    def _inputs(self, call: int) -> Iterator[bytes]:
        """The inputs of one call, in pieces, as the solution could read them: it cannot write there."""
        for at, size in self._layout.inputs.values():
            begin, end = call * self._layout.input_bytes + at, call * self._layout.input_bytes + at + size
            for start in range(begin, end, 1 << 23):
                self._cells.check()
                yield self.files.read_input(start, min(1 << 23, end - start))

    def _compared(self, call: int, reference: ReferenceCell, digest: Any) -> Json:
        largest, size = 0.0, SIZES[self._dtype]
        for name, (at, length) in self._layout.outputs.items():
            base = call * self._layout.output_bytes + at
            untouched = True

            def pieces(start: int, end: int, name: str = name, base: int = base) -> tuple[Any, Any]:
                nonlocal untouched
                self._cells.check()
                data = self.files.read_output(base + start * size, (end - start) * size)
                digest.update(data)
                untouched = untouched and not data.strip(b"\xff")
                return tensors.widened(data, self._dtype), reference.read(name, start, end)

            entries = length // size
            seen = tensors.compared(pieces, entries, *self._case["tolerances"][name])
            largest = max(largest, seen.largest)
            if seen.wrong:
                return {
                    "passed": False, "max_error": tensors.json_number(seen.largest), "output": name,
                    "wrong": seen.wrong, "entries": entries, "first": seen.first, "untouched": untouched,
                }  # fmt: skip
        return {"passed": True, "max_error": largest}
