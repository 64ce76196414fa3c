"""The parts of a poll besides its answer: what was asked (a part, once), and the values that change at every poll.

A value takes one byte (type in the high half, length in the low half) and that many bytes of a big-endian number. Times
are distances from the poll, decimals digits, repeats numbers; others are kept unchanged. Reading raises ValueError for
other bytes.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from steno.events.clock import SECOND, format_time, parse_time
from steno.events.errors import RecordDamaged
from steno.events.poll import Poll
from steno.events.shape.cut import HOLE, fill

_SWEEP, _SWEEP_TEXT, _SERVER_SECONDS, _SERVER_TIME, _SAME, _CHANGED = (1 << bit for bit in range(6))
_HEX: Final = frozenset("0123456789abcdef")
_TIME_Z, _TIME_OFFSET, _DECIMAL, _INTEGER, _REPEAT, _LITERAL, _WORD = (number << 4 for number in range(7))
_WORDS: Final = (b"null", b"true", b"false", b'""')
_ZONES: Final = frozenset({b'Z"', b'+00:00"'})
_SHORTEST_TIME: Final = 29
_WORTH_REPEATING: Final = 6
_QUOTE, _COLON, _POINT = b'":.'
_MINUTE: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NUMBER: Final = re.compile(rb"(0|[1-9]\d{0,15})(?:\.(\d{1,15}))?")


class PollScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question, and how it went; equal for all similar polls."""

    path: str
    req: msgspec.Raw
    status: int | None = None
    error: str | None = None
    text: bool = False  # the answer was not JSON: a JSON string
    ep: str | None = None
    answered: bool = False
    complete: bool = False
    plain_req: bool = False  # the same of the question's body
    extra: dict[str, msgspec.Raw] = {}  # unknown keys of a trace line


SHARED: Final = ("path", "status", "error", "text", "ep", "answered", "complete")
"""The fields that a poll and its scope have alike."""


class EarlierPoll(NamedTuple):
    """An earlier poll of the same scope and answer, to whose values a poll may refer."""

    position: int
    listing: int | None
    values: list[bytes]


def scope_text(poll: Poll) -> tuple[bytes, list[bytes]]:
    """The text of a poll's scope, with holes for changing numbers (counts in unknown keys), and these numbers."""
    extra = {key: bytes(raw) for key, raw in poll.extra.items()}
    counts = [text for text in extra.values() if text.isdigit()]
    req, plain = poll.req, False
    try:
        msgspec.json.decode(req, type=msgspec.Raw)
        if HOLE in req:
            raise ValueError
    except (msgspec.MsgspecError, ValueError, RecursionError):
        req, plain = msgspec.json.encode(req.decode("utf-8", "backslashreplace")), True
    scope = PollScope(
        **{name: getattr(poll, name) for name in SHARED},
        req=msgspec.Raw(req),
        plain_req=plain,
        extra={key: msgspec.Raw(HOLE if text.isdigit() else text) for key, text in extra.items()},
    )
    return msgspec.json.encode(scope), counts


def read_scope(text: bytes, counts: Sequence[bytes] | None = None) -> PollScope:
    """The scope in a part, its changing numbers from `counts` (None: null). Raises RecordDamaged for other text."""
    try:
        given = [b"null"] * text.count(HOLE) if counts is None else counts
        return msgspec.json.decode(fill(text, given, ()), type=PollScope)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecordDamaged(f"A question in the record cannot be read ({error}): run `steno verify`.") from error


def encode_data(poll: Poll, values: list[bytes], base: EarlierPoll | None, position: int) -> tuple[bytes, bool]:
    """The data of a poll's own row, and whether it stands alone (can be the base of later polls)."""
    out = bytearray(1)
    flags = 0
    if poll.sweep is not None:
        even = len(poll.sweep) % 2 == 0 and _HEX.issuperset(poll.sweep)
        sweep = bytes.fromhex(poll.sweep) if even else poll.sweep.encode("utf-8", "surrogatepass")
        flags |= _SWEEP if even else _SWEEP | _SWEEP_TEXT
        write_number(out, len(sweep))
        out += sweep
    if poll.server_time is not None:
        apart = poll.server_time - poll.observed_at
        whole = poll.server_time % SECOND == 0
        flags |= _SERVER_SECONDS if whole else _SERVER_TIME
        write_number(out, fold(poll.server_time // SECOND - poll.observed_at // SECOND if whole else apart))
    if base is not None and values:
        changed = [index for index, (new, old) in enumerate(zip(values, base.values, strict=True)) if new != old]
        if 2 * len(changed) <= len(values):
            out[0] = flags | (_CHANGED if changed else _SAME)
            write_number(out, position - base.position)
            last = 0
            for index in changed:
                write_number(out, index - last)
                write_value(out, values[index], poll.observed_at)
                last = index
            return bytes(out), False
    out[0] = flags
    return bytes(out) + encode_values(values, poll.observed_at), True


class Own(NamedTuple):
    """The content of a poll's own row."""

    sweep: str | None
    server_time: int | None
    base: int | None  # position of the poll its values refer to
    values: list[bytes]
    changed: dict[int, bytes]


def decode_data(data: bytes, observed_at: int, position: int) -> Own:
    """The data of a poll's row. Raises ValueError, IndexError or OverflowError for other bytes."""
    sweep, server_time, at = decode_head(data, observed_at)
    flags = data[0]
    if not flags & (_SAME | _CHANGED):
        return Own(sweep, server_time, None, decode_values(data, at, observed_at), {})
    (back,), at = read_numbers(data, at, 1)
    changed: dict[int, bytes] = {}
    index = 0
    while at < len(data):
        (step,), at = read_numbers(data, at, 1)
        index += step
        changed[index], at = decode_value(data, at, observed_at)
    return Own(sweep, server_time, position - back, [], changed)


def decode_head(data: bytes, observed_at: int) -> tuple[str | None, int | None, int]:
    """Sweep and server time of a poll's row, and where its values begin."""
    flags, at = data[0], 1
    sweep = server_time = None
    if flags & _SWEEP:
        (length,), at = read_numbers(data, at, 1)
        raw = data[at : at + length]
        sweep = raw.decode("utf-8", "surrogatepass") if flags & _SWEEP_TEXT else raw.hex()
        at += length
    if flags & (_SERVER_SECONDS | _SERVER_TIME):
        (number,), at = read_numbers(data, at, 1)
        apart = unfold(number)
        server_time = (observed_at // SECOND + apart) * SECOND if flags & _SERVER_SECONDS else observed_at + apart
    return sweep, server_time, at


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
    """A value and where the next begins."""
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


def read_numbers(data: bytes, start: int, count: int) -> tuple[list[int], int]:
    """`count` numbers that are not values, and where the next begins; every answer and item that is read has some."""
    numbers: list[int] = []
    size = len(data)
    for _ in range(count):
        if start >= size:
            raise ValueError("a value is missing")
        end = start + 1 + data[start] - _INTEGER
        if not start < end <= start + 16 or end > size:
            raise ValueError("a number is expected")
        numbers.append(int.from_bytes(data[start + 1 : end], "big"))
        start = end
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
    """A signed number as an unsigned one, small if near zero."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unfold(number: int) -> int:
    return number >> 1 if not number & 1 else -((number + 1) >> 1)


def write_number(out: bytearray, number: int, kind: int = _INTEGER) -> None:
    """Append a number, not necessarily a value."""
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
    """The moment of `"YYYY-MM-DDTHH:MM:SS.ffffffZ"` (or `+00:00`); None if it would not come back the same."""
    digits = raw[18:20] + raw[21:27]
    if raw[27:] not in _ZONES or raw[17] != _COLON or raw[20] != _POINT or digits >= b"6" or not digits.isdigit():
        return None
    base = _minute(raw[1:17])
    return None if base is None else base + int(digits)


@lru_cache(maxsize=10_000)
def _minute(text: bytes) -> int | None:
    # A year before 1000 is printed without leading zeros.
    if _MINUTE.fullmatch(text) is None or text < b"1000":
        return None
    try:
        return parse_time(text.decode())
    except ValueError:
        return None
