"""Tensors as arrays: made from a seed, converted, compared within a tolerance; a piece at a time, so that memory stays
small and the judge can stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

try:
    from .layout import SIZES, TYPES
except ImportError:  # it lies beside this file where a reference runs
    from layout import SIZES, TYPES  # type: ignore[import-not-found, no-redef]

Array = Any  # numpy.ndarray; the machine's numpy may be too old for its type parameters
EXPECTED = {name: "<f4" if size == 2 else "<f8" for name, size in SIZES.items()}
"""The precision in which a reference's answers are kept: enough to compare, at most twice as large."""
PIECE = 1 << 16  # entries: what fits in a cache is compared ten times as fast


def made(seed: bytes, count: int, dtype: str, low: float, high: float) -> Iterator[Array]:
    """`count` random entries between low and high, in pieces. The same seed gives the same entries."""
    rolls = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "little")))
    for start in range(0, count, PIECE):
        size = min(PIECE, count - start)
        if dtype == "int32":
            yield rolls.integers(math.ceil(low), math.floor(high), size, np.int32, endpoint=True)
        else:
            wide = np.float64 if dtype == "float64" else np.float32
            yield narrowed(low + wide(high - low) * rolls.random(size, dtype=wide), dtype)


def narrowed(values: Array, dtype: str) -> Array:
    """Numbers as the type stores them, rounded to the nearest."""
    if dtype != "bfloat16":
        return values.astype(TYPES[dtype])
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def widened(data: bytes | Array, dtype: str) -> Array:
    """Stored values of the type, as numbers."""
    stored = np.frombuffer(data, TYPES[dtype])
    return (stored.astype("<u4") << 16).view("<f4") if dtype == "bfloat16" else stored


class Compared(NamedTuple):
    wrong: int  # entries out of tolerance
    largest: float  # the largest difference; infinite where an entry is wrongly not a number
    first: dict[str, object] | None  # the first entry out of tolerance


def compared(
    pieces: Callable[[int, int], tuple[Array, Array]], count: int, absolute: float, relative: float
) -> Compared:
    """Entry by entry: |got - expected| ≤ absolute + relative × |expected|; infinite entries and NaN must be equal.

    Args:
        pieces: the values got and expected from one entry to another.
    """
    wrong, largest = 0, 0.0
    first: dict[str, object] | None = None
    for start in range(0, count, PIECE):
        got, expected = (part.astype(np.float64) for part in pieces(start, min(count, start + PIECE)))
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(got - expected)
            difference[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0
            difference[np.isnan(difference)] = np.inf
            bound = absolute + relative * np.abs(expected)
            fits = (difference == 0) | ((difference <= bound) & np.isfinite(bound))
        largest = max(largest, float(difference.max(initial=0.0)))
        if not fits.all():
            at = int(np.argmin(fits))
            wrong += int(np.count_nonzero(~fits))
            first = first or {
                "index": start + at, "expected": json_number(float(expected[at])), "actual": json_number(float(got[at]))
            }  # fmt: skip
    return Compared(wrong, largest, first)


def json_number(value: float) -> float | str:
    """A number as JSON has it, or its name."""
    return value if math.isfinite(value) else str(value)
