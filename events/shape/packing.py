"""The bytes a part is kept as: its references, its text, compressed against an earlier text where there is one."""

from typing import Final, NamedTuple

import zstandard

from events.shape.values import fold, read_number, read_numbers, unfold, write_number

COMPRESSED: Final = 1
REFERS: Final = 2
_WORTH_COMPRESSING: Final = 64
_KEPT: Final = 8
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
            if len(self._writers) >= _KEPT:
                del self._writers[next(iter(self._writers))]
            found = zstandard.ZstdCompressor(compression_params=_PARAMETERS, dict_data=_dictionary(base))
        self._writers[part] = found
        return found

    def _reader(self, base: Base | None) -> zstandard.ZstdDecompressor:
        part = None if base is None else base.part
        found = self._readers.pop(part, None)
        if found is None:
            if len(self._readers) >= _KEPT:
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
