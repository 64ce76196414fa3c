"""The values that move at every poll, in a few bytes each: times as distance from the poll, decimals as digits, repeats
by number.

A value is one byte (type in the high half, length in the low half) and that many bytes of a big-endian number. A value
that would not come back byte for byte is kept as it is. Reading raises ValueError where the bytes are not values.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from events.clock import format_time, parse_time

_TIME_Z, _TIME_OFFSET, _DECIMAL, _INTEGER, _REPEAT, _LITERAL, _WORD = (number << 4 for number in range(7))
_WORDS: Final = (b"null", b"true", b"false", b'""')
_ZONES: Final = frozenset({b'Z"', b'+00:00"'})
_SHORTEST_TIME: Final = 29
_WORTH_REPEATING: Final = 6
_QUOTE, _COLON, _POINT = b'":.'
_MINUTE: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NUMBER: Final = re.compile(rb"(0|[1-9]\d{0,15})(?:\.(\d{1,15}))?")


def encode_values(values: Sequence[bytes], moment: int) -> bytes:
    """The values of one poll that was answered at `moment`, in order."""
    out = bytearray()
    seen: dict[bytes, int] = {}
    for index, raw in enumerate(values):
        if len(raw) > _WORTH_REPEATING:
            before = seen.setdefault(raw, index)
            if before != index:
                write_number(out, before, _REPEAT)
                continue
        write_value(out, raw, moment)
    return bytes(out)


def decode_values(data: bytes, start: int, moment: int) -> list[bytes]:
    """All values from byte `start` to the end."""
    values: list[bytes] = []
    while start < len(data):
        raw, start = decode_value(data, start, moment, values)
        values.append(raw)
    return values


def decode_value(data: bytes, start: int, moment: int, before: Sequence[bytes] = ()) -> tuple[bytes, int]:
    """One value and where the next begins."""
    kind, number, end = _read(data, start)
    if kind in (_TIME_Z, _TIME_OFFSET):
        text = format_time(moment + unfold(number)).encode()
        return (b'"%s"' % text if kind == _TIME_Z else b'"%s+00:00"' % text[:-1]), end
    if kind == _INTEGER:
        return b"%d" % number, end
    if kind == _DECIMAL:
        digits, places = divmod(number, 16)
        whole = b"%0*d" % (places + 1, digits)
        return whole[:-places] + b"." + whole[-places:], end
    if kind == _REPEAT and number < len(before):
        return before[number], end
    if kind == _LITERAL and end + number <= len(data):
        return data[end : end + number], end + number
    if kind == _WORD and number < len(_WORDS):
        return _WORDS[number], end
    raise ValueError("unknown kind of value, or a value that is cut")


def read_number(data: bytes, start: int) -> tuple[int, int]:
    """A number that is not a value, and where the next one begins."""
    kind, number, end = _read(data, start)
    if kind != _INTEGER:
        raise ValueError("a number is expected")
    return number, end


def read_numbers(data: bytes, start: int, count: int) -> tuple[list[int], int]:
    """As `read_number`, `count` times."""
    numbers: list[int] = []
    for _ in range(count):
        number, start = read_number(data, start)
        numbers.append(number)
    return numbers, start


def _read(data: bytes, start: int) -> tuple[int, int, int]:
    if start >= len(data):
        raise ValueError("a value is missing")
    tag = data[start]
    end = start + 1 + (tag & 15)
    if end > len(data):
        raise ValueError("a value is cut")
    return tag & 0xF0, int.from_bytes(data[start + 1 : end], "big"), end


def fold(number: int) -> int:
    """A signed number as an unsigned one, small if it was near zero."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unfold(number: int) -> int:
    """The signed number again."""
    return number >> 1 if not number & 1 else -((number + 1) >> 1)


def write_number(out: bytearray, number: int, kind: int = _INTEGER) -> None:
    """Append a number, which need not be a value."""
    length = (number.bit_length() + 7) >> 3
    out.append(kind | length)
    out += number.to_bytes(length, "big")


def write_value(out: bytearray, raw: bytes, moment: int) -> None:
    """Append one value of a poll that was answered at `moment`."""
    if len(raw) >= _SHORTEST_TIME and raw[0] == _QUOTE:
        at = _microseconds(raw)
        if at is not None:
            write_number(out, fold(at - moment), _TIME_Z if len(raw) == _SHORTEST_TIME else _TIME_OFFSET)
            return
    elif (number := _NUMBER.fullmatch(raw)) is not None:
        whole, places = number.groups()
        if places is None:
            write_number(out, int(whole))
        else:
            write_number(out, int(whole + places) * 16 + len(places), _DECIMAL)
        return
    elif raw in _WORDS:
        write_number(out, _WORDS.index(raw), _WORD)
        return
    write_number(out, len(raw), _LITERAL)
    out += raw


def _microseconds(raw: bytes) -> int | None:
    """The moment of `"YYYY-MM-DDTHH:MM:SS.ffffffZ"` (or `+00:00`); None for what would not come back the same."""
    digits = raw[18:20] + raw[21:27]
    if raw[27:] not in _ZONES or raw[17] != _COLON or raw[20] != _POINT or digits >= b"6" or not digits.isdigit():
        return None
    base = _minute(raw[1:17])
    return None if base is None else base + int(digits)


@lru_cache(maxsize=10_000)
def _minute(text: bytes) -> int | None:
    # A year before 1000 is printed without its zeros.
    if _MINUTE.fullmatch(text) is None or text < b"1000":
        return None
    try:
        return parse_time(text.decode())
    except ValueError:
        return None
