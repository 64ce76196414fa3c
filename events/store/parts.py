"""Texts that events share, stored once by content: questions, answers' lists, items, and cold values in items.

A part is text and the parts it refers to, compressed against an earlier part of its family if that helps, so a new
version of an item costs about what changed.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import zstandard
from sqlalchemy import bindparam, select

from steno.events.errors import RecordDamaged
from steno.events.store.chain import canonical_part
from steno.events.store.poll_header import fold, read_numbers, unfold, write_number
from steno.events.store.schema import parts
from steno.events.store.store import Session

WRITER_CACHE: Final = 4 << 20  # least bytes a writer keeps: the newest part of all it polls
_ANSWERS: Final = 4  # the least answers, as large as the largest so far, that it keeps
READER_CACHE: Final = 1 << 19
_DEEPEST: Final = 8  # longest chain of compression bases: bounds the cost of reading a part
_SMALL: Final = 64  # bytes; a part this small resembles its base well enough
COMPRESSED: Final = 1
REFERS: Final = 2
_WORTH_COMPRESSING: Final = 64
_CODERS_KEPT: Final = 8  # compressors and decompressors; one takes 100 KB, and 20 µs to make, which is 20 uses

# A window for an item and its base. With zstd's default of megabytes, clearing the tables dominates.
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
_ROW: Final = select(parts.c.id, parts.c.commitment, parts.c.base_id, parts.c.encoding, parts.c.data)
_GET: Final = _ROW.where(parts.c.id == bindparam("part"))
_GET_SOME: Final = _ROW.where(parts.c.id >= bindparam("first"), parts.c.id < bindparam("last"))
_AHEAD: Final = 32  # rows read at once by who reads parts in order, as a fold does
_packer: Final = partial(zstandard.ZstdCompressor, compression_params=_PARAMETERS)
_unpacker: Final = partial(zstandard.ZstdDecompressor, format=zstandard.FORMAT_ZSTD1_MAGICLESS)
_Coder = TypeVar("_Coder")


class Part(NamedTuple):
    """A part's text and the parts it refers to."""

    text: bytes
    children: tuple[int, ...]
    commitment: bytes
    depth: int


class Parts:
    """The parts of one record, through one connection, with a cache of some `cache` bytes."""

    def __init__(self, session: Session, commit: Callable[[bytes], bytes], *, cache: int) -> None:
        self._session = session
        self._commit = commit
        self._cache = cache
        self._ids: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._parts: dict[int, Part] = {}
        self._ahead: dict[int, Sequence[Any]] = {}  # rows that were read with one before them
        self._newest = 0  # the part whose row was read last, those of bases aside
        self._anchors: dict[Hashable, int] = {}
        self._cached = 0
        self._packers: dict[int | None, zstandard.ZstdCompressor] = {}
        self._unpackers: dict[int | None, zstandard.ZstdDecompressor] = {}

    def put(self, text: bytes, children: tuple[int, ...] = (), families: Sequence[Hashable] = ()) -> int:
        """The id of the part with this content, stored if new, in a transaction. `families`: its likely bases."""
        known = self._ids.get((text, children))
        if known is None:
            commitment = self._commit(canonical_part(text, tuple([self.commitment(child) for child in children])))
            known = self._ids[text, children] = self._add(text, children, commitment, families)
        return known

    def expect(self, size: int) -> None:
        """Make room for the parts of answers of `size` bytes."""
        self._cache = max(self._cache, _ANSWERS * size)

    def get(self, part_id: int) -> Part:
        """A part by its id. Raises RecordDamaged if it is missing or unreadable."""
        part = self._parts.get(part_id)
        return self._load(part_id, 0) if part is None else part

    def commitment(self, part_id: int) -> bytes:
        return self.get(part_id).commitment

    def forget(self) -> None:
        """Drop the cache: a transaction was rolled back, and its ids may be reused."""
        self._drop_cached()
        self._anchors.clear()
        self._packers.clear()
        self._unpackers.clear()

    def unpack(self, encoding: int, data: bytes, base: int | None) -> tuple[bytes, tuple[int, ...]]:
        """Text and children of a part's row. Raises RecordDamaged if its base is unreadable, or ValueError, MemoryError
        or zstandard.ZstdError if the bytes are not a part's.
        """
        if encoding not in (0, COMPRESSED, REFERS, COMPRESSED | REFERS):
            raise ValueError("unknown encoding")
        if encoding & COMPRESSED:
            data = self._coder(self._unpackers, base, _unpacker).decompress(data, allow_extra_data=False)
        if not encoding & REFERS:
            return bytes(data), ()
        (count,), start = read_numbers(data, 0, 1)
        if count > len(data):
            raise ValueError("more references than bytes")
        steps, start = read_numbers(data, start, count)
        children = (unfold(steps[0]),) if count == 1 else tuple(accumulate(map(unfold, steps)))
        return bytes(data[start:]), children

    def _add(self, text: bytes, children: tuple[int, ...], commitment: bytes, families: Sequence[Hashable]) -> int:
        base = next((self._anchors[family] for family in families if family in self._anchors), None)
        depth = 0 if base is None else self.get(base).depth + 1
        if depth > _DEEPEST:
            base = None
        joined = text
        if children:
            refers = bytearray()
            write_number(refers, len(children))
            for child, last in zip(children, (0, *children), strict=False):
                write_number(refers, fold(child - last))
            joined = bytes(refers) + text
        data = joined
        encoding = REFERS if children else 0
        if len(joined) >= _WORTH_COMPRESSING:
            smaller = self._coder(self._packers, base, _packer).compress(joined)
            if len(smaller) < len(joined):
                encoding, data = encoding | COMPRESSED, smaller
        if base is None or not encoding & COMPRESSED:
            base, depth = None, 0
        part_id, added = self._session.add_part(commitment, base, encoding, crc32(data), data)
        if added:
            self._keep(part_id, Part(text, children, commitment, depth))
        grown = added and len(data) > _SMALL and len(data) * 8 > len(joined)
        for family in families:
            # A base that stays is in a reader's cache.
            if grown or family not in self._anchors:
                self._anchors[family] = part_id
        return part_id

    def _load(self, part_id: int, depth: int) -> Part:
        row = self._row(part_id)
        if row is None:
            raise RecordDamaged(f"Part {part_id} is missing from the record: run `steno verify`.")
        _, commitment, base_id, encoding, data = row
        if depth > 4 * _DEEPEST:
            raise RecordDamaged(f"Part {part_id} refers to itself: run `steno verify`.")
        base = None if base_id is None else self._parts.get(base_id) or self._load(base_id, depth + 1)
        try:
            text, children = self.unpack(encoding, data, base_id)
        except (ValueError, MemoryError, zstandard.ZstdError) as error:
            raise RecordDamaged(
                f"Part {part_id} of the record cannot be read ({error}): run `steno verify`."
            ) from error
        part = Part(text, children, bytes(commitment), 0 if base is None else base.depth + 1)
        self._keep(part_id, part)
        return part

    def _row(self, part_id: int) -> Sequence[Any] | None:
        row = self._ahead.get(part_id)
        if row is None and 0 < part_id - self._newest <= _AHEAD:
            rows = self._session.run(_GET_SOME, part_id, part_id + _AHEAD)
            self._ahead = {row[0]: row for row in rows}
            row = self._ahead.get(part_id)
        elif row is None:
            row = self._session.run(_GET, part_id).fetchone()
        self._newest = max(self._newest, part_id)
        return row

    def _keep(self, part_id: int, part: Part) -> None:
        if self._cached > self._cache:
            self._drop_cached()
        self._parts[part_id] = part
        self._cached += len(part.text) + 8 * len(part.children) + 200

    def _drop_cached(self) -> None:
        self._ids.clear()
        self._parts.clear()
        self._ahead.clear()
        self._cached = 0

    def _coder(self, kept: dict[int | None, _Coder], base: int | None, make: Callable[..., _Coder]) -> _Coder:
        """A compressor or decompressor for a base; keeps the last used."""
        coder = kept.pop(base, None)
        if coder is None:
            if len(kept) >= _CODERS_KEPT:
                del kept[next(iter(kept))]
            text = b"" if base is None else self.get(base).text
            raw = zstandard.DICT_TYPE_RAWCONTENT
            coder = make(dict_data=zstandard.ZstdCompressionDict(text, dict_type=raw) if text else None)
        kept[base] = coder
        return coder
