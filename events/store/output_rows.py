"""The rows of `outputs`: chunks of bytes beside the chain, each at the position of the `OutputRecorded` with its hash.

The position is the key, not the hash: equal chunks, of two outputs or of the same, are dropped at different
times.
"""

from contextlib import suppress
from hashlib import sha256
from typing import Final

import zstandard
from sqlalchemy import bindparam, delete, insert, literal_column, select

from steno.events.codec import CODES
from steno.events.errors import RecordDamaged
from steno.events.store.schema import events, outputs
from steno.events.types import OutputRecorded

LARGEST: Final = 1 << 20  # bytes of a chunk
_AT_ONCE: Final = 20  # the oldest chunks, which are dropped in one transaction

KEEP: Final = insert(outputs).values(position=bindparam("position"), data=bindparam("data"))
DROP: Final = delete(outputs).where(outputs.c.position == bindparam("at"))
ONE: Final = select(outputs.c.data).where(outputs.c.position == bindparam("at"))
POSITIONS: Final = select(outputs.c.position)
RECORDED: Final = (
    select(events.c.position, events.c.data)
    .where(events.c.kind == literal_column(str(CODES[OutputRecorded])), events.c.kind > literal_column("1"))
    .order_by(events.c.position)
)
OLDEST: Final = (
    select(outputs.c.position, events.c.observed_at)
    .join(events, events.c.position == outputs.c.position, isouter=True)
    .order_by(outputs.c.position)
    .limit(literal_column(str(_AT_ONCE)))
)


def pack(data: bytes) -> bytes:
    """The form in which a chunk is stored."""
    return zstandard.compress(data, level=3)


def unpack(packed: bytes, event: OutputRecorded) -> bytes:
    """The bytes of a chunk. Raises RecordDamaged if they are not those of its event."""
    with suppress(zstandard.ZstdError):
        if zstandard.frame_content_size(packed) == event.size <= LARGEST:  # else it may be a bomb
            data = zstandard.ZstdDecompressor().decompress(packed, LARGEST, allow_extra_data=False)
            if sha256(data).hexdigest() == event.sha256:
                return data
    raise RecordDamaged(f"The output of run {event.run_id} was changed at byte {event.offset}: run `steno verify`.")
