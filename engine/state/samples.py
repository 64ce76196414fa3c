"""Samples of what the GPUs of a run did, and their packed form: one block an answer, delta-coded by column.

A block is a zstd frame over numbers in groups of seven bits (the lowest first, the last without the high bit): the
version, the times (the first, then differences), then each device: the length of its name, the name, and for each field
of `Sample` the values at those times as zigzag differences, 0 for a missing value.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import msgspec
import zstandard

from steno.engine.state.case_log import numbers_in, packed
from steno.events.clock import SECOND
from steno.events.errors import UnreadableInput

MOST_DEVICES: Final = 1_024  # in a block
MOST_TIMES: Final = 10_000
TASK: Final = ""  # the device of samples of the task's processes
_VERSION: Final = 1
_LARGEST: Final = 1 << 48
_MOST_BYTES: Final = 1 << 26  # of an unpacked block


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A device at a moment; None: the source does not say. Whole numbers."""

    at: int  # microseconds UTC, by the clock of whoever measured; stored to the second
    device: str  # the GPU's number; behind the machine's (`1:0`) if the run has several; `TASK`: its processes together
    use: int | None = None  # percent of the device; of `TASK`: of a core
    memory: int | None = None  # MiB used; of `TASK`: resident
    memory_total: int | None = None  # MiB
    power: int | None = None  # W
    temperature: int | None = None  # °C
    throttled: int | None = None  # 1: its clock is held down; 0: it is not
    errors: int | None = None  # uncorrected memory errors, or RAS errors, since the driver started
    event: int | None = None  # the number of the newest event of the driver (an XID)


_FIELDS: Final = ("use", "memory", "memory_total", "power", "temperature", "throttled", "errors", "event")


def whole(text: object) -> int | None:
    """A number of a tool's answer, rounded; None: it is not a number (`[N/A]`, NaN), negative, or too large."""
    try:
        number = float(str(text).strip().split(" ", 1)[0].rstrip("%"))
    except ValueError:
        return None
    return round(number) if math.isfinite(number) and 0 <= number < _LARGEST else None


def pack(samples: Iterable[Sample]) -> bytes:
    """The block of some samples: the newest `MOST_TIMES` times, `MOST_DEVICES` devices; of equals the last counts."""
    rows = {(sample.device, sample.at // SECOND): sample for sample in samples if 0 <= sample.at < _LARGEST * SECOND}
    times = sorted({at for _, at in rows})[-MOST_TIMES:]
    devices = sorted({device for device, _ in rows})[:MOST_DEVICES]
    numbers = [_VERSION, len(times), *(after - before for before, after in zip([0, *times], times, strict=False))]
    numbers.append(len(devices))
    for device in devices:
        name = device.encode()
        numbers += (len(name), *name)
        for field in _FIELDS:
            column = [getattr(rows.get((device, at)), field, None) for at in times]
            if all(value is None for value in column):
                numbers.append(0)
                continue
            numbers.append(1)
            last = 0
            for value in column:
                numbers.append(0 if value is None else _zigzag(value - last) + 1)
                last = last if value is None else value
    return zstandard.ZstdCompressor(level=9, write_checksum=False).compress(
        bytes(chain.from_iterable(map(packed, numbers)))
    )


def unpack(block: bytes) -> list[Sample]:
    """The samples of a block, by device and time. Raises UnreadableInput if it is not a block."""
    try:
        numbers = numbers_in(zstandard.ZstdDecompressor().stream_reader(block).read(_MOST_BYTES))
        samples = list(_samples(numbers))
        left = next(numbers, None)
    except (zstandard.ZstdError, StopIteration, RuntimeError, ValueError) as error:
        raise UnreadableInput(f"samples that cannot be read: {error}") from error
    if left is not None:
        raise UnreadableInput("samples that cannot be read: the block goes on behind them")
    return samples


def _samples(numbers: Iterator[int]) -> Iterator[Sample]:
    if next(numbers) != _VERSION:
        raise UnreadableInput("the samples have the form of a later version: update steno")
    times, at = list[int](), 0
    for _ in range(_bounded(next(numbers), MOST_TIMES)):
        at += next(numbers)
        times.append(at)
    for _ in range(_bounded(next(numbers), MOST_DEVICES)):
        yield from _device(numbers, times)


def _device(numbers: Iterator[int], times: list[int]) -> Iterator[Sample]:
    name = bytes([next(numbers) & 0xFF for _ in range(_bounded(next(numbers), 1_024))]).decode()
    columns: list[list[int | None]] = []
    for _ in _FIELDS:
        column: list[int | None] = [None] * len(times)
        last = 0
        for place in range(len(times) if next(numbers) else 0):
            if code := next(numbers):
                last += _unzigzag(code - 1)
                column[place] = last
        columns.append(column)
    for at, *values in zip(times, *columns, strict=True):
        if any(value is not None for value in values):
            yield Sample(at=at * SECOND, device=name, **dict(zip(_FIELDS, values, strict=True)))


def _bounded(number: int, most: int) -> int:
    if number > most:
        raise ValueError(f"{number} is more than {most}")
    return number


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


def _unzigzag(number: int) -> int:
    return -(number + 1) // 2 if number & 1 else number // 2
