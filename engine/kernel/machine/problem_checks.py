"""How far a right answer may be from the reference's where a problem does not give a tolerance, and the null solutions
that a problem must not accept: answers that need not compute what it asks for.

The tolerance, for a sum of n terms (n: `terms` of the case), u the unit roundoff of the dtype and v that of the
arithmetic, which is at least float32:

- relative: 4 u, for roundings of results to the dtype, and (64 + 4 √n) v, for those of the arithmetic. Errors of n
  roundings grow with √n (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
- absolute: where results cancel, their error follows from the inputs and not from the result. So the reference is
  evaluated again in float64 with every input changed by ± v; the difference contains the reference's own error, too.
  If more than 1 in 100 entries differ by over (4 + 16 / √n) v of the result, which needs cancellation, the absolute
  part is 4 √n times the difference that 99 in 100 entries keep within: a reference that jumps (a sign, a maximum's
  place) must not make everything right.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .batches import BROKEN, Json, Over, ReferenceCell
from .layout import SIZES
from .local_cells import LocalCells
from .tensors import PIECE, Array, compared, made, narrowed, widened

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next number."""
_SMALLEST = {"float32": 2.0**-126, "float64": 2.0**-1022, "float16": 2.0**-24, "bfloat16": 2.0**-126}
"""The largest number that a GPU may take for zero; float16 keeps its smallest numbers."""
_LOWER = {"float64": "float32", "float32": "float16", "float16": "bfloat16"}
_BLOCKS, _BLOCK = 64, 1024  # entries of an output that a tolerance is derived from
_ENTRIES, _FEWEST = 256, 8  # of each output: wanted, and needed where the reference is slow
_LONG = 2.0  # seconds
_FEW = 0.004  # of the entries
_MOST_CALLS = 16  # in which null solutions are compared
_CONSTANT = "one constant"
_NOISE = 1e-3  # of the absolute tolerance: a smaller change of a right entry is none


def check_here(job: Json) -> None:
    """Check all cases of a problem, with the reference in a process of this host. Raises `Over` (ERROR)."""
    with tempfile.TemporaryDirectory(prefix="steno-problem-") as work:
        reference = ReferenceCell(LocalCells(Path(work)), job)
        try:
            for case in (*job["tests"], *job["benchmarks"]):
                case["tolerances"] = tolerances(case, reference)
            expect_no_null(job["tests"], reference, "all its tests")
            for number, case in enumerate(job["benchmarks"], 1):
                expect_no_null([case], reference, f"its benchmark {number}")
        finally:
            reference.cell.end()


def tolerances(case: Json, reference: ReferenceCell) -> dict[str, list[float]]:
    """{output: [absolute, relative]} of a case."""
    outputs, dtype, given = case["outputs"], reference.job["dtype"], reference.job["tolerance"]
    if given is not None or dtype == "int32":
        return {name: [given["absolute"], given["relative"]] if given else [0.0, 0.0] for name in outputs}
    v, growth = min(UNIT[dtype], UNIT["float32"]), 4 * math.sqrt(case["terms"])
    differences: dict[str, list[Array]] = {name: [np.zeros(1)] for name in outputs}
    cancelled: dict[str, list[Array]] = {name: [np.zeros(1)] for name in outputs}
    fewest, began = min(outputs.values()), time.monotonic()
    for draw in range(-(-_ENTRIES // fewest)):
        if draw * fewest >= _FEWEST and time.monotonic() > began + _LONG:
            break
        reference.expected(case, drawn(case, reference))
        right = {name: _blocks(reference, name, count) for name, count in outputs.items()}
        reference.expected(case, (), changed_by=v)
        for name, expected in right.items():
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.abs(_blocks(reference, name, outputs[name]) - expected)
            finite = np.isfinite(difference)
            differences[name].append(difference[finite])
            cancelled[name].append(difference[finite] > (4 + 64 / growth) * v * np.abs(expected[finite]))
    relative = 4 * UNIT[dtype] + (64 + growth) * v
    most = {name: np.quantile(np.concatenate(parts), 0.99) for name, parts in differences.items()}
    cancels = {name: np.mean(np.concatenate(parts)) > _FEW for name, parts in cancelled.items()}
    return {name: [growth * most[name] * cancels[name] + _SMALLEST[dtype], relative] for name in outputs}


def drawn(case: Json, reference: ReferenceCell) -> Iterator[memoryview]:
    """The inputs of a call that no solution gets, in pieces."""
    for tensor in case["inputs"]:
        for piece in made(os.urandom(32), tensor["entries"], tensor["dtype"], tensor["low"], tensor["high"]):
            reference.check()
            yield piece.view(np.uint8).data


def _blocks(reference: ReferenceCell, name: str, count: int) -> Array:
    """Blocks of an output, evenly spread."""
    starts = range(0, count, max(_BLOCK, count // _BLOCKS))
    blocks = [reference.read(name, start, min(count, start + _BLOCK)) for start in starts]
    return np.concatenate(blocks).astype(np.float64)


@np.errstate(all="ignore")
def expect_no_null(cases: Sequence[Json], reference: ReferenceCell, which: str) -> None:
    """Raises `Over` (ERROR) if a null solution passes all of these cases, whose `tolerances` are known, or if the right
    answers do not pass as the dtype stores them. Tests certify the shipped problems.

    A benchmark is checked alone: a solution may be right at the sizes of the tests and null at its sizes.
    """
    if reference.job.get("shipped"):
        return
    dtype, changed = reference.job["dtype"], set[str]()
    left: list[str] | None = None
    for case in cases:
        ranges = dict.fromkeys(case["outputs"], (-np.inf, np.inf))  # in which a constant is right in all calls
        for name, expected, answers in _pieces(case, reference):
            absolute, relative = case["tolerances"][name]
            if not is_right(expected, expected, dtype, absolute, relative):
                raise _refused(f"no solution can pass: {name} as {dtype} stores it is out of tolerance")
            if left == []:  # no null solution passes; of each further case its own answers are checked
                break
            reworked = _reworked(expected, dtype, relative)
            changed |= {null for null, got in reworked.items() if (np.abs(got - expected) > _NOISE * absolute).any()}
            bound = absolute + relative * np.abs(expected)
            low = np.maximum(ranges[name][0], (expected - bound).max())
            high = np.minimum(ranges[name][1], (expected + bound).min())
            ranges[name], nulls = (low, high), answers | reworked
            right = {null for null, got in nulls.items() if is_right(got, expected, dtype, absolute, relative)}
            right |= {_CONSTANT} if low <= high else set()
            left = [null for null in left or (*nulls, _CONSTANT) if null in right]
    if passing := [null for null in left or [] if null not in reworked or null in changed]:
        why = f"a solution that gives {passing[0]} passes {which} in {dtype}"
        raise _refused(f"{why}: give it other inputs, a reference that computes in float64, or a tighter tolerance")


def _refused(why: str) -> Over:
    return Over(BROKEN, "ERROR", message=f"the problem is refused: {why}")


def _pieces(case: Json, reference: ReferenceCell) -> Iterator[tuple[str, Array, dict[str, Array]]]:
    """(output, right entries, the same entries of null solutions) of two calls or more, from the last entries to the
    first: most null solutions fail at the last entries.
    """
    for _ in range(min(_MOST_CALLS, max(2, -(-_ENTRIES // min(case["outputs"].values()))))):
        reference.expected(case, drawn(case, reference))
        for name, count in case["outputs"].items():
            for start in reversed(range(0, count, PIECE)):
                reference.check()
                end, at = min(count, start + PIECE), 0
                expected = reference.read(name, start, end).astype(np.float64)
                first = np.where(np.arange(start, end) < count // 16, expected, 0)
                answers = {"zeros": np.zeros(end - start), "NaN": np.full(end - start, np.nan)}
                answers["only the first 1/16 of the results"] = first
                for tensor in case["inputs"]:
                    size = SIZES[tensor["dtype"]]
                    if tensor["entries"] == count:
                        data = reference.cell.exchange.read_input(at + start * size, (end - start) * size)
                        answers[f"a copy of {tensor['name']}"] = widened(data, tensor["dtype"]).astype(np.float64)
                    at += tensor["entries"] * size
                yield name, expected, answers


def _reworked(expected: Array, dtype: str, relative: float) -> dict[str, Array]:
    """Answers that are null only where they change something: to other problems they are the right answer. Nor are
    results of a lower precision null where the relative tolerance is above its roundoff: its author has said so.
    """
    answers, lower = {"zeros in place of negative results": np.maximum(expected, 0)}, _LOWER.get(dtype)
    if lower is not None and relative < UNIT[lower]:
        answers[f"results rounded to {lower}"] = widened(narrowed(expected, lower), lower).astype(np.float64)
    return answers


def is_right(answer: Array, expected: Array, dtype: str, absolute: float, relative: float) -> bool:
    got = widened(narrowed(answer, dtype), dtype)
    return compared(lambda start, end: (got[start:end], expected[start:end]), len(got), absolute, relative).wrong == 0
