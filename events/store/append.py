"""The one way into a record: whole batches, in one transaction, in order, chained."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

import msgspec

from steno.events.clock import Clock, SteadyClock
from steno.events.codec import CODES, encode, type_of
from steno.events.errors import IdConflict, RecordNotWritable, VersionConflict
from steno.events.store.chain import MARK_BYTES, SEAL_EVERY, chained, subject
from steno.events.store.output_rows import DROP, KEEP
from steno.events.store.parts import READER_CACHE, WRITER_CACHE
from steno.events.store.read import Reader
from steno.events.store.store import HeadMoved, Lease, Session, Store
from steno.events.types import Event

T = TypeVar("T")
_STREAMS_KEPT: Final = 100_000

ANY: Final = None  # any version of a stream


When: TypeAlias = tuple[int, int, int, bytes | None]  # observed_at, took, recorded_at, clock
Shared: TypeAlias = tuple[int | None, int | None]  # the parts for scope and body


class Batch(msgspec.Struct, frozen=True):
    stream: str
    events: Sequence[Event]
    expected_version: int | None = ANY  # of the stream (0: new)
    ids: Sequence[str | None] | None = None  # for each a UUID, or up to 16 bytes as hex: appended once only


class Unless(msgspec.Struct, frozen=True):
    """A condition of an append: no event of these types follows the position up to which its writer knew the record."""

    types: frozenset[str]
    after: int


@dataclass(slots=True)
class StreamHead:
    """A stream as the writer knows it."""

    id: int
    name: str
    version: int
    item: int | None
    since: int | None
    subjects: dict[int, bytes] = field(default_factory=dict)  # by kind, as `about` caches them

    def about(self, kind: int) -> bytes:
        """The part that the headers of this stream's events of one kind share."""
        about = self.subjects[kind] = subject(self.name, *type_of(kind))
        return about


class Appender(Reader):
    """Appends to one record, and reads it, through one connection."""

    def __init__(self, session: Session, store: Store, clock: Clock, *, write: bool) -> None:
        super().__init__(session, cache=WRITER_CACHE if write else READER_CACHE)
        self.store = store  # also of what is kept beside the record
        self._clock = clock
        self._write = write
        self._position = -1  # of the newest event, inside a transaction
        self._hash = b""
        self._streams: dict[str, StreamHead] = {}
        self._dirty: dict[int, StreamHead] = {}  # not yet in `streams`, by id
        self._pending: list[tuple[object, ...]] = []
        self._leases: list[Lease] = []
        self.on_rollback: list[Callable[[], None]] = [self._parts.forget]  # the ids of parts may be reused then

    def _appended(self, work: Callable[[], T], *, durable: bool) -> T:
        """The result of `work`, after everything it appended was committed; nothing is if it raises.

        It runs once more, with other writers excluded, if one of them came first.
        """
        if not self._write:
            raise RecordNotWritable(f"The record {self.store} was opened for reading only.")
        with self._session.guard():
            try:
                return self._attempt(work, durable=durable, locked=False)
            except (HeadMoved, VersionConflict, IdConflict):
                return self._attempt(work, durable=durable, locked=True)

    def _attempt(self, work: Callable[[], T], *, durable: bool, locked: bool) -> T:
        try:
            position, digest = self._session.begin(durable=durable, locked=locked)
            if position != self._position or digest != self._hash:
                # Another process appended, or our last append failed.
                self._goes_on(position, digest)
                self._position, self._hash, self._pending = position, digest, []
                self._streams.clear()
                self._dirty.clear()
            done = work()
            self._flush_rows()
            moved = [(stream.version, stream.item, stream.since, stream.id) for stream in self._dirty.values()]
            self._dirty.clear()
            self._session.commit((self._position, self._hash), moved)
            self._seen = self._position, self._hash
        except BaseException:
            self._position = -1
            for forget in self.on_rollback:
                forget()
            self._session.rollback()
            raise
        return done

    def follow(self, offset: int) -> None:
        """From now on our clock shows boot time plus `offset`: the record time of what we append."""
        if isinstance(self._clock, SteadyClock):
            self._clock.follow(offset)

    def bind(self, lease: Lease) -> None:
        """From now on an append raises LeaseLost if another process took this lease."""
        self._leases.append(lease)
        self._session.bind(self._leases)

    def unbind(self, lease: Lease) -> None:
        self._leases.remove(lease)
        self._session.bind(self._leases)

    def _add(
        self, stream: StreamHead, kind: int, when: When, event_id: bytes | None, uses: Shared, data: bytes, chain: bytes
    ) -> int:
        """Append one event inside a transaction; its position. `chain`: commitments of data, scope, body, in order."""
        moment, took, recorded_at, clock = when
        position = self._position = self._position + 1
        stream.version += 1
        self._dirty[stream.id] = stream
        scope, body = uses
        has = 1 | (0 if scope is None else 2) | (0 if body is None else 4)
        version = stream.version
        about = stream.subjects.get(kind) or stream.about(kind)
        digest = self._hash = chained(
            self._hash, position, version, moment, took, recorded_at, event_id, has, about, chain, clock
        )
        self._pending.append(
            (
                position, stream.id, version, kind, event_id, moment, took, recorded_at - moment, scope, body,
                data, digest if position % SEAL_EVERY == 0 else digest[:MARK_BYTES], clock,
            )
        )  # fmt: skip
        return position

    def append_many(
        self, batches: Sequence[Batch], *, durable: bool = False, unless: Unless | None = None
    ) -> tuple[int, ...]:
        """Append events to streams, all or none; their positions, in order. `durable` waits for the disk.

        VersionConflict if what `unless` names is there.

        An event whose id and bytes exist already is not appended again: its position stays. VersionConflict,
        IdConflict, RecordLocked, RecordNotWritable and RecordDamaged mean that nothing was appended.
        """
        now = self._time()
        ready = [[(CODES[type(event)], encode(event)) for event in batch.events] for batch in batches]
        return self._appended(partial(self._add_batches, batches, ready, now, unless), durable=durable)

    def append_output(
        self, stream: str, chunks: Sequence[tuple[Event, bytes]], dropped: Sequence[int] = ()
    ) -> tuple[int, ...]:
        """Append events that each have bytes beside the chain, and drop the bytes at some positions; the positions of
        the events. What a power cut loses is read again.
        """
        batch, now = Batch(stream, [event for event, _ in chunks]), self._time()
        ready = [[(CODES[type(event)], encode(event)) for event in batch.events]]

        def work() -> tuple[int, ...]:
            positions = self._add_batches([batch], ready, now, None)
            self._flush_rows()
            for position, (_, packed) in zip(positions, chunks, strict=True):
                self._session.run(KEEP, position, packed)
            for position in dropped:
                self._session.run(DROP, position)
            return positions

        return self._appended(work, durable=False)

    def _add_batches(
        self,
        batches: Sequence[Batch],
        ready: Sequence[Sequence[tuple[int, bytes]]],
        now: When,
        unless: Unless | None,
    ) -> tuple[int, ...]:
        if unless is not None:
            for other in self.read(after=unless.after, types=unless.types, limit=1):
                raise VersionConflict(
                    f"{other.type} is at position {other.position}, which this append does not know: read it and retry."
                )
        positions: list[int] = []
        for batch, facts in zip(batches, ready, strict=True):
            if not facts:
                continue
            stream = self._at_version(batch)
            if batch.ids is None:
                positions += self._add_all(stream, facts, now)
                continue
            for event_id, (kind, data) in zip(map(event_id_bytes, batch.ids), facts, strict=True):
                known = self._there(event_id)
                if known is None:
                    chain = self._commit.data(self._position + 1, data)
                    position = self._add(stream, kind, now, event_id, (None, None), data, chain)
                elif known[1:] == (stream.id, kind, data):
                    position = known[0]
                else:
                    raise IdConflict(
                        f"The event id is already used at position {known[0]} by another event: use a new id."
                    )
                positions.append(position)
        return tuple(positions)

    def _time(self, observed_at: int | None = None, took: int = 0) -> When:
        """The times of an event of this process that was observed at `observed_at` by our clock, by default now."""
        now = self._clock.now()
        at = now if observed_at is None else observed_at
        if not isinstance(self._clock, SteadyClock):
            return at, took, now, None
        stamp = self._clock.stamp(at)
        return stamp.wall, took, stamp.wall + now - at, stamp.packed()

    def _at_version(self, batch: Batch) -> StreamHead:
        """The stream of a batch, at its expected version; not checked if all events exist already."""
        stream = self._stream(batch.stream)
        if (
            batch.expected_version is not ANY
            and batch.expected_version != stream.version
            and (batch.ids is None or None in [self._there(event_id_bytes(event_id)) for event_id in batch.ids])
        ):
            raise VersionConflict(
                f"{batch.stream} is at version {stream.version}, not {batch.expected_version}: read it again and retry."
            )
        return stream

    def _add_all(self, stream: StreamHead, events: Sequence[tuple[int, bytes]], when: When) -> range:
        """As `_add` for many events without id or parts, in one loop: half of the cost of appending."""
        first, version, digest, subjects = self._position + 1, stream.version, self._hash, stream.subjects
        position, rows, stream_id, commit = self._position, self._pending, stream.id, self._commit.data
        now, _, _, clock = when
        for kind, data in events:
            position += 1
            version += 1
            about = subjects.get(kind) or stream.about(kind)
            digest = chained(digest, position, version, now, 0, now, None, 1, about, commit(position, data), clock)
            kept = digest if position % SEAL_EVERY == 0 else digest[:MARK_BYTES]
            rows.append((position, stream_id, version, kind, None, now, 0, 0, None, None, data, kept, clock))
        self._position, self._hash, stream.version = position, digest, version
        self._dirty[stream.id] = stream
        return range(first, position + 1)

    def _stream(self, name: str) -> StreamHead:
        """A stream by its name, made if new."""
        stream = self._streams.get(name)
        if stream is None:
            row = self._session.find_stream(name)
            if row is None:
                row = (self._session.add_stream(name), name, 0, None, None)
            if len(self._streams) > _STREAMS_KEPT and not self._dirty:
                self._streams.clear()
            stream = self._streams[name] = StreamHead(*row)
        return stream

    def _there(self, event_id: bytes | None) -> tuple[int, int, int, bytes] | None:
        """Position, stream, kind and data of the event of that id."""
        if event_id is None:
            return None
        self._flush_rows()
        position = self._rows.position_of(event_id)
        row = None if position is None else self._rows.raw(position)
        return None if row is None else (row[0], row[1], row[3], row[10])

    def _flush_rows(self) -> None:
        if self._pending:
            self._session.add_events(self._pending)
            self._pending = []


def event_id_bytes(given: str | None) -> bytes | None:
    """The bytes of an event id: a UUID, or 1 to 16 bytes as hex. Raises ValueError."""
    if given is None:
        return None
    raw = uuid.UUID(given).bytes if len(given) == 36 else bytes.fromhex(given)
    if not 1 <= len(raw) <= 16:
        raise ValueError("an event id has 1 to 16 bytes")
    return raw
