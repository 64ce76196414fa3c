"""Which ranges of events are sealed, where their files are, and the two indexes into them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, literal_column, select

from events.codec import POLLS
from events.store.schema import revision, sealed, sealed_ids, sealed_streams

SINCE: Final = "0003"  # the first revision that has these tables

REVISION_OF: Final = select(revision.c.version_num)
BEHIND: Final = select(sealed).where(sealed.c.last > bindparam("end")).order_by(sealed.c.last)
POSITION_OF: Final = select(sealed_ids.c.position).where(sealed_ids.c.event_id == bindparam("sealed_id"))
SPANS_OF: Final = (
    select(sealed_streams.c.first, sealed_streams.c.last)
    .where(sealed_streams.c.stream_id == bindparam("stream"))
    .order_by(sealed_streams.c.first)
)
IDS_IN: Final = select(sealed_ids).where(
    sealed_ids.c.position >= bindparam("first"), sealed_ids.c.position <= bindparam("last")
)
SPANS_IN: Final = select(sealed_streams).where(
    sealed_streams.c.first >= bindparam("first"), sealed_streams.c.first <= bindparam("last")
)
END: Final = select(func.coalesce(func.max(sealed.c.last), literal_column("0"))).scalar_subquery()


class SealedRange(NamedTuple):
    """A row of `sealed`: positions `first` to `last`, and the file that holds them."""

    last: int
    first: int
    hash: bytes  # of the whole chain up to `last`
    place: str  # a URL, or a path beside the record
    file: str
    size: int  # bytes
    digest: bytes  # SHA-256 of the file

    def __str__(self) -> str:
        return f"positions {self.first} to {self.last}"


class Indexes:
    """What finds an event in a sealed range by its id, and the events of a stream, polls aside."""

    def __init__(self) -> None:
        self.ids: list[tuple[bytes, int]] = []
        self._streams: dict[int, tuple[int, int]] = {}

    def note(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take rows of `events`, in order."""
        for row in rows:
            position, stream, kind, event_id = row[0], row[1], row[3], row[4]
            if event_id is not None:
                self.ids.append((event_id, position))
            if kind not in POLLS:
                self._streams[stream] = self._streams.get(stream, (position,))[0], position

    def streams(self) -> list[tuple[int, int, int]]:
        """(stream, position of its first event, of its last one)."""
        return [(stream, *span) for stream, span in self._streams.items()]
