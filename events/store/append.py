"""The one way into a record: whole batches, in one transaction, in order, chained."""

import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from events.codec import encode
from events.errors import IdConflict, StenoError, VersionConflict
from events.kinds import CODES, type_of
from events.store.chain import MARK_BYTES, SEAL_EVERY, chained, committer, subject
from events.store.schema import driver
from events.types import Event

if TYPE_CHECKING:
    from events.store.store import Session

_INSERT: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADVANCE: Final = "UPDATE head SET position = ?, hash = ? WHERE id = 1"
_STREAM: Final = "UPDATE streams SET version = ?, item_id = ?, since = ? WHERE id = ?"
_STREAMS_KEPT: Final = 100_000


class AnyVersion(Enum):
    """No expectation of a stream's version."""

    ANY = "any"


ANY: Final = AnyVersion.ANY


class Batch(msgspec.Struct, frozen=True):
    """Events for one stream."""

    stream: str
    events: Sequence[Event]
    expected_version: int | AnyVersion = ANY
    """The version the stream must be at (0: it must be new)."""
    ids: Sequence[str | None] | None = None
    """For each event an identity (a UUID, or up to 16 bytes as hex): appending it again adds nothing."""


class StreamHead:
    """A stream as the writer knows it."""

    __slots__ = ("changed", "id", "item", "name", "since", "subjects", "version")

    def __init__(self, stream_id: int, name: str, version: int, item: int | None, since: int | None) -> None:
        self.id = stream_id
        self.name = name
        self.version = version
        self.item = item
        self.since = since
        self.changed = False
        self.subjects: dict[int, bytes] = {}
        """By kind, as far as `about` has been asked."""

    def about(self, kind: int) -> bytes:
        """What the headers of this stream's events of one kind share."""
        found = self.subjects[kind] = subject(self.name, *type_of(kind))
        return found


class Appender:
    """Appends to one record through one connection."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._connection = session.connection
        self.commit = committer(session.identity.key)
        self._position = -1
        self._hash = b""
        self._streams: dict[str, StreamHead] = {}
        self._dirty: list[StreamHead] = []
        self._rows: list[tuple[object, ...]] = []
        self.on_rollback: list[Callable[[], None]] = []

    @property
    def position(self) -> int:
        """The position of the newest event, inside a transaction."""
        return self._position

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[None]:
        """Everything appended inside is committed at the end, or nothing is.

        Raises:
            RecordLocked, RecordNotWritable, RecordDamaged: nothing was appended.
        """
        with self._session.guard():
            try:
                self._session.begin(durable=durable)
                position, digest = driver(self._connection).execute("SELECT position, hash FROM head").fetchone()
                if position != self._position or digest != self._hash:
                    self._position, self._hash = position, digest
                    self._forget_streams()
                yield
                self._flush()
                self._connection.commit()
            except BaseException:
                self._rolled_back()
                raise

    def add(
        self,
        stream: StreamHead,
        kind: int,
        moment: int,
        took: int,
        recorded_at: int,
        event_id: bytes | None,
        parts: tuple[int | None, int | None],
        data: bytes,
        commitments: bytes,
    ) -> int:
        """Append one event inside a transaction; its position. `commitments` are those of its parts, in order: data,
        scope, body.
        """
        position = self._position = self._position + 1
        stream.version += 1
        self._touch(stream)
        scope, body = parts
        has = 1 | (0 if scope is None else 2) | (0 if body is None else 4)
        version = stream.version
        about = stream.subjects.get(kind) or stream.about(kind)
        digest = self._hash = chained(
            self._hash, position, version, moment, took, recorded_at, event_id, has, about, commitments
        )
        self._rows.append(
            (
                position, stream.id, version, kind, event_id, moment, took, recorded_at - moment, scope, body,
                data, digest if position % SEAL_EVERY == 0 else digest[:MARK_BYTES],
            )
        )  # fmt: skip
        return position

    def append_many(self, batches: Sequence[Batch], now: int, *, durable: bool) -> tuple[int, ...]:
        """Append batches of events in order, all or none; the position of each event.

        Raises:
            VersionConflict, IdConflict: nothing was appended.
        """
        commit = self.commit
        ready = [
            [(CODES[type(event)], data, commit(data)) for event in batch.events for data in (encode(event),)]
            for batch in batches
        ]
        positions: list[int] = []
        with self.transaction(durable=durable):
            for batch, events in zip(batches, ready, strict=True):
                if not events:
                    continue
                stream = self.stream(batch.stream)
                ids = [event_id_bytes(one) for one in batch.ids] if batch.ids is not None else None
                known = self._known(ids) if ids is not None else {}
                self._expect(batch, stream, sum(one in known for one in ids or ()))
                if ids is None:
                    positions += self._add_all(stream, events, now)
                    continue
                for event_id, (kind, data, commitment) in zip(ids, events, strict=True):
                    if event_id is not None and event_id in known:
                        positions.append(self._same(known[event_id], stream, kind, data))
                        continue
                    position = self.add(stream, kind, now, 0, now, event_id, (None, None), data, commitment)
                    if event_id is not None:
                        known[event_id] = (position, stream.id, kind, data)
                    positions.append(position)
        return tuple(positions)

    def _add_all(self, stream: StreamHead, events: Sequence[tuple[int, bytes, bytes]], now: int) -> range:
        """As `add` for many events without identity or parts, in one loop: half of what appending takes is here."""
        first, version, digest, subjects = self._position + 1, stream.version, self._hash, stream.subjects
        position, rows, stream_id = self._position, self._rows, stream.id
        for kind, data, commitment in events:
            position += 1
            version += 1
            about = subjects.get(kind) or stream.about(kind)
            digest = chained(digest, position, version, now, 0, now, None, 1, about, commitment)
            kept = digest if position % SEAL_EVERY == 0 else digest[:MARK_BYTES]
            rows.append((position, stream_id, version, kind, None, now, 0, 0, None, None, data, kept))
        self._position, self._hash, stream.version = position, digest, version
        self._touch(stream)
        return range(first, position + 1)

    def _touch(self, stream: StreamHead) -> None:
        if not stream.changed:
            stream.changed = True
            self._dirty.append(stream)

    def stream(self, name: str) -> StreamHead:
        """A stream by its name, made if it is new."""
        stream = self._streams.get(name)
        if stream is None:
            execute = driver(self._connection).execute
            row = execute("SELECT id, name, version, item_id, since FROM streams WHERE name = ?", (name,)).fetchone()
            if row is None:
                made = execute("INSERT INTO streams (name, version) VALUES (?, 0) RETURNING id", (name,)).fetchall()
                stream = StreamHead(made[0][0], name, 0, None, None)
            else:
                stream = StreamHead(*row)
            if len(self._streams) > _STREAMS_KEPT and not self._dirty:
                self._streams.clear()
            self._streams[name] = stream
        return stream

    def has_id(self, event_id: bytes) -> bool:
        """Whether a committed event has this id."""
        found = driver(self._connection).execute("SELECT 1 FROM events WHERE event_id = ?", (event_id,)).fetchone()
        return found is not None

    def _known(self, ids: Collection[bytes | None]) -> dict[bytes, tuple[int, int, int, bytes]]:
        known: dict[bytes, tuple[int, int, int, bytes]] = {}
        self._flush_rows()
        for event_id in ids:
            if event_id is not None:
                row = (
                    driver(self._connection)
                    .execute("SELECT position, stream_id, kind, data FROM events WHERE event_id = ?", (event_id,))
                    .fetchone()
                )
                if row is not None:
                    known[event_id] = (row[0], row[1], row[2], row[3])
        return known

    def _expect(self, batch: Batch, stream: StreamHead, repeated: int) -> None:
        if batch.expected_version is ANY or (repeated and repeated == len(batch.events)):
            return
        if stream.version != batch.expected_version:
            raise VersionConflict(
                f"{batch.stream} is at version {stream.version}, not {batch.expected_version}: read it again and retry."
            )

    def _same(self, known: tuple[int, int, int, bytes], stream: StreamHead, kind: int, data: bytes) -> int:
        if known[1:] != (stream.id, kind, data):
            raise IdConflict(f"The event id is already used at position {known[0]} by another event: use a new id.")
        return known[0]

    def _flush_rows(self) -> None:
        if self._rows:
            driver(self._connection).executemany(_INSERT, self._rows)
            self._rows = []

    def _flush(self) -> None:
        self._flush_rows()
        if not self._dirty:
            return
        raw = driver(self._connection)
        raw.executemany(_STREAM, [(s.version, s.item, s.since, s.id) for s in self._dirty])
        for stream in self._dirty:
            stream.changed = False
        self._dirty = []
        raw.execute(_ADVANCE, (self._position, self._hash))

    def _forget_streams(self) -> None:
        self._streams.clear()
        self._dirty = []

    def _rolled_back(self) -> None:
        self._rows = []
        self._position, self._hash = -1, b""
        self._forget_streams()
        for forget in self.on_rollback:
            forget()
        try:
            self._connection.rollback()
        except (sqlite3.Error, StenoError):
            self._connection.invalidate()


def event_id_bytes(given: str | None) -> bytes | None:
    """The bytes of an event id: a UUID, or 1 to 16 bytes as hex.

    Raises:
        ValueError: it is neither.
    """
    if given is None:
        return None
    raw = uuid.UUID(given).bytes if len(given) == 36 else bytes.fromhex(given)
    if not 1 <= len(raw) <= 16:
        raise ValueError("an event id has 1 to 16 bytes")
    return raw
