"""What events share, stored once by content: questions, answers' lists, items, and the cold values inside items.

A part is text and the parts it refers to. It is compressed against an earlier part of its family where that helps, so a
new version of an item costs about what changed in it.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import zstandard

from events.errors import RecordDamaged
from events.shape.values import fold, read_number, read_numbers, unfold, write_number
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
COMPRESSED: Final = 1
REFERS: Final = 2
_WORTH_COMPRESSING: Final = 64
_CODERS_KEPT: Final = 8
"""Compressors and decompressors kept; one takes some 100 KB, and 20 µs to make, twenty times what it then works for."""

# A window that holds any item beside its base. With zstd's own, of megabytes, clearing the tables takes longest.
_PARAMETERS: Final = zstandard.ZstdCompressionParameters.from_level(
    3,
    window_log=17,
    hash_log=14,
    chain_log=14,
    format=zstandard.FORMAT_ZSTD1_MAGICLESS,
    write_content_size=True,
    write_checksum=False,
    write_dict_id=False,
)
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


class Base(NamedTuple):
    """The part that another is compressed against."""

    part: int
    text: bytes


class Packer:
    """Packs and unpacks the parts of one record, the bases used last at hand."""

    def __init__(self) -> None:
        self._writers: dict[int | None, zstandard.ZstdCompressor] = {}
        self._readers: dict[int | None, zstandard.ZstdDecompressor] = {}

    def pack(self, joined: bytes, *, refers: bool, base: Base | None) -> tuple[int, bytes]:
        """Encoding and bytes of a part; not compressed, and so without its base, where that would save nothing.

        `joined` is what `join` gives, `refers` whether the part has children.
        """
        encoding = REFERS if refers else 0
        if len(joined) >= _WORTH_COMPRESSING:
            smaller = self._writer(base).compress(joined)
            if len(smaller) < len(joined):
                return encoding | COMPRESSED, smaller
        return encoding, joined

    def unpack(self, encoding: int, data: bytes, base: Base | None) -> tuple[bytes, tuple[int, ...]]:
        """Text and children of a part's row.

        Raises:
            ValueError, MemoryError, zstandard.ZstdError: the bytes are not a part's.
        """
        if encoding not in (0, 1, 2, 3):
            raise ValueError("unknown encoding")
        if encoding & COMPRESSED:
            data = self._reader(base).decompress(data, allow_extra_data=False)
        if not encoding & REFERS:
            return bytes(data), ()
        return _parted(data)

    def forget(self) -> None:
        """Drop what is at hand: the bases may be other texts now."""
        self._writers.clear()
        self._readers.clear()

    def _writer(self, base: Base | None) -> zstandard.ZstdCompressor:
        part = None if base is None else base.part
        found = self._writers.pop(part, None)
        if found is None:
            if len(self._writers) >= _CODERS_KEPT:
                del self._writers[next(iter(self._writers))]
            found = zstandard.ZstdCompressor(compression_params=_PARAMETERS, dict_data=_dictionary(base))
        self._writers[part] = found
        return found

    def _reader(self, base: Base | None) -> zstandard.ZstdDecompressor:
        part = None if base is None else base.part
        found = self._readers.pop(part, None)
        if found is None:
            if len(self._readers) >= _CODERS_KEPT:
                del self._readers[next(iter(self._readers))]
            found = zstandard.ZstdDecompressor(dict_data=_dictionary(base), format=zstandard.FORMAT_ZSTD1_MAGICLESS)
        self._readers[part] = found
        return found


def _dictionary(base: Base | None) -> zstandard.ZstdCompressionDict | None:
    if base is None or not base.text:
        return None
    return zstandard.ZstdCompressionDict(base.text, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def join(text: bytes, children: tuple[int, ...]) -> bytes:
    """A part's references and its text as one."""
    if not children:
        return text
    out = bytearray()
    write_number(out, len(children))
    last = 0
    for child in children:
        write_number(out, fold(child - last))
        last = child
    return bytes(out) + text


def _parted(data: bytes) -> tuple[bytes, tuple[int, ...]]:
    count, start = read_number(data, 0)
    if count > len(data):
        raise ValueError("more references than bytes")
    steps, start = read_numbers(data, start, count)
    children: list[int] = []
    last = 0
    for step in steps:
        last += unfold(step)
        children.append(last)
    return bytes(data[start:]), tuple(children)
