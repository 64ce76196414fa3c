"""Cuts an answer into items and an item along its shape. In the text left, byte 0 marks a volatile value and byte 1 a
cold part, in order; neither occurs in JSON text.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from steno.events.shape.secrets import is_secret_name
from steno.events.shape.shape import LINES, BodyShape, Node

HOLE: Final = b"\x00"
PART: Final = b"\x01"
SMALL: Final = 64  # a shorter cold value stays: a part would cost more

_PLAIN: Final = re.compile(rb'-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|null|true|false|"[0-9TZ:.+-]{0,40}"')
_LINE: Final = re.compile(rb"(?:[^\\]|\\[^n])*")  # to the next line break, in a JSON string
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_BRACE, _BRACKET = b"{["


class Piece(NamedTuple):
    """A value cut out, its place in the shape, and whether that place makes it secret."""

    raw: bytes
    node: Node
    secret: bool


class Cut(NamedTuple):
    """An item's text with marks, and what the marks mean, in order."""

    text: bytes
    values: list[Piece]
    cold: list[Piece]
    segments: tuple[bytes, ...]  # the item around its values: one more than there are values


def cut(item: bytes, node: Node) -> Cut:
    """Cut an item of JSON text. Repeated or escaped keys and white space would not come back: then nothing is cut.

    Raises msgspec.DecodeError or RecursionError for text that is not usable JSON.
    """
    taken = Cut(b"", [], [], ())
    text = _walk(item, node, taken, secret=False)
    if HOLE not in item and PART not in item:
        segments = woven(text.split(PART), [piece.raw for piece in taken.cold]).split(HOLE)
        if woven(segments, [piece.raw for piece in taken.values]) == item:
            return taken._replace(text=text, segments=tuple(segments))
    return Cut(item, [], [], (item,))


def _walk(raw: bytes, node: Node, taken: Cut, secret: bool) -> bytes:
    secret = secret or node.secret
    if node.volatile:
        taken.values.append(Piece(raw, node, secret))
        return HOLE
    if node.cold and len(raw) >= SMALL:
        taken.cold.append(Piece(raw, node, secret))
        return PART
    first = raw[0]
    if first == _BRACE and (node.keys or node.any is not None):
        return _walk_object(raw, node, taken, secret)
    if first == _BRACKET and node.each is not None:
        each = node.each
        return b"[" + b",".join([_walk(bytes(value), each, taken, secret) for value in _list.decode(raw)]) + b"]"
    return raw


def _walk_object(raw: bytes, node: Node, taken: Cut, secret: bool) -> bytes:
    keys, any_key = node.keys, node.any
    out: list[bytes | msgspec.Raw] = []
    for key, value in _object.decode(raw).items():
        out.append(_name(key))
        below = keys.get(key, any_key)
        if below is None:
            out.append(value)
        else:
            out.append(_walk(bytes(value), below, taken, secret or is_secret_name(key)))
    return b"{" + b"".join(out)[1:] + b"}"


@lru_cache(maxsize=10_000)
def _name(key: str) -> bytes:
    return b"," + msgspec.json.encode(key) + b":"


class Template:
    """An item seen before: recognises it with other volatile values by comparing memory, without parsing."""

    __slots__ = ("_first", "_rest", "identity", "item", "size")

    def __init__(self, taken: Cut, identity: str, item: int) -> None:
        """`taken`: the cut of the text as sent; `item`: its part, secrets replaced."""
        self._first = taken.segments[0]
        self._rest = taken.segments[1:]
        self.identity = identity
        self.item = item
        self.size = sum(map(len, taken.segments))

    def match(self, text: bytes, start: int, values: list[bytes]) -> int:
        """Where this item ends in `text` if it begins at `start` (its values are appended), or -1.

        Only plain values match (numbers, times, null, true, false): others are cut again, and their secrets replaced.
        """
        if not text.startswith(self._first, start):
            return -1
        end = start + len(self._first)
        plain = _PLAIN.match
        for segment in self._rest:
            value = plain(text, end)
            if value is None:
                return -1
            end = value.end()
            if not text.startswith(segment, end):
                return -1
            values.append(value.group())
            end += len(segment)
        return end


def woven(segments: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    """The text of `segments` with `between` between them. Raises ValueError unless there is one more segment."""
    out = [segments[0]]
    for given, segment in zip(between, segments[1:], strict=True):
        out += (given, segment)
    return b"".join(out)


def fill(text: bytes, values: Iterable[bytes], parts: Sequence[bytes]) -> bytes:
    """The text with each mark replaced by the next value or part. Raises ValueError if there are more marks."""
    if HOLE not in text and PART not in text:
        return text
    segments = woven(text.split(PART), parts).split(HOLE)
    return woven(segments, tuple(islice(values, len(segments) - 1)))


def member(item: bytes, key: str) -> bytes | None:
    """The value under a key of a JSON object, as text; the last if repeated. MsgspecError: not an object."""
    return bytes(_member(key).decode(item).value) or None


@cache
def _member(key: str) -> msgspec.json.Decoder[Any]:
    # A structure of one field skips the other members.
    struct = msgspec.defstruct("Member", [("value", msgspec.Raw, msgspec.Raw(b""))], rename={"value": key})
    return msgspec.json.Decoder(struct)


def identity(item: bytes, key: str) -> str:
    """The text under the key that names an item; "" without one."""
    raw = member(item, key) if item[:1] == b"{" and key else None
    if raw is None:
        return ""
    if raw[:1] == b'"' and b"\\" not in raw:
        return raw[1:-1].decode()
    value = json.loads(raw)
    return "" if value is None or isinstance(value, (dict, list)) else str(value)


def identity_of(item: bytes, shape: BodyShape) -> str:
    """The name of an item of an answer; "" without one."""
    if shape.items != LINES:
        return identity(item, shape.identity)
    columns = str(json.loads(item)).split("|")
    number = int(shape.identity)
    return columns[number].strip() if number < len(columns) else ""


class Split(NamedTuple):
    """An answer taken apart."""

    items: list[bytes]  # JSON text each; of a text, its lines as JSON strings
    frame: bytes  # the text around, byte 1 for an item; of a text, byte 0 and the text after the last line
    plain: bool  # frame and items give the text back byte for byte


def split(body: bytes, shape: BodyShape | None) -> Split | None:
    """The items of an answer; None if it does not have the declared form. Raises msgspec.MsgspecError or RecursionError
    for text that is not JSON.
    """
    if shape is None or not shape.items:
        return None
    if shape.items == LINES:
        return _lines(body)
    try:
        items = [bytes(item) for item in _list.decode(body)]
    except msgspec.ValidationError:
        return None
    frame = b"[" + b",".join([PART] * len(items)) + b"]"
    return Split(items, frame, plain=woven(frame.split(PART), items) == body)


def items_of(body: bytes, shape: BodyShape) -> Sequence[bytes]:
    """The items of `split` alone, and its errors; none if the answer does not have the declared form."""
    if shape.items == "[]":  # most answers, and a replay reads all
        try:
            return [bytes(item) for item in _list.decode(body)]
        except msgspec.ValidationError:
            return ()
    parts = split(body, shape)
    return () if parts is None else parts.items


def _lines(body: bytes) -> Split | None:
    text = body.strip()
    if text[:1] != b'"':
        return None
    inner = text[1:-1]
    lines, at = [], 0
    while at < len(inner):
        line = _LINE.match(inner, at)
        end = len(inner) if line is None else line.end()
        lines.append(b'"' + inner[at:end] + b'"')
        at = end + 2
    # The break after the last line belongs to the frame: it does not add a line.
    rest = rb"\n" if lines and at == len(inner) else b""
    return Split(lines, HOLE + rest, plain=text == body)


def joined_lines(frame: bytes, lines: Sequence[bytes]) -> bytes:
    """The JSON string that was split into lines."""
    return b'"' + rb"\n".join([line[1:-1] for line in lines]) + frame.removeprefix(HOLE) + b'"'
