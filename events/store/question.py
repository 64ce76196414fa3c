"""The parts of a poll that are not its answer: what was asked (a part, once), and the small values that differ every
time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from events.clock import SECOND
from events.errors import RecordDamaged
from events.poll import Poll
from events.shape.cut import HOLE, fill
from events.shape.values import (
    decode_value,
    decode_values,
    encode_values,
    fold,
    read_number,
    unfold,
    write_number,
    write_value,
)

_SWEEP, _SWEEP_TEXT, _SERVER_SECONDS, _SERVER_TIME, _SAME, _CHANGED = (1 << bit for bit in range(6))
_HEX: Final = frozenset("0123456789abcdef")


class PollScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked, and how it went; equal for every poll alike."""

    path: str
    req: msgspec.Raw
    status: int | None = None
    error: str | None = None
    text: bool = False  # the answer was not JSON and is kept as a JSON string
    ep: str | None = None
    answered: bool = False
    complete: bool = False
    plain_req: bool = False  # the question's body was not JSON and is kept as a JSON string
    extra: dict[str, msgspec.Raw] = {}  # keys of a trace line we do not know


SHARED: Final = ("path", "status", "error", "text", "ep", "answered", "complete")
"""The fields that a poll and its scope have alike."""


class EarlierPoll(NamedTuple):
    """An earlier poll of the same scope and answer, whose values a poll may refer to."""

    position: int
    listing: int | None
    values: list[bytes]


def scope_text(poll: Poll) -> tuple[bytes, list[bytes]]:
    """The text of a poll's scope and the numbers in it that differ every time (counts in unknown keys), which leave
    holes.
    """
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
    """The scope a part holds; without `counts`, the numbers that differ every time read as null.

    Raises:
        RecordDamaged: the text is not a scope.
    """
    try:
        given = [b"null"] * text.count(HOLE) if counts is None else counts
        return msgspec.json.decode(fill(text, given, ()), type=PollScope)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecordDamaged(f"A question in the record cannot be read ({error}): run `steno verify`.") from error


def encode_data(poll: Poll, values: list[bytes], base: EarlierPoll | None, position: int) -> tuple[bytes, bool]:
    """What a poll's own row keeps, and whether it stands alone (can be the base of later ones)."""
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
    """What a poll's own row says."""

    sweep: str | None
    server_time: int | None
    base: int | None  # position of the poll its values are given against
    values: list[bytes]
    changed: dict[int, bytes]


def decode_data(data: bytes, observed_at: int, position: int) -> Own:
    """The data of a poll's row.

    Raises:
        ValueError, IndexError, OverflowError: the bytes are not a poll's.
    """
    flags, at = data[0], 1
    sweep = server_time = None
    if flags & _SWEEP:
        length, at = read_number(data, at)
        raw = data[at : at + length]
        sweep = raw.decode("utf-8", "surrogatepass") if flags & _SWEEP_TEXT else raw.hex()
        at += length
    if flags & (_SERVER_SECONDS | _SERVER_TIME):
        number, at = read_number(data, at)
        apart = unfold(number)
        server_time = (observed_at // SECOND + apart) * SECOND if flags & _SERVER_SECONDS else observed_at + apart
    if not flags & (_SAME | _CHANGED):
        return Own(sweep, server_time, None, decode_values(data, at, observed_at), {})
    back, at = read_number(data, at)
    changed: dict[int, bytes] = {}
    index = 0
    while at < len(data):
        step, at = read_number(data, at)
        index += step
        changed[index], at = decode_value(data, at, observed_at)
    return Own(sweep, server_time, position - back, [], changed)
