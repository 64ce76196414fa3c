"""Tensors as flat bytes: made from a seed, read back, compared within a tolerance."""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple

CODES = {"float32": "f", "float64": "d", "int32": "i"}  # what `array` calls a type; the 16-bit ones are packed by hand
SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4}  # bytes of one number
VALUES = 1 << 16
"""How many different numbers a tensor has at most; which of them stands where is random for every entry."""


def made(count: int, dtype: str, seed: str, low: float, high: float) -> bytes:
    """A tensor of so many entries between low and high; the same for the same seed, everywhere."""
    rolls = random.Random(seed)  # noqa: S311 - it must be reproducible
    some = min(count, VALUES)
    if dtype == "int32":
        values: list[float] = [rolls.randint(math.ceil(low), math.floor(high)) for _ in range(some)]
    else:
        values = [low + (high - low) * rolls.random() for _ in range(some)]
    if count <= VALUES:
        return packed(values, dtype)
    size = SIZES[dtype]
    code = {2: "H", 4: "I", 8: "Q"}[size]
    words = array(code, packed(values, dtype))
    places = array("H", rolls.getrandbits(16 * count).to_bytes(2 * count, "little"))
    return array(code, map(words.__getitem__, places)).tobytes()


def packed(values: Sequence[float], dtype: str) -> bytes:
    """Numbers as the type holds them, little-endian as on every machine there is."""
    if dtype == "float16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "bfloat16":
        wide = array("I", array("f", values).tobytes())
        return array("H", [(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in wide]).tobytes()
    return array(CODES[dtype], values).tobytes()


def unpacked(data: bytes, dtype: str) -> Sequence[float]:
    if dtype == "float16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "bfloat16":
        return array("f", array("I", [one << 16 for one in array("H", data)]).tobytes())
    return array(CODES[dtype], data)


class Compared(NamedTuple):
    wrong: int  # entries out of tolerance
    largest: float  # the largest difference; infinite where an entry is wrongly not a number
    first: dict[str, object] | None  # the first entry out of tolerance


def compared(got: Sequence[float], expected: Sequence[float], absolute: float, relative: float) -> Compared:
    """Entry by entry: |got - expected| ≤ absolute + relative × |expected|; infinite entries and NaN must be equal."""
    wrong, largest = 0, 0.0
    first: dict[str, object] | None = None
    for index, (one, other) in enumerate(zip(got, expected)):  # noqa: B905 - Python 3.9 has no `strict`
        if one == other or (one != one and other != other):  # noqa: PLR0124 - NaN
            continue
        difference = abs(one - other)
        if difference != difference:  # noqa: PLR0124
            difference = math.inf
        largest = max(largest, difference)
        fits = difference <= absolute + relative * abs(other) < math.inf
        if not fits:
            wrong += 1
            first = first or {"index": index, "expected": shown(other), "actual": shown(one)}
    return Compared(wrong, largest, first)


def shown(value: float) -> float | str:
    """A number as JSON has it, or its name."""
    return value if math.isfinite(value) else str(value)
