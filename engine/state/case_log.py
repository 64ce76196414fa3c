"""The log of a run's cases, as bytes: one case after the other, each with the position of its observation.

A case is its number in `World.cases`. A case that repeats the case before is left out. The first position stands as it
is, later positions count from it; each number is in groups of seven bits, the lowest first, the last without the high
bit.
"""

from collections.abc import Iterator
from typing import NamedTuple


class CaseSeen(NamedTuple):
    position: int
    case: int


def logged(log: bytes, position: int, case: int) -> bytes:
    """The log with one observation more."""
    if not log:
        return packed(position) + packed(case)
    if next(numbers_in(log[last_number(log) :])) == case:
        return log
    return log + packed(position - next(numbers_in(log))) + packed(case)


def cases_seen(log: bytes) -> Iterator[CaseSeen]:
    """The observations of a log, in order."""
    numbers = numbers_in(log)
    first = position = next(numbers, 0)
    for case in numbers:
        yield CaseSeen(position, case)
        position = first + next(numbers, 0)


def packed(number: int) -> bytes:
    """A number in groups of seven bits."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def last_number(log: bytes | bytearray) -> int:
    """Where the last number of a log begins, which is not empty."""
    begin = len(log) - 1
    while begin and log[begin - 1] & 0x80:
        begin -= 1
    return begin


def numbers_in(log: bytes) -> Iterator[int]:
    """The numbers of such groups."""
    number = shift = 0
    for group in log:
        number |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:
            yield number
            number = shift = 0
