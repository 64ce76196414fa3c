"""Tensors as flat bytes: made from a seed, read back, compared within a tolerance."""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterator, Sequence

CODES = {"float32": "f", "float64": "d", "int32": "i"}
"""What `array` calls a type; the 16-bit ones are packed by hand."""
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4}
BLOCK = 65_521
"""Entries made one by one; a longer tensor repeats them. A prime, so that no row of a usual length repeats."""


def made(count: int, dtype: str, seed: str, low: float, high: float) -> bytes:
    """A tensor of so many entries between low and high; the same for the same seed, everywhere."""
    rolls = random.Random(seed)  # noqa: S311 - it is to be the same every time
    some = min(count, BLOCK)
    if dtype == "int32":
        values: list[float] = [rolls.randint(math.ceil(low), math.floor(high)) for _ in range(some)]
    else:
        values = [low + (high - low) * rolls.random() for _ in range(some)]
    block = packed(values, dtype)
    size = SIZES[dtype]
    return (block * (count // some + 1))[: count * size] if some else b""


def packed(values: Sequence[float], dtype: str) -> bytes:
    """Numbers as the type holds them, little end first as on every machine there is."""
    if dtype == "float16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "bfloat16":
        wide = array("I", array("f", values).tobytes())
        return array("H", [(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in wide]).tobytes()
    if dtype == "int32":
        return array("i", [int(value) for value in values]).tobytes()
    return array(CODES[dtype], values).tobytes()


def unpacked(data: bytes, dtype: str) -> Sequence[float]:
    """The numbers in the bytes of a tensor."""
    if dtype == "float16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "bfloat16":
        bits = array("H", data)
        return array("f", array("I", [one << 16 for one in bits]).tobytes())
    return array(CODES[dtype], data)


class Compared:
    """How far a tensor is from what it should be."""

    def __init__(self, wrong: int, largest: float, first: dict[str, object] | None) -> None:
        self.wrong = wrong
        """Entries out of tolerance."""
        self.largest = largest
        """The largest difference; infinite where an entry is no number and should be one."""
        self.first = first


def compared(got: Sequence[float], expected: Sequence[float], absolute: float, relative: float) -> Compared:
    """Entry by entry: |got - expected| ≤ absolute + relative × |expected|; no-numbers equal no-numbers."""
    wrong, largest = 0, 0.0
    first: dict[str, object] | None = None
    for index, difference, fits in _differences(got, expected, absolute, relative):
        largest = max(largest, difference)
        if not fits:
            wrong += 1
            if first is None:
                first = {"index": index, "expected": shown(expected[index]), "actual": shown(got[index])}
    return Compared(wrong, largest, first)


def _differences(
    got: Sequence[float], expected: Sequence[float], absolute: float, relative: float
) -> Iterator[tuple[int, float, bool]]:
    for index, (one, other) in enumerate(zip(got, expected)):  # noqa: B905 - Python 3.9 has no `strict`
        if one == other or (one != one and other != other):  # noqa: PLR0124 - what is no number
            continue
        difference = abs(one - other)
        if difference != difference:  # noqa: PLR0124
            difference = math.inf
        yield index, difference, difference <= absolute + relative * abs(other)


def shown(value: float) -> float | str:
    """A number as JSON has it, or its name."""
    return value if math.isfinite(value) else str(value)
