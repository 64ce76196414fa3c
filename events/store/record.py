"""The record: everything that happened, in order, for ever."""

from collections.abc import Callable, Sequence
from typing import Self

from events.clock import SECOND, Clock
from events.errors import RecordNotWritable
from events.poll import Poll
from events.shape.shape import Router, no_shapes
from events.store.append import ANY, Appender, Batch
from events.store.chain import Head
from events.store.ingest import Ingest, PollAppended, StreamOf
from events.store.parts import READER_CACHE, WRITER_CACHE, Parts
from events.store.read import Reader, Row, Stored
from events.store.store import Session, Store, Where, store_at
from events.store.vault import Vault
from events.store.verify import Verification, verify

__all__ = ["ANY", "Batch", "Head", "PollAppended", "Record", "Row", "Stored", "Verification"]

_WAIT_STEP = SECOND // 50


class Record(Reader):
    """One open record; used by one thread at a time, shared with any number of other processes."""

    def __init__(self, store: Store, session: Session, clock: Clock, router: Router, *, write: bool) -> None:
        self.store = store
        """Where it is kept, and what is kept beside it."""
        self.id = session.identity.record_id
        self.vault = Vault(store.blob("vault"), write=write)
        self._clock = clock
        self._write = write
        self._appender = Appender(session)
        parts = Parts(session, self._appender.commit, cache=WRITER_CACHE if write else READER_CACHE)
        super().__init__(session, parts)
        self._ingest = Ingest(self._appender, parts, self.vault, router, self)

    @staticmethod
    def open(
        where: Where,
        *,
        clock: Clock,
        write: bool = False,
        create: bool = False,
        check: bool = True,
        shapes: Router = no_shapes,
    ) -> "Record":
        """Open the record of a store.

        Args:
            clock: says when events are recorded.
            write: events will be appended; without it the record is only read.
            create: make the record (and its folder) if it is not there; only with `write`.
            check: look that the newest events are there; `verify` looks for itself.
            shapes: how the answers of each endpoint are built.

        Raises:
            RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordTooOld, RecordNotWritable, RecordLocked:
                nothing was written.
        """
        store = store_at(where)
        session = store.open(write=write, create=create, check=check, clock=clock)
        return Record(store, session, clock, shapes, write=write)

    def append_many(self, batches: Sequence[Batch], *, durable: bool = False) -> tuple[int, ...]:
        """Append events to streams, all or none; their positions, in order.

        `durable` waits until the disk has them. An event whose id is already there, with the same bytes, is not
        appended again: its position is the old one.

        Raises:
            VersionConflict, IdConflict, RecordLocked, RecordNotWritable: nothing was appended.
        """
        self._expect_writing()
        return self._appender.append_many(batches, self._clock.now(), durable=durable)

    def append_polls(
        self, polls: Sequence[Poll], *, ids: Sequence[str] | None = None, stream_of: StreamOf | None = None
    ) -> tuple[PollAppended, ...]:
        """Append polls in one transaction, each with an observation event for every item it shows otherwise than
        before.

        Secrets are replaced first. `ids` make it repeatable: a poll whose id is there is left out. `stream_of` names
        the stream of a run or machine; by default `run/` or `vm/` and the id every foreign one gets.

        Raises:
            IdConflict, RecordLocked, RecordNotWritable: nothing was appended.
        """
        self._expect_writing()
        return self._ingest.append_polls(polls, self._clock.now(), ids=ids, stream_of=stream_of)

    def scrubbed(self, poll: Poll) -> Poll:
        """A poll with its secrets replaced, as it would be stored: what a trace may show."""
        return self._ingest.scrubbed(poll)

    def verify(self, *, expect: Head | None = None, progress: Callable[[int, int], None] | None = None) -> Verification:
        """Whether every byte that carries data is as it was written; `expect` is a head saved earlier."""
        return verify(self._session, expect=expect, progress=progress)

    def wait(self, after: int, timeout: int) -> bool:
        """Whether the record goes beyond position `after` within `timeout` microseconds."""
        end = self._clock.now() + timeout
        while self.head().position <= after:
            left = end - self._clock.now()
            if left <= 0:
                return False
            self._clock.sleep(min(_WAIT_STEP, left))
        return True

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _expect_writing(self) -> None:
        if not self._write:
            raise RecordNotWritable(f"The record {self.store} was opened for reading only.")
