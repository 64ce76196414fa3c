"""What events share, stored once by content: questions, answers' lists, items, and the cold values inside items.

A part is text and the parts it refers to. It is compressed against an earlier part of its family where that helps, so a
new version of an item costs about what changed in it.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import zstandard

from events.errors import RecordDamaged
from events.shape.packing import COMPRESSED, Base, Packer, join
from events.store.chain import canonical_part
from events.store.schema import driver

if TYPE_CHECKING:
    from sqlalchemy import Connection

WRITER_CACHE: Final = 32 << 20
"""Bytes a writer remembers: the newest part of everything it polls is compared with the next answer."""
READER_CACHE: Final = 1 << 20
_DEEPEST: Final = 8
"""How many parts deep a part may be compressed against others: bounds the cost of reading one."""
_SMALL: Final = 64
"""A part that takes so few bytes resembles its base well enough, however short it is."""
_GET: Final = "SELECT commitment, base_id, encoding, data FROM parts WHERE id = ?"
_FIND: Final = "SELECT id FROM parts WHERE commitment = ?"
_ADD: Final = (
    "INSERT INTO parts (commitment, base_id, encoding, crc, data) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (commitment) DO NOTHING"
)


class Part(NamedTuple):
    """A part's text and the parts it refers to."""

    text: bytes
    children: tuple[int, ...]
    commitment: bytes
    depth: int


class Parts:
    """The parts of one record, through one connection; some `cache` bytes of them are remembered."""

    def __init__(self, connection: "Connection", commit: Callable[[bytes], bytes], *, cache: int) -> None:
        self._connection = connection
        self._commit = commit
        self._packer = Packer()
        self._cache = cache
        self._ids: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._parts: dict[int, Part] = {}
        self._commitments: dict[int, bytes] = {}
        self._anchors: dict[Hashable, int] = {}
        self._cached = 0

    def put(self, text: bytes, children: tuple[int, ...] = (), families: Sequence[Hashable] = ()) -> int:
        """The id of the part with this content, stored if it is new; must be called inside a write transaction.

        `families` name, best first, what it is likely to resemble.
        """
        known = self._ids.get((text, children))
        if known is not None:
            return known
        commitment = self._commit(canonical_part(text, tuple([self.commitment(child) for child in children])))
        part_id = self._add(text, children, commitment, families)
        self._ids[text, children] = part_id
        return part_id

    def get(self, part_id: int) -> Part:
        """A part by its id.

        Raises:
            RecordDamaged: it is not there, or its bytes cannot be read.
        """
        part = self._parts.get(part_id)
        if part is None:
            part = self._load(part_id, 0)
        return part

    def commitment(self, part_id: int) -> bytes:
        """What the chain holds of a part."""
        found = self._commitments.get(part_id)
        if found is None:
            row = driver(self._connection).execute("SELECT commitment FROM parts WHERE id = ?", (part_id,)).fetchone()
            if row is None:
                raise RecordDamaged(f"Part {part_id} is missing from the record: run `steno verify`.")
            found = self._commitments[part_id] = bytes(row[0])
        return found

    def anchor(self, families: Sequence[Hashable], part_id: int) -> None:
        """Say that `part_id` is of these families, for a writer that has just opened the record."""
        for family in families:
            self._anchors.setdefault(family, part_id)

    def forget(self) -> None:
        """Drop everything remembered: a transaction was rolled back."""
        self._ids.clear()
        self._parts.clear()
        self._commitments.clear()
        self._anchors.clear()
        self._packer.forget()
        self._cached = 0

    def _add(self, text: bytes, children: tuple[int, ...], commitment: bytes, families: Sequence[Hashable]) -> int:
        base = next((self._anchors[family] for family in families if family in self._anchors), None)
        depth, resembled = 0, None
        if base is not None:
            there = self.get(base)
            if there.depth < _DEEPEST:
                depth, resembled = there.depth + 1, Base(base, there.text)
        joined = join(text, children)
        encoding, data = self._packer.pack(joined, refers=bool(children), base=resembled)
        if resembled is None or not encoding & COMPRESSED:
            base, depth = None, 0
        cursor = driver(self._connection).execute(_ADD, (commitment, base, encoding, crc32(data), data))
        part_id = cursor.lastrowid
        if not cursor.rowcount or part_id is None:
            return self._there(commitment, families)
        grown = len(data) > _SMALL and len(data) * 8 > len(joined)
        for family in families:
            # A base that stays is one a reader has at hand.
            if grown or family not in self._anchors:
                self._anchors[family] = part_id
        self._keep(part_id, Part(text, children, commitment, depth))
        return part_id

    def _there(self, commitment: bytes, families: Sequence[Hashable]) -> int:
        """The id of a part that the record has already."""
        part_id = int(driver(self._connection).execute(_FIND, (commitment,)).fetchone()[0])
        self._commitments[part_id] = commitment
        for family in families:
            self._anchors.setdefault(family, part_id)
        return part_id

    def _load(self, part_id: int, depth: int) -> Part:
        row = driver(self._connection).execute(_GET, (part_id,)).fetchone()
        if row is None:
            raise RecordDamaged(f"Part {part_id} is missing from the record: run `steno verify`.")
        commitment, base_id, encoding, data = row
        if depth > 4 * _DEEPEST:
            raise RecordDamaged(f"Part {part_id} refers to itself: run `steno verify`.")
        base = None
        if base_id is not None:
            base = self._parts.get(base_id) or self._load(base_id, depth + 1)
        try:
            against = None if base is None else Base(base_id, base.text)
            text, children = self._packer.unpack(encoding, data, against)
        except (ValueError, MemoryError, zstandard.ZstdError) as error:
            raise RecordDamaged(
                f"Part {part_id} of the record cannot be read ({error}): run `steno verify`."
            ) from error
        part = Part(text, children, bytes(commitment), 0 if base is None else base.depth + 1)
        self._keep(part_id, part)
        return part

    def _keep(self, part_id: int, part: Part) -> None:
        if self._cached > self._cache:
            self._ids.clear()
            self._parts.clear()
            self._commitments.clear()
            self._cached = 0
        self._parts[part_id] = part
        self._commitments[part_id] = part.commitment
        self._cached += len(part.text) + 8 * len(part.children) + 200
