"""Says whether every byte of a record that carries data is as it was written, and which positions are not."""

import sqlite3
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zlib import crc32

import msgspec
import zstandard

from events.errors import StenoError
from events.kinds import type_of
from events.store.chain import SEAL_EVERY, Head, canonical_part, committer, header, link, mark, subject
from events.store.parts import Base, Packer
from events.store.schema import FORMAT, REVISIONS, driver

if TYPE_CHECKING:
    from events.store.store import Session

Columns: TypeAlias = tuple[Any, ...]
"""A row as the database gives it; a hand may have put any type into any column."""

_CHUNK: Final = 1000
_UNREADABLE: Final = (
    ArithmeticError, AttributeError, LookupError, MemoryError, StenoError, TypeError, ValueError, sqlite3.Error,
    struct.error, zstandard.ZstdError,
)  # fmt: skip
"""What damaged columns make of the functions that read them; a hand can put any type into any column."""

_TEXTS_KEPT: Final = 2000
_MOST: Final = 1000
"""Damages named one by one; a record with more is beyond naming."""


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written."""

    position: int | None
    """The first position it touches; None if it touches the record as a whole."""
    kind: str
    """`page`, `schema`, `trigger`, `meta`, `chain`, `missing`, `body`, `stream`, `head` or `expect`."""
    detail: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What verify found."""

    ok: bool
    events: int
    head: Head
    damage: tuple[Damage, ...]


def verify(
    session: "Session", *, expect: Head | None = None, progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Check pages, schema, triggers, chain, bodies, streams and head."""
    return _Check(session, expect, progress).run()


class _Check:
    def __init__(self, session: "Session", expect: Head | None, progress: Callable[[int, int], None] | None) -> None:
        self._session = session
        # The driver's rows: a hand may have put any type into any column, which SQLAlchemy's types refuse.
        self._raw = driver(session.connection)
        self._packer = Packer()
        self._identity = identity = session.identity
        self._expect = expect
        self._progress = progress
        self._damage: dict[tuple[int | None, str, str], Damage] = {}
        self._first_use: dict[int, int] = {}
        self._commitments: dict[int, bytes] = {}
        self._names: dict[int, str] = {}
        self._versions: dict[int, int] = {}
        self._latest: dict[int, tuple[int, int]] = {}
        self._events = 0
        self._last = (0, identity.genesis())

    def run(self) -> Verification:
        # One read transaction: what others append meanwhile is not looked at.
        self._raw.execute("BEGIN")
        try:
            for step in (
                self._database,
                self._meta,
                self._load,
                self._chain,
                self._parts,
                self._streams,
                self._head,
            ):
                try:
                    step()
                except (sqlite3.Error, OverflowError, ValueError, TypeError, StenoError) as error:
                    self._say(None, "page", f"reading stopped: {error}")
        finally:
            self._raw.rollback()
        found = sorted(self._damage.values(), key=lambda one: (one.position is None, one.position or 0, one.kind))
        position, digest = self._last
        return Verification(
            ok=not found,
            events=self._events,
            head=Head(position=position, hash=digest.hex()),
            damage=tuple(found[:_MOST]),
        )

    def _say(self, position: int | None, kind: str, detail: str) -> None:
        self._damage.setdefault(
            (position, kind, detail if position is None else ""), Damage(position=position, kind=kind, detail=detail)
        )

    def _database(self) -> None:
        """What the database itself finds: pages, indexes, triggers, schema."""
        for position, kind, detail in self._session.damage():
            self._say(position, kind, detail)

    def _meta(self) -> None:
        """The record's description; the first hash of the chain holds it too."""
        rows = dict(self._raw.execute("SELECT key, value FROM meta").fetchall())
        if set(rows) != {"format", "record_id", "key", "created_at"} or self._identity.format != FORMAT:
            self._say(None, "meta", "the record's description of itself was changed")
        found = self._raw.execute("SELECT version_num FROM alembic_version").fetchall()
        if len(found) != 1 or found[0][0] not in REVISIONS:
            self._say(None, "schema", f"the schema says it is {found}, not {REVISIONS[-1]}")

    def _load(self) -> None:
        for stream_id, name in self._raw.execute("SELECT id, name FROM streams"):
            self._names[stream_id] = name
        for part_id, commitment in self._raw.execute("SELECT id, commitment FROM parts"):
            self._commitments[part_id] = commitment

    def _chain(self) -> None:
        """Every event follows from the one before; after a break the walk goes on from the next whole hash."""
        commit = committer(self._identity.key)
        previous: bytes | None = self._identity.genesis()
        expected = 1
        total = self._total()
        for row in self._rows():
            position = row[0]
            if position != expected:
                self._say(expected, "missing", f"positions {expected} to {position - 1} are missing")
                previous = None
            expected = position + 1
            self._events += 1
            if self._progress is not None and self._events % _CHUNK == 0:
                self._progress(self._events, total)
            previous = self._link(row, previous, commit)
            if previous is not None:
                self._last = (position, previous)

    def _link(self, row: Columns, previous: bytes | None, commit: Callable[[bytes], bytes]) -> bytes | None:
        position, stream_id, version, kind, event_id, moment, took, after, scope, body, data, kept = row
        whole = isinstance(kept, bytes) and len(kept) == 32 and position % SEAL_EVERY == 0
        try:
            name = self._names[stream_id]
            about = subject(name, *type_of(kind))
            has = 1 | (0 if scope is None else 2) | (0 if body is None else 4)
            own = header(position, version, moment, took, moment + after, event_id, has, about)
            commitments = commit(data) + b"".join(
                [self._commitments[part] for part in (scope, body) if part is not None]
            )
        except _UNREADABLE as error:
            self._say(position, "chain", f"the event cannot be read ({type(error).__name__}: {error})")
            return kept if whole else None
        for part in (scope, body):
            if part is not None:
                self._first_use.setdefault(part, position)
        self._count(stream_id, version, kind, moment - took, body, position)
        if previous is None:
            # The event before is broken: nothing can be said of this one until the next whole hash.
            return kept if whole else None
        digest = link(previous, own, commitments)
        if mark(position, digest) != kept:
            self._say(position, "chain", "the event or its hash was changed")
            return kept if whole else None
        return digest

    def _count(self, stream_id: int, version: int, kind: int, since: int, body: int | None, position: int) -> None:
        expected = self._versions.get(stream_id, 0) + 1
        if version != expected:
            self._say(position, "stream", f"version {version} of {self._names[stream_id]} follows {expected - 1}")
        self._versions[stream_id] = version
        if kind in (3, 4) and body is not None:
            self._latest[stream_id] = (body, since)

    def _parts(self) -> None:
        """Every part is what was committed to; damage is named at the first position that uses it."""
        users: dict[int, list[int]] = {}
        bad = dict(self._bad_parts(users))
        uses = self._first_uses(users)
        for part_id in self._first_use.keys() | users.keys():
            if part_id not in self._commitments:
                bad[part_id] = "it is missing"
        for part_id in self._commitments.keys() - uses.keys():
            bad.setdefault(part_id, "no event uses it")
        for part_id, why in bad.items():
            self._say(uses.get(part_id), "body", f"part {part_id}: {why}")

    def _bad_parts(self, users: dict[int, list[int]]) -> Iterator[tuple[int, str]]:
        """Parts that are not what they were, and why; `users` is filled with which parts refer to which."""
        commit = committer(self._identity.key)
        texts: dict[int, bytes] = {}
        for part_id, commitment, base_id, encoding, crc, data in self._raw.execute(
            "SELECT id, commitment, base_id, encoding, crc, data FROM parts ORDER BY id"
        ):
            try:
                if crc32(data) != crc:
                    # Not every byte of a packed text changes the text: the sum is over the bytes as they lie.
                    raise ValueError("its stored bytes were changed")
                base = None if base_id is None else Base(base_id, self._text(base_id, texts, 0))
                if base is not None and not encoding & 1:
                    raise ValueError("a part that is not compressed has a base")
                text, children = self._packer.unpack(encoding, data, base)
                for child in children:
                    users.setdefault(child, []).append(part_id)
                known = tuple([self._commitments[child] for child in children])
                if commit(canonical_part(text, known)) != commitment:
                    yield part_id, "its bytes were changed"
            except _UNREADABLE as error:
                yield part_id, f"it cannot be read ({type(error).__name__}: {error})"
            if len(texts) > _TEXTS_KEPT:
                texts.clear()

    def _first_uses(self, users: dict[int, list[int]]) -> dict[int, int]:
        """The first position that uses each part, itself or through the parts that refer to it."""
        uses = dict(self._first_use)
        # A part only refers to older ones, so going down every user is known before what it uses.
        for part_id in sorted(self._commitments.keys() | users.keys(), reverse=True):
            through = [uses[user] for user in users.get(part_id, ()) if user in uses]
            if through:
                uses[part_id] = min([*through, uses.get(part_id, through[0])])
        return uses

    def _text(self, part_id: int, texts: dict[int, bytes], depth: int) -> bytes:
        text = texts.get(part_id)
        if text is None:
            if depth > 32:
                raise ValueError("parts refer to each other in a circle")
            row = self._raw.execute("SELECT base_id, encoding, data FROM parts WHERE id = ?", (part_id,)).fetchone()
            if row is None:
                raise ValueError(f"its base {part_id} is missing")
            base = None if row[0] is None else Base(row[0], self._text(row[0], texts, depth + 1))
            text = texts[part_id] = self._packer.unpack(row[1], row[2], base)[0]
        return text

    def _streams(self) -> None:
        """The rows that say where the next event goes."""
        for stream_id, name, version, item, since in self._raw.execute(
            "SELECT id, name, version, item_id, since FROM streams"
        ):
            if stream_id not in self._versions:
                self._say(None, "stream", f"no event is on {name}")
            elif version != self._versions[stream_id]:
                self._say(None, "stream", f"{name} says version {version}, its last event {self._versions[stream_id]}")
            if (item, since) != self._latest.get(stream_id, (None, None)):
                self._say(None, "stream", f"{name} does not say what it showed last")

    def _head(self) -> None:
        rows = self._raw.execute("SELECT id, position, hash FROM head").fetchall()
        position, digest = self._last
        if len(rows) != 1 or rows[0][0] != 1:
            self._say(None, "head", "there is not one head")
        else:
            _, named, kept = rows[0]
            if named > self._events:
                self._say(self._events + 1, "missing", f"the head is at {named}, the last event at {self._events}")
            elif (named, kept) != (position, digest):
                broken = named == self._events and position < named
                if not broken or not isinstance(kept, bytes) or not self._fits(named, kept):
                    self._say(self._events or None, "head", f"the head names {named}, the last event is {self._events}")
        if self._expect is not None:
            self._expected(self._expect.position, self._expect.hash)

    def _fits(self, position: int, kept: bytes) -> bool:
        row = self._raw.execute("SELECT hash FROM events WHERE position = ?", (position,)).fetchone()
        return row is not None and len(kept) == 32 and mark(position, kept) == row[0]

    def _expected(self, position: int, digest: str) -> None:
        found = self._hash_at(position)
        if found is None:
            self._say(position, "expect", f"position {position} is not there")
        elif found.hex() != digest.lower():
            self._say(position, "expect", f"position {position} has the hash {found.hex()}")

    def _hash_at(self, position: int) -> bytes | None:
        """The whole hash at a position, walked from the last whole one before it."""
        if position == 0:
            return self._identity.genesis()
        start = (position - 1) // SEAL_EVERY * SEAL_EVERY
        previous = self._identity.genesis()
        if start:
            row = self._raw.execute("SELECT hash FROM events WHERE position = ?", (start,)).fetchone()
            if row is None:
                return None
            previous = row[0]
        commit = committer(self._identity.key)
        last = start
        for row in self._raw.execute(
            "SELECT * FROM events WHERE position > ? AND position <= ? ORDER BY position", (start, position)
        ):
            last, stream_id, version, kind, event_id, moment, took, after, scope, body, data, _ = row
            has = 1 | (0 if scope is None else 2) | (0 if body is None else 4)
            about = subject(self._names[stream_id], *type_of(kind))
            own = header(last, version, moment, took, moment + after, event_id, has, about)
            commitments = commit(data) + b"".join(
                [self._commitments[part] for part in (scope, body) if part is not None]
            )
            previous = link(previous, own, commitments)
        return previous if last == position else None

    def _total(self) -> int:
        row = self._raw.execute("SELECT position FROM head").fetchone()
        return row[0] if row else 0

    def _rows(self) -> Iterator[Columns]:
        """Every event that can be read; what cannot is stepped over, so that the rest is still looked at."""
        after = 0
        while True:
            try:
                rows = self._raw.execute(
                    "SELECT * FROM events WHERE position > ? ORDER BY position LIMIT ?", (after, _CHUNK)
                ).fetchall()
            except sqlite3.Error:
                rows = self._one_by_one(after)
            yield from rows
            if not rows:
                return
            after = rows[-1][0]

    def _one_by_one(self, after: int) -> list[Columns]:
        last = self._total()
        found = []
        for position in range(after + 1, last + 1):
            try:
                row = self._raw.execute("SELECT * FROM events WHERE position = ?", (position,)).fetchone()
            except sqlite3.Error:
                continue
            if row is not None:
                found.append(row)
                if len(found) == _CHUNK:
                    break
        return found
