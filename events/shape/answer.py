"""From an answer's text to parts and values, and back.

An answer is one part that lists its items: first line the kind of its items, second the key that names an item, then
the text around the items. Each item is a part with holes for its volatile values, which the poll event keeps.
"""

import json
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from events.errors import RecordDamaged
from events.secrets import Replace, scrub
from events.shape.cut import HOLE, PART, Cut, Piece, Template, cut, fill, member, strip
from events.shape.items import joined_lines, split
from events.shape.shape import LINES, BodyShape, Node, compile_paths
from events.store.parts import Parts

OPAQUE: Final = "opaque"
"""The kind of a body that is no JSON we can walk; kept whole, byte for byte."""

OTHER: Final = "other"
_TEMPLATE_BYTES: Final = 64 << 20
_COLD_BYTES: Final = 16 << 20


class Answer(NamedTuple):
    """An answer as it was understood: the part that lists it, its items in order, and the text between them."""

    listing: int
    kind: str
    items: tuple[Template, ...]
    between: tuple[bytes, ...]
    """One more than there are items; empty if the answer cannot be recognised by its text."""

    def match(self, body: bytes, values: list[bytes]) -> bool:
        """Whether `body` is this answer again but for volatile values, which are appended."""
        if not self.between:
            return False
        if not body.startswith(self.between[0]):
            return False
        at = len(self.between[0])
        for index, item in enumerate(self.items, 1):
            at = item.match(body, at, values)
            between = self.between[index]
            if at < 0 or not body.startswith(between, at):
                return False
            at += len(between)
        return at == len(body)


class AnswerItems(msgspec.Struct, frozen=True, kw_only=True):
    """The items of an answer, without their volatile values."""

    kind: str
    """`run`, `vm`, `provider_event`, `fleet`, `other`, or `opaque` (no JSON)."""
    listed: bool
    """The answer is a list; otherwise it is its one item."""
    items: tuple[tuple[str, str, int], ...]
    """(kind, the provider's id or "" where there is none, item part), in the answer's order. Equal item parts mean
    items that are equal apart from volatile values.
    """
    holes: tuple[int, ...]
    """How many volatile values each item has."""


class Answers:
    """Understands answers on behalf of one writer."""

    def __init__(self, parts: Parts, replace: Replace) -> None:
        self._parts = parts
        self._replace = replace
        self._templates: dict[tuple[str, str], Template] = {}
        self._template_bytes = 0
        self._cold: dict[tuple[bytes, int, bool], int] = {}
        self._cold_bytes = 0
        self._nodes: dict[BodyShape | None, Node] = {}

    def forget(self) -> None:
        """Drop everything remembered: a transaction was rolled back."""
        self._templates.clear()
        self._template_bytes = 0
        self._cold.clear()
        self._cold_bytes = 0

    def understand(self, body: bytes, shape: BodyShape | None, family: Hashable) -> tuple[Answer, list[bytes]]:
        """The answer and its volatile values, new parts stored."""
        try:
            if HOLE not in body and PART not in body:
                return self._walkable(body, shape, family)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass
        text = self._parts.put(scrub(body, self._replace), families=((OPAQUE, family),))
        return Answer(self._list(OPAQUE, "", PART, (text,), family), OPAQUE, (), ()), []

    def _walkable(self, body: bytes, shape: BodyShape | None, family: Hashable) -> tuple[Answer, list[bytes]]:
        values: list[bytes] = []
        node = self._node(shape)
        kind, key = (shape.kind, shape.identity) if shape is not None else (OTHER, "")
        found = split(body, shape, lambda text: scrub(text, self._replace))
        if shape is not None and found is not None:
            raws = found.items
            items = tuple([self._item(raw, identity_of(raw, shape), kind, node, values, family) for raw in raws])
            listing = self._list(kind, key, found.frame, tuple([item.item for item in items]), family)
            between = tuple(found.frame.split(PART)) if found.plain and HOLE not in found.frame else ()
            return Answer(listing, kind, items, between), values
        item = strip(body)
        name = identity(item, key) if shape is not None and not shape.items else ""
        if not name:
            kind, key, node = OTHER, "", self._node(None)
        only = self._item(item, name, kind, node, values, family)
        listing = self._list(kind, key, PART, (only.item,), family)
        return Answer(listing, kind, (only,), (b"", b"") if item == body else ()), values

    def _item(
        self, raw: bytes, identity: str, kind: str, node: Node, values: list[bytes], family: Hashable
    ) -> Template:
        before = self._templates.get((kind, identity))
        if before is not None:
            count = len(values)
            if before.match(raw, 0, values) == len(raw):
                return before
            del values[count:]
        taken = cut(raw, node)
        if taken.text is raw:
            # Not compact, or nothing to cut: as compact text it may be cut, and equal ones are equal.
            raw = msgspec.json.format(raw, indent=-1)
            taken = cut(raw, node)
        template = Template(taken, identity, self._store(taken, (kind, identity or family), node))
        values += [scrub(piece.raw, self._replace, piece.node, secret=piece.secret) for piece in taken.values]
        if identity:
            self._remember((kind, identity), template)
        return template

    def _store(self, taken: Cut, name: tuple[str, Hashable], node: Node) -> int:
        cold = [self._cold_part(piece, name) for piece in taken.cold]
        text = scrub(taken.text, self._replace, node)
        return self._parts.put(text, tuple(cold), (name, (name[0], None)))

    def _cold_part(self, piece: Piece, name: tuple[str, Hashable]) -> int:
        key = (piece.raw, id(piece.node), piece.secret)
        known = self._cold.get(key)
        if known is not None:
            return known
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

    def _node(self, shape: BodyShape | None) -> Node:
        node = self._nodes.get(shape)
        if node is None:
            node = self._nodes[shape] = compile_paths(shape)
        return node

    def _remember(self, name: tuple[str, str], template: Template) -> None:
        if self._template_bytes > _TEMPLATE_BYTES:
            self.forget()
        self._templates[name] = template
        self._template_bytes += template.size


def read_listing(parts: Parts, listing_id: int) -> AnswerItems:
    """The items an answer lists.

    Raises:
        RecordDamaged: a part is missing or unreadable.
    """
    part = parts.get(listing_id)
    try:
        kind, key, frame = part.text.split(b"\n", 2)
    except ValueError:
        raise RecordDamaged(f"Part {listing_id} of the record is not an answer: run `steno verify`.") from None
    word = kind.decode("utf-8", "replace")
    items: list[tuple[str, str, int]] = []
    holes: list[int] = []
    for child in part.children:
        if word == OPAQUE:
            items.append((word, "", child))
            holes.append(0)
            continue
        text = bare_text(parts, child)
        items.append((word, identity(text, key.decode("utf-8", "replace")) if key else "", child))
        holes.append(parts.get(child).text.count(HOLE))
    return AnswerItems(kind=word, listed=frame != PART, items=tuple(items), holes=tuple(holes))


def read_children(parts: Parts, listing_id: int) -> tuple[str, tuple[int, ...]]:
    """The kind and the item parts of an answer, without reading the items.

    Raises:
        RecordDamaged: the part is missing or unreadable.
    """
    part = parts.get(listing_id)
    return part.text.partition(b"\n")[0].decode("utf-8", "replace"), part.children


def item_text(parts: Parts, item_id: int, values: Iterable[bytes]) -> bytes:
    """An item's JSON text with its values.

    Raises:
        RecordDamaged: a part is missing or unreadable.
    """
    part = parts.get(item_id)
    cold = [parts.get(child).text for child in part.children]
    try:
        return fill(part.text, values, cold)
    except ValueError as error:
        raise RecordDamaged(f"Part {item_id} of the record cannot be filled ({error}): run `steno verify`.") from error


def bare_text(parts: Parts, item_id: int) -> bytes:
    """An item's JSON text with `null` in place of its values.

    Raises:
        RecordDamaged: a part is missing or unreadable.
    """
    part = parts.get(item_id)
    first, *rest = part.text.replace(HOLE, b"null").split(PART)
    if len(rest) != len(part.children):
        raise RecordDamaged(f"Part {item_id} of the record does not fit its parts: run `steno verify`.")
    out = [first]
    for child, text in zip(part.children, rest, strict=True):
        out += (parts.get(child).text, text)
    return b"".join(out)


def body_text(parts: Parts, listing_id: int, values: list[bytes]) -> bytes:
    """The answer's text, as it came but for secrets and white space.

    Raises:
        RecordDamaged: a part is missing or unreadable.
    """
    part = parts.get(listing_id)
    try:
        kind, _, frame = part.text.split(b"\n", 2)
        if kind == OPAQUE.encode():
            return parts.get(part.children[0]).text
        rest = iter(values)
        items = [item_text(parts, child, rest) for child in part.children]
        return joined_lines(frame, items) if frame[:1] == HOLE else fill(frame, (), items)
    except (ValueError, IndexError) as error:
        raise RecordDamaged(
            f"Part {listing_id} of the record is not an answer ({error}): run `steno verify`."
        ) from error


def identity_of(item: bytes, shape: BodyShape) -> str:
    """What names an item of an answer; "" where nothing does."""
    if shape.items != LINES:
        return identity(item, shape.identity)
    columns = str(json.loads(item)).split(shape.separator)
    number = int(shape.identity)
    return columns[number].strip() if number < len(columns) else ""


def identity(item: bytes, key: str) -> str:
    """The text under the key that names an item; "" where it has none."""
    if item[:1] != b"{" or not key:
        return ""
    raw = member(item, key)
    if raw is None:
        return ""
    if raw[:1] == b'"' and b"\\" not in raw:
        return raw[1:-1].decode()
    found = json.loads(raw)
    return found if isinstance(found, str) else "" if found is None or isinstance(found, (dict, list)) else str(found)
