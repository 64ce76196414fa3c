"""Cuts an answer's items along a shape: what moves at every poll leaves a hole, what hardly ever moves becomes a part
of its own.

In the text that is left, byte 0 stands for a volatile value and byte 1 for a part, in order. Neither can occur in JSON
text.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from events.secrets import is_secret_name
from events.shape.shape import Node

HOLE: Final = b"\x00"
PART: Final = b"\x01"
SMALL: Final = 64
"""A cold value shorter than this (`null`, `{}`) stays where it is: a part would cost more."""

_MARKS: Final = re.compile(rb"([\x00\x01])")
_PLAIN: Final = re.compile(
    rb'-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|null|true|false|"[0-9TZ:.+-]{0,40}"'
)  # fmt: skip
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw: Final = msgspec.json.Decoder(msgspec.Raw)
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_names: dict[str, bytes] = {}
_member_decoders: dict[str, msgspec.json.Decoder[Any]] = {}
_BRACE, _BRACKET = b"{["


class Piece(NamedTuple):
    """A value that was cut out, where in the shape it stood, and whether all of it is secret by its place."""

    raw: bytes
    node: Node
    secret: bool


class Cut(NamedTuple):
    """An item's text with marks, and what the marks stand for, in order."""

    text: bytes
    values: list[Piece]
    cold: list[Piece]
    segments: tuple[bytes, ...]
    """The item as it came, around its values: one more than there are values."""


def cut(item: bytes, node: Node) -> Cut:
    """Cut an item of JSON text. Where the text would not come back byte for byte (repeated keys, white space, escaped
    keys), nothing is cut out of it.

    Raises:
        msgspec.DecodeError, RecursionError: the text is no JSON that can be walked.
    """
    values: list[Piece] = []
    cold: list[Piece] = []
    text = _walk(item, node, Cut(b"", values, cold, ()), secret=False)
    if HOLE not in item and PART not in item:
        segments = _mended(text, PART, [piece.raw for piece in cold]).split(HOLE)
        if _woven(segments, [piece.raw for piece in values]) == item:
            return Cut(text, values, cold, tuple(segments))
    return Cut(item, [], [], (item,))


def _mended(text: bytes, mark: bytes, given: Sequence[bytes]) -> bytes:
    """The text with each mark replaced by the next of as many that are given."""
    return _woven(text.split(mark), given) if given else text


def _woven(segments: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    out = [segments[0]]
    for given, segment in zip(between, segments[1:], strict=True):
        out += (given, segment)
    return b"".join(out)


def fill(text: bytes, values: Iterable[bytes], parts: Iterable[bytes]) -> bytes:
    """The text with its marks replaced, each by the next value or part.

    Raises:
        ValueError: there are more marks than values or parts.
    """
    if HOLE not in text and PART not in text:
        return text
    pieces = _MARKS.split(text)
    holes, refs = iter(values), iter(parts)
    try:
        for index in range(1, len(pieces), 2):
            pieces[index] = next(holes if pieces[index] == HOLE else refs)
    except StopIteration:
        raise ValueError("a part has more holes than there are values") from None
    return b"".join(pieces)


def elements(body: bytes) -> list[bytes] | None:
    """The elements of a JSON list, as text; None if the text is JSON but no list.

    Raises:
        msgspec.DecodeError, RecursionError: it is no JSON.
    """
    try:
        return [bytes(raw) for raw in _list.decode(body)]
    except msgspec.ValidationError:
        return None


def strip(body: bytes) -> bytes:
    """JSON text without white space around it.

    Raises:
        msgspec.DecodeError, RecursionError: it is no JSON.
    """
    return bytes(_raw.decode(body))


def member(item: bytes, key: str) -> bytes | None:
    """The value under a key of a JSON object, as text; the last one if the key is repeated.

    Raises:
        msgspec.MsgspecError: it is no object.
    """
    decoder = _member_decoders.get(key)
    if decoder is None:
        # A structure of one field: the members nobody asked for are passed over, not made.
        struct = msgspec.defstruct("Member", [("value", msgspec.Raw, msgspec.Raw(b""))], rename={"value": key})
        decoder = _member_decoders[key] = msgspec.json.Decoder(struct)
    return bytes(decoder.decode(item).value) or None


class Template:
    """An item seen before: recognises the same item with other volatile values by comparing memory, without parsing."""

    __slots__ = ("_first", "_rest", "holes", "identity", "item", "size")

    def __init__(self, taken: Cut, identity: str, item: int) -> None:
        """`taken` is the cut of the text as the provider sent it; `item` the part that holds it, secrets replaced."""
        self._first = taken.segments[0]
        self._rest = taken.segments[1:]
        self.identity = identity
        self.item = item
        self.holes = len(self._rest)
        self.size = sum(map(len, taken.segments))

    def match(self, text: bytes, start: int, values: list[bytes]) -> int:
        """Where this item ends in `text` if it begins at `start` (its values are appended), or -1.

        Only plain values are taken (numbers, times, null, true, false): anything else is looked at properly, secrets
        and all.
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


def _walk(raw: bytes, node: Node, result: Cut, secret: bool) -> bytes:
    secret = secret or node.secret
    if node.volatile:
        result.values.append(Piece(raw, node, secret))
        return HOLE
    if node.cold and len(raw) >= SMALL:
        result.cold.append(Piece(raw, node, secret))
        return PART
    first = raw[0]
    if first == _BRACE and (node.keys or node.any is not None):
        return _walk_object(raw, node, result, secret)
    if first == _BRACKET and node.each is not None:
        each = node.each
        return b"[" + b",".join([_walk(bytes(value), each, result, secret) for value in _list.decode(raw)]) + b"]"
    return raw


def _walk_object(raw: bytes, node: Node, result: Cut, secret: bool) -> bytes:
    keys, any_key, names = node.keys, node.any, _names
    out: list[bytes | msgspec.Raw] = []
    for key, value in _object.decode(raw).items():
        out.append(names.get(key) or _name(key))
        below = keys.get(key, any_key)
        if below is None:
            out.append(value)
        else:
            out.append(_walk(bytes(value), below, result, secret or is_secret_name(key)))
    if not out:
        return b"{}"
    return b"{" + b"".join(out)[1:] + b"}"


def _name(key: str) -> bytes:
    encoded = b"," + msgspec.json.encode(key) + b":"
    if len(_names) < 10_000:
        _names[key] = encoded
    return encoded
