"""Where the items of an answer are: the answer itself, a list, a list inside an object, or the lines of a text."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from events.shape.cut import HOLE, PART, elements
from events.shape.shape import LINES, BodyShape

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LINE: Final = re.compile(rb"(?:[^\\]|\\[^n])*")
"""Up to the next line break, in the text of a JSON string."""


class Split(NamedTuple):
    """An answer taken apart."""

    items: list[bytes]
    """JSON text each; of a text, its lines as JSON strings."""
    frame: bytes
    """The text around them, with byte 1 in the place of an item; of a text, byte 0 and what follows the last line."""
    plain: bool
    """The frame and the items give the text back byte for byte."""


def split(body: bytes, shape: BodyShape | None, clean: Callable[[bytes], bytes] = bytes) -> Split | None:
    """The items of an answer; None where the answer has not the form that the shape declares.

    Args:
        clean: replaces the secrets in the text around the items.

    Raises:
        msgspec.MsgspecError, RecursionError: the answer is no JSON.
    """
    if shape is None or not shape.items:
        return None
    if shape.items == LINES:
        return _lines(body)
    path = shape.items.removesuffix("[]")
    if path:
        return _inside(body, path.split("."), clean)
    items = elements(body)
    if items is None:
        return None
    frame = b"[" + b",".join([PART] * len(items)) + b"]"
    return Split(items, frame, plain=b"[" + b",".join(items) + b"]" == body)


def joined_lines(frame: bytes, lines: list[bytes]) -> bytes:
    """The JSON string that was split into lines."""
    return b'"' + rb"\n".join([line[1:-1] for line in lines]) + frame.removeprefix(HOLE) + b'"'


def _lines(body: bytes) -> Split | None:
    text = body.strip()
    if text[:1] != b'"':
        return None
    inner = text[1:-1]
    lines, at = [], 0
    while at < len(inner):
        found = _LINE.match(inner, at)
        end = len(inner) if found is None else found.end()
        lines.append(b'"' + inner[at:end] + b'"')
        at = end + 2
    # The break behind the last line belongs to the frame: a text is not one line longer for it.
    rest = rb"\n" if lines and at == len(inner) else b""
    return Split(lines, HOLE + rest, plain=text == body)


def _inside(body: bytes, path: list[str], clean: Callable[[bytes], bytes]) -> Split | None:
    compact = msgspec.json.format(body, indent=-1)
    found = _walk(compact, path, bytes)
    # Keys that are repeated, or written with escapes, would not come back.
    if found is None or _filled(found[1], found[0]) != compact:
        return None
    items, frame = found if clean is bytes else _walk(compact, path, clean) or found
    return Split(items, frame, plain=False)


def _walk(raw: bytes, path: list[str], clean: Callable[[bytes], bytes]) -> tuple[list[bytes], bytes] | None:
    if not path:
        items = elements(raw)
        return None if items is None else (items, b"[" + b",".join([PART] * len(items)) + b"]")
    try:
        members = _object.decode(raw)
    except msgspec.ValidationError:
        return None
    if path[0] not in members:
        return None
    below = _walk(bytes(members[path[0]]), path[1:], clean)
    if below is None:
        return None
    out = []
    for key, value in members.items():
        name = msgspec.json.encode(key) + b":"
        out.append(name + below[1] if key == path[0] else clean(b"{" + name + bytes(value) + b"}")[1:-1])
    return below[0], b"{" + b",".join(out) + b"}"


def _filled(frame: bytes, items: list[bytes]) -> bytes:
    first, *rest = frame.split(PART)
    return first + b"".join([item + text for item, text in zip(items, rest, strict=True)])
