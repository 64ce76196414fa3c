"""Says whether every byte of a record that carries data is as written, and which positions are not."""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, TypeVar, cast
from zlib import crc32

import msgspec
import zstandard
from sqlalchemy import bindparam, select

from steno.events.codec import CODES, decode
from steno.events.errors import RecordUnreachable, StenoError
from steno.events.store.chain import SEAL_EVERY, Head, canonical_part, committer, followed, mark
from steno.events.store.output_rows import ONE, POSITIONS, RECORDED, unpack
from steno.events.store.parts import COMPRESSED, WRITER_CACHE, Parts
from steno.events.store.rows import LAST, Lookup, Rows
from steno.events.store.schema import events, head, meta, parts, revision, streams
from steno.events.store.store import FORMAT, REVISIONS, Session
from steno.events.types import OutputRecorded

T = TypeVar("T")
_CHUNK: Final = 1000
_UNREADABLE: Final = (  # errors of reading damaged columns: any type may be in any column
    ArithmeticError, AttributeError, LookupError, MemoryError, StenoError, TypeError, ValueError, struct.error,
    zstandard.ZstdError,
)  # fmt: skip

_OUTPUT: Final = CODES[OutputRecorded]
_MOST: Final = 1000  # damages named one by one

_META: Final = select(meta.c.key)
_REVISION: Final = select(revision.c.version_num)
_HEADS: Final = select(head.c.id, head.c.position, head.c.hash)
_BEHIND: Final = select(events).where(events.c.position > bindparam("after")).order_by(events.c.position)
_PAGE: Final = _BEHIND.limit(bindparam("most"))
_PARTS: Final = select(parts).order_by(parts.c.id)
_PART: Final = select(parts).where(parts.c.id == bindparam("id"))
_STREAMS: Final = select(streams)
_STREAM: Final = select(streams).where(streams.c.id == bindparam("id"))


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A deviation from what was written."""

    position: int | None  # the first position it touches; None: the record as a whole
    kind: str  # `page`, `schema`, `trigger`, `meta`, `chain`, `missing`, `body`, `stream`, `head`, `output` or `expect`
    detail: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    events: int
    head: Head
    damage: tuple[Damage, ...]
    outputs: int = 0  # chunks of output that were looked at
    dropped: int = 0  # those whose bytes were dropped


class Verifier:
    """Checks pages, schema, triggers, chain, bodies, streams, head and output of a record; `run` once.

    `after`: a head saved earlier. Of the events up to it only its own hash is checked, of the parts and streams those
    that later events use, and of the pages those that are read for it; if the record does not have that head, all is
    checked.
    """

    def __init__(
        self,
        session: Session,
        expect: Head | None,
        progress: Callable[[int, int], None] | None,
        after: Head | None = None,
    ) -> None:
        self._session = session
        self._run = session.run
        self._commit = committer(session.identity)
        self._expect = expect
        self._after = after
        self._partly = after is not None  # some events are not seen, so that what they say of streams is unknown
        self._progress = progress
        self._damage: dict[tuple[int | None, str, str], Damage] = {}
        self._first_use: dict[int, int] = {}
        self._ids = array("q")  # of the parts that were read
        self._commitments, self._names = Lookup.commitments(session), Lookup.names(session)
        self._versions: dict[int, int] = {}
        self._firsts: dict[int, int] = {}  # the version of each stream's first event that was seen
        self._latest: dict[int, tuple[int, int]] = {}
        self._total = 0  # events, as the head says
        self._events = 0
        self._rows = Rows(session)
        self._last = (0, session.identity.genesis())
        self._looked = self._dropped = 0  # chunks of output

    def run(self) -> Verification:
        with self._session.snapshot():
            for step in (
                self._resume, self._database, self._meta, self._walk, self._parts, self._streams, self._head,
                self._outputs,
            ):  # fmt: skip
                self._take(step)
        return self._verdict()

    def _take(self, step: Callable[[], T]) -> T | None:
        """The result of a step; None, and a damage, where the record cannot be read."""
        try:
            with self._session.guard():
                return step()
        except RecordUnreachable:
            raise
        except (OverflowError, ValueError, TypeError, StenoError) as error:
            self._say(None, "page", f"reading stopped: {error.__cause__ or error}")
            return None

    def _verdict(self) -> Verification:
        damage = sorted(self._damage.values(), key=lambda each: (each.position is None, each.position or 0, each.kind))
        ends = Head(position=self._last[0], hash=self._last[1].hex())
        return Verification(
            ok=not damage, events=self._events, head=ends, damage=tuple(damage[:_MOST]), outputs=self._looked,
            dropped=self._dropped,
        )  # fmt: skip

    def _say(self, position: int | None, kind: str, detail: str) -> None:
        self._damage.setdefault(
            (position, kind, detail if position is None else ""), Damage(position=position, kind=kind, detail=detail)
        )

    def _resume(self) -> None:
        """Begin behind the saved head, if the record has it."""
        after, self._after, self._partly = self._after, None, False
        ends = self._run(_HEADS).fetchone()
        self._total = ends[1] if ends else 0
        if after is None:
            return
        self._events = self._total
        try:
            self._partly = self._is_there(after)
        finally:
            self._events = 0  # then all of it is looked at
        if self._partly:
            self._after, self._events, self._last = after, after.position, (after.position, bytes.fromhex(after.hash))

    def _database(self) -> None:
        """Damage that the database itself finds: schema, triggers, and all pages and indexes if all events are read."""
        for position, kind, detail in self._session.damage(pages=self._after is None):
            self._say(position, kind, detail)

    def _meta(self) -> None:
        """The record's description, which the first hash of the chain covers too."""
        keys = {key for (key,) in self._run(_META)}
        if keys != {"format", "record_id", "key", "created_at"} or not 1 <= self._session.identity.format <= FORMAT:
            self._say(None, "meta", "the record's description of itself was changed")
        revisions = self._run(_REVISION).fetchall()
        if len(revisions) != 1 or revisions[0][0] not in REVISIONS:
            self._say(None, "schema", f"the schema says it is {revisions}, not {REVISIONS[-1]}")

    def _walk(self, until: int = LAST) -> None:
        """Every event behind the last, up to `until`, follows from the one before; after a break the walk resumes
        at the next whole hash.
        """
        expected, total = self._last[0] + 1, self._total
        previous: bytes | None = self._last[1]
        rows = self._every(expected - 1, total)
        for row in rows if until == LAST else takewhile(lambda row: row[0] <= until, rows):
            position = row[0]
            if position != expected:
                self._say(expected, "missing", f"positions {expected} to {position - 1} are missing")
                previous = None
            expected = position + 1
            self._events += 1
            if self._progress is not None and self._events % _CHUNK == 0:
                self._progress(self._events, total)
            previous = self._link(row, previous)
            if previous is not None:
                self._last = (position, previous)

    def _link(self, row: tuple[Any, ...], previous: bytes | None) -> bytes | None:
        """The hash of an event, if its row keeps the same; else the row's, if that is whole."""
        position, stream_id, version, kind, _, moment, took, _, scope, body, _, kept, _ = row
        whole = kept if isinstance(kept, bytes) and len(kept) == 32 and position % SEAL_EVERY == 0 else None
        try:
            digest = self._digest(row, previous or b"")
        except _UNREADABLE as error:
            self._say(position, "chain", f"the event cannot be read ({type(error).__name__}: {error})")
            return whole
        for part in (scope, body):
            if part is not None:
                self._first_use.setdefault(part, position)
        expected = self._versions.get(stream_id, version - 1 if self._partly else 0) + 1
        if version != expected:
            self._say(position, "stream", f"version {version} of {self._names[stream_id]} follows {expected - 1}")
        self._firsts.setdefault(stream_id, version)
        self._versions[stream_id] = version
        if kind in (3, 4) and body is not None:
            self._latest[stream_id] = (body, moment - took)
        if previous is None:
            # The event before is broken: this one is unknown until the next whole hash.
            return whole
        if mark(position, digest) != kept:
            self._say(position, "chain", "the event or its hash was changed")
            return whole
        return digest

    def _digest(self, row: Sequence[Any], previous: bytes) -> bytes:
        return followed(previous, row, self._names[row[1]], self._commit, self._commitments)

    def _parts(self) -> None:
        """Every part is what was committed to; damage is named at the first position that uses it."""
        users: dict[int, list[int]] = {}
        bad = dict(self._bad_parts(users))
        uses = dict(self._first_use)
        # Parts only refer to older parts: going down, every user is known before what it uses.
        for part_id in sorted(uses.keys() | users.keys(), reverse=True):
            through = [uses[user] for user in (part_id, *users.get(part_id, ())) if user in uses]
            if through:
                uses[part_id] = min(through)
        there = set(self._ids)
        bad |= dict.fromkeys((self._first_use.keys() | users.keys()) - there, "it is missing")
        for part_id in () if self._partly else there - uses.keys():
            bad.setdefault(part_id, "no event uses it")
        for part_id, why in bad.items():
            self._say(uses.get(part_id), "body", f"part {part_id}: {why}")

    def _bad_parts(self, users: dict[int, list[int]]) -> Iterator[tuple[int, str]]:
        """Parts that changed, and why; fills `users` with which parts refer to which."""
        stored = Parts(self._session, self._commit.shared, cache=WRITER_CACHE)
        reached = list(self._first_use)
        for part_id, commitment, base_id, encoding, crc, data in self._reached(reached):
            self._ids.append(part_id)
            try:
                if crc32(data) != crc:
                    # Not every byte of a packed text changes the text: the sum is over the stored bytes.
                    raise ValueError("its stored bytes were changed")
                if base_id is not None and not encoding & COMPRESSED:
                    raise ValueError("a part that is not compressed has a base")
                with self._session.guard():
                    text, children = stored.unpack(encoding, data, base_id)
                for child in children:
                    users.setdefault(child, []).append(part_id)
                reached += children if base_id is None else (*children, base_id)
                known = tuple([self._commitments[child] for child in children])
                if self._commit.shared(canonical_part(text, known)) != commitment:
                    yield part_id, "its bytes were changed"
            except _UNREADABLE as error:
                yield part_id, f"it cannot be read ({type(error).__name__}: {error})"

    def _reached(self, from_: list[int]) -> Iterable[tuple[Any, ...]]:
        """The rows of all parts; after a saved head, of the parts in `from_`, to which the caller adds as it reads."""
        if self._after is None:
            return self._session.stream(_PARTS)
        return self._followed(from_)

    def _followed(self, from_: list[int]) -> Iterator[tuple[Any, ...]]:
        seen: set[int] = set()
        while from_:
            part_id = from_.pop()
            row = None if part_id in seen else self._run(_PART, part_id).fetchone()
            seen.add(part_id)
            if row is not None:
                yield row

    def _streams(self) -> None:
        """The rows that say where the next event goes."""
        for stream_id, name, version, item, since in self._streams_seen():
            if stream_id not in self._versions:
                self._say(None, "stream", f"no event is on {name}")
            elif version != self._versions[stream_id]:
                self._say(None, "stream", f"{name} says version {version}, its last event {self._versions[stream_id]}")
            known = self._latest.get(stream_id, (None, None))
            if (item, since) != known and not (self._partly and known == (None, None)):
                self._say(None, "stream", f"{name} does not say what it showed last")

    def _streams_seen(self) -> Iterable[tuple[Any, ...]]:
        """The rows of all streams; after a saved head, of those with later events."""
        if not self._partly:
            return self._session.stream(_STREAMS)
        rows = (self._run(_STREAM, stream_id).fetchone() for stream_id in sorted(self._versions))
        return (row for row in rows if row is not None)

    def _head(self) -> None:
        rows = self._run(_HEADS).fetchall()
        if len(rows) != 1 or rows[0][0] != 1:
            self._say(None, "head", "there is not one head")
        else:
            _, named, kept = rows[0]
            if named > self._events:
                self._say(self._events + 1, "missing", f"the head is at {named}, the last event at {self._events}")
            elif (named, kept) != self._last:
                # After a broken event the chain is unknown: the head must fit the last row.
                row = self._rows.raw(named) if named == self._events and self._last[0] < named else None
                if row is None or not isinstance(kept, bytes) or len(kept) != 32 or mark(named, kept) != row[11]:
                    self._say(self._events or None, "head", f"the head names {named}, the last event is {self._events}")
        if self._expect is not None:
            self._is_there(self._expect)

    def _outputs(self) -> None:
        """Output beside the chain is what the events behind the saved head say; a chunk that is missing was dropped."""
        if not self._session.identity.keeps_output:
            return
        there = {position for (position,) in self._session.stream(POSITIONS)}
        for position, data in self._session.stream(RECORDED):
            if position <= (0 if self._after is None else self._after.position):
                there.discard(position)
            elif position not in there:
                self._dropped += 1
            else:
                there.discard(position)
                self._looked += 1
                try:
                    unpack(self._run(ONE, position).fetchone()[0], cast(OutputRecorded, decode(_OUTPUT, data)))
                except (*_UNREADABLE, msgspec.MsgspecError) as error:
                    self._say(position, "output", f"{error}")
        for position in there:
            self._say(None, "output", f"output at position {position}, which no event names")

    def _is_there(self, saved: Head) -> bool:
        """True if the record has a head that was saved earlier."""
        position = saved.position
        digest = self.hash_at(position)
        if digest is None:
            why = f"position {position} is missing, or an event before it cannot be read"
            if position > self._events:
                why = f"the record ends at position {self._events}: what followed up to {position} is lost"
            self._say(position, "expect", why)
        elif digest.hex() != saved.hash.lower():
            why = "it was restored to an older state and continued, or it was rewritten"
            self._say(position, "expect", f"position {position} has another hash, {digest.hex()}: {why}")
        else:
            return True
        return False

    def hash_at(self, position: int) -> bytes | None:
        """The whole hash at a position, walked from the last whole one before it; None if an event on the way is not
        there or cannot be read.
        """
        start = max(position - 1, 0) // SEAL_EVERY * SEAL_EVERY
        digest = self._session.identity.genesis()
        for at in range(max(start, 1), position + 1):
            row = self._rows.raw(at)
            if row is None:
                return None
            try:
                digest = row[11] if at == start else self._digest(row, digest)
            except _UNREADABLE:
                return None
        return digest

    def _every(self, after: int, last: int) -> Iterator[tuple[Any, ...]]:
        """Every event after a position that can be read; skips others, so that the rest is checked."""
        alone = after
        while True:
            size = 1 if after < alone else _CHUNK
            try:
                with self._session.guard():
                    rows = self._run(_PAGE, after, size).fetchall()
            except StenoError:
                if after >= last:
                    return
                after, alone = (after + 1, alone) if size == 1 else (after, after + _CHUNK)
                continue
            yield from rows
            if not rows:
                return
            after = rows[-1][0]
