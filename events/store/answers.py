"""From an answer's text to parts and values, and back.

An answer is one part that lists its items: the kind of its items, the key that names an item, then the text around
them. Each item is a part with holes for its volatile values, which the poll event keeps.
"""

import re
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from steno.events.errors import RecordDamaged
from steno.events.shape.cut import (
    HOLE,
    PART,
    Piece,
    Template,
    cut,
    fill,
    identity,
    identity_of,
    joined_lines,
    split,
    woven,
)
from steno.events.shape.secrets import Replace, scrub
from steno.events.shape.shape import BodyShape, compile_paths
from steno.events.store.parts import Parts

OPAQUE: Final = "opaque"  # the kind of a body that cannot be walked; kept whole

_OTHER: Final = BodyShape(kind="other", identity="")
_TEMPLATE_BYTES: Final = 64 << 20
_COLD_BYTES: Final = 16 << 20
_SPACED: Final = re.compile(rb'[\s\[]*\{\s*"[^"\\]*"\s*:\s')  # an object, or a list of them, that is not compact


class Answer(NamedTuple):
    """An answer as understood: the part that lists it, its items in order, and the text between them."""

    listing: int
    kind: str
    items: tuple[Template, ...]
    between: tuple[bytes, ...]  # one more than items; empty: the text cannot be recognised

    def match(self, body: bytes, values: list[bytes]) -> bool:
        """True if `body` is this answer again except for volatile values, which are appended."""
        if not self.between or not body.startswith(self.between[0]):
            return False
        at = len(self.between[0])
        for index, item in enumerate(self.items, 1):
            at = item.match(body, at, values)
            between = self.between[index]
            if at < 0 or not body.startswith(between, at):
                return False
            at += len(between)
        return at == len(body)


class Answers:
    """Understands answers on behalf of one writer."""

    def __init__(self, parts: Parts, replace: Replace) -> None:
        self._parts = parts
        self._replace = replace
        self._templates: dict[tuple[str, str], Template] = {}
        self._template_bytes = 0
        self._cold: dict[tuple[bytes, int, bool], int] = {}
        self._cold_bytes = 0

    def forget(self) -> None:
        """Drop the cache: a transaction was rolled back."""
        self._templates.clear()
        self._cold.clear()
        self._template_bytes = self._cold_bytes = 0

    def understand(self, body: bytes, shape: BodyShape | None, family: Hashable) -> tuple[Answer, list[bytes]]:
        """The answer and its volatile values, new parts stored."""
        self._parts.expect(len(body))
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            if HOLE not in body and PART not in body:
                compact = msgspec.json.format(body, indent=-1) if _SPACED.match(body) else body
                return self._walkable(compact, shape or _OTHER, family)
        text = self._parts.put(scrub(body, self._replace), families=((OPAQUE, family),))
        return Answer(self._list(OPAQUE, "", PART, (text,), family), OPAQUE, (), ()), []

    def _walkable(self, body: bytes, shape: BodyShape, family: Hashable) -> tuple[Answer, list[bytes]]:
        values: list[bytes] = []
        parts = split(body, shape)
        if parts is not None:
            items = tuple([self._item(raw, identity_of(raw, shape), shape, values, family) for raw in parts.items])
            frame, plain = parts.frame, parts.plain
        else:
            item = bytes(msgspec.json.decode(body, type=msgspec.Raw))
            name = "" if shape.items else identity(item, shape.identity)
            shape = shape if name else _OTHER
            items = (self._item(item, name, shape, values, family),)
            frame, plain = PART, item == body
        listing = self._list(shape.kind, shape.identity, frame, tuple([item.item for item in items]), family)
        between = tuple(frame.split(PART)) if plain and HOLE not in frame else ()
        return Answer(listing, shape.kind, items, between), values

    def _item(self, raw: bytes, name: str, shape: BodyShape, values: list[bytes], family: Hashable) -> Template:
        node = compile_paths(shape)
        before = self._templates.get((shape.kind, name))
        if before is not None:
            count = len(values)
            if before.match(raw, 0, values) == len(raw):
                return before
            del values[count:]
        taken = cut(raw, node)
        if taken.text is raw:
            # Not compact, or nothing to cut: compact text may be cut, and equal items are equal.
            taken = cut(msgspec.json.format(raw, indent=-1), node)
        families = ((shape.kind, name or family), (shape.kind, None))
        cold = tuple([self._cold_part(piece, families[0]) for piece in taken.cold])
        template = Template(taken, name, self._parts.put(scrub(taken.text, self._replace, node), cold, families))
        values += [scrub(piece.raw, self._replace, piece.node, secret=piece.secret) for piece in taken.values]
        if name:
            if self._template_bytes > _TEMPLATE_BYTES:
                self.forget()
            self._templates[shape.kind, name] = template
            self._template_bytes += template.size
        return template

    def _cold_part(self, piece: Piece, name: Hashable) -> int:
        key = (piece.raw, id(piece.node), piece.secret)
        part = self._cold.get(key)
        if part is None:
            text = scrub(piece.raw, self._replace, piece.node, secret=piece.secret)
            part = self._parts.put(text, families=(("cold", name, key[1]), ("cold", key[1])))
            if self._cold_bytes > _COLD_BYTES:
                self._cold.clear()
                self._cold_bytes = 0
            self._cold[key] = part
            self._cold_bytes += len(piece.raw) + 200
        return part

    def _list(self, kind: str, key: str, frame: bytes, items: tuple[int, ...], family: Hashable) -> int:
        return self._parts.put(b"%s\n%s\n%s" % (kind.encode(), key.encode(), frame), items, (("answer", family),))


class AnswerPart(NamedTuple):
    """The part that lists an answer's items. Equal item parts are equal items, volatile values aside."""

    kind: str  # `run`, `vm`, `provider_event`, `fleet`, `other`, or `opaque`
    key: str
    frame: bytes
    items: tuple[int, ...]  # in the answer's order


def read_listing(parts: Parts, listing_id: int) -> AnswerPart:
    """The part of an answer. Like every function here, it raises RecordDamaged if a part is missing or unreadable."""
    part = parts.get(listing_id)
    try:
        kind, key, frame = part.text.split(b"\n", 2)
    except ValueError:
        raise RecordDamaged(f"Part {listing_id} of the record is not an answer: run `steno verify`.") from None
    return AnswerPart(kind.decode("utf-8", "replace"), key.decode("utf-8", "replace"), frame, part.children)


def item_text(parts: Parts, item_id: int, values: Iterable[bytes]) -> bytes:
    """An item's JSON text with its values."""
    part = parts.get(item_id)
    try:
        return fill(part.text, values, [parts.get(child).text for child in part.children])
    except ValueError as error:
        raise RecordDamaged(f"Part {item_id} of the record cannot be filled ({error}): run `steno verify`.") from error


def bare_text(parts: Parts, item_id: int) -> bytes:
    """An item's JSON text with `null` for its values."""
    part = parts.get(item_id)
    segments = part.text.replace(HOLE, b"null").split(PART)
    if len(segments) != len(part.children) + 1:
        raise RecordDamaged(f"Part {item_id} of the record does not fit its parts: run `steno verify`.")
    return woven(segments, [parts.get(child).text for child in part.children])


def item_texts(parts: Parts, listing: AnswerPart, values: Iterable[bytes]) -> list[bytes]:
    """The JSON texts of an answer's items with their values, in order; of an opaque answer its text."""
    if listing.kind == OPAQUE:
        return [parts.get(listing.items[0]).text]
    rest = iter(values)
    return [item_text(parts, item, rest) for item in listing.items]


def body_text(parts: Parts, listing_id: int, values: Iterable[bytes]) -> bytes:
    """The answer's text, as it came except for secrets and white space."""
    listing = read_listing(parts, listing_id)
    try:
        items = item_texts(parts, listing, values)
        if listing.kind == OPAQUE:
            return items[0]
        return joined_lines(listing.frame, items) if listing.frame[:1] == HOLE else fill(listing.frame, (), items)
    except (ValueError, IndexError) as error:
        raise RecordDamaged(
            f"Part {listing_id} of the record is not an answer ({error}): run `steno verify`."
        ) from error
