"""Copies a record into another store, and puts a copy in the place of a record that was lost or damaged.

A copy has the same rows under the same ids; the chain is checked on the way, so that head and bytes are equal. A copy
that was interrupted is the record up to a position, and continues from there.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final
from zlib import crc32

import msgspec
from sqlalchemy import bindparam, select

from steno.events.clock import Clock
from steno.events.codec import CODES
from steno.events.errors import IdConflict, RecordDamaged, RecordNotFound, StenoError
from steno.events.store.chain import Head, committer, followed, mark
from steno.events.store.output_rows import KEEP, ONE
from steno.events.store.record import Batch, Record
from steno.events.store.rows import HEAD, LAST, Rows
from steno.events.store.schema import parts, streams
from steno.events.store.store import Session, Store
from steno.events.types import OutputRecorded, RecordRestored, RunObserved, VmObserved

_CHUNK: Final = 2_000
_PARTS: Final = (
    select(parts).where(parts.c.id > bindparam("after"), parts.c.id <= bindparam("until")).order_by(parts.c.id)
)
_STREAMS: Final = (
    select(streams.c.id, streams.c.name)
    .where(streams.c.id > bindparam("after"), streams.c.id <= bindparam("until"))
    .order_by(streams.c.id)
)
_COMMITMENTS: Final = select(parts.c.id, parts.c.commitment)
_MOVED: Final = select(streams.c.id, streams.c.name, streams.c.version, streams.c.item_id, streams.c.since)
_COMPANY: Final = ("vault", "tokens")
_OUTPUT: Final = CODES[OutputRecorded]
_OBSERVATIONS: Final = (CODES[RunObserved], CODES[VmObserved])  # they say what a run or machine showed last


def copy(
    source: Store, target: Store, *, clock: Clock, progress: Callable[[int, int], None], private: bool = True
) -> Head:
    """Copy a record, with its vault and tokens if they are not left out (`private`) or there; the head of the copy.

    RecordNotFound: there is no source; IdConflict: the target is another record, or went on by itself; RecordDamaged:
    the source's chain is broken, and the target holds all before that.
    """
    with closing(source.open(write=False, create=False, check=True, clock=clock)) as origin:
        try:
            made = target.open(write=True, create=False, check=True, clock=clock)
        except RecordNotFound:
            target.create(origin.identity)
            made = target.open(write=True, create=False, check=True, clock=clock)
        with closing(made):
            ends = _Copier(origin, made, str(source), str(target)).run(progress)
    for name in _COMPANY if private else ():
        content = source.blob(name).read()
        if content is not None and target.blob(name).read() is None:
            target.blob(name).replace(content)
    return Head(position=ends[0], hash=ends[1].hex())


class _Copier:
    def __init__(self, source: Session, target: Session, source_name: str, target_name: str) -> None:
        self._source = source
        self._target = target
        self._source_name = source_name
        self._commit = committer(source.identity)
        if source.identity.genesis() != target.identity.genesis():
            raise IdConflict(f"{target_name} holds another record: copy to an empty place.")
        with target.guard(), target.snapshot():
            self._commitments: dict[int, bytes] = dict(target.stream(_COMMITMENTS))
            self._streams = {row[0]: list(row[1:]) for row in target.stream(_MOVED)}
            position, self._hash = target.run(HEAD).fetchone()
        self._position = int(position)
        self._rows = Rows(source)
        kept = self._rows.raw(self._position)
        if self._position and (kept is None or kept[11] != mark(self._position, self._hash)):
            raise IdConflict(f"{target_name} went on by itself since it was copied: copy to an empty place.")

    def run(self, progress: Callable[[int, int], None]) -> tuple[int, bytes]:
        with self._source.guard():
            total = int(self._source.run(HEAD).fetchone()[0])
        before = -1
        while before < self._position:
            before = self._position
            for rows in self._rows.behind(before, LAST, _CHUNK):
                try:
                    with self._target.guard():
                        self._append(rows)
                except BaseException:
                    self._target.rollback()
                    raise
                progress(self._position, max(total, self._position))
        return self._position, self._hash

    def _append(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append a chunk in one transaction, up to the first event that does not follow from the one before."""
        begun = self._target.begin(durable=True, locked=True)
        if begun != (self._position, self._hash):
            raise IdConflict(f"Somebody else appends to the copy of {self._source_name}: stop that first.")
        self._add_parts(max((part for row in rows for part in (row[8], row[9]) if part is not None), default=0))
        self._add_streams(max(row[1] for row in rows))
        moved: set[int] = set()
        good, broken = 0, None
        for good, row in enumerate(rows):  # noqa: B007 - how many were good
            try:
                digest = followed(self._hash, row, self._streams[row[1]][0], self._commit, self._commitments)
                if row[0] != self._position + 1 or mark(row[0], digest) != row[11]:
                    raise ValueError("the event or its hash was changed")
            except (LookupError, TypeError, ValueError) as error:
                broken = RecordDamaged(
                    f"The record {self._source_name} is damaged at position {self._position + 1} ({error}): all before "
                    "it was copied; run `steno verify`."
                )
                break
            self._position, self._hash = row[0], digest
            stream = self._streams[row[1]]
            stream[1] = row[2]
            if row[3] in _OBSERVATIONS and row[9] is not None:
                stream[2:4] = row[9], row[5] - row[6]
            moved.add(row[1])
        else:
            good += 1
        self._target.add_events([tuple(row) for row in rows[:good]])
        for row in rows[:good] if self._source.identity.keeps_output else ():
            if row[3] == _OUTPUT and (packed := self._source.run(ONE, row[0]).fetchone()) is not None:
                self._target.run(KEEP, row[0], packed[0])
        states = [(*self._streams[stream_id][1:4], stream_id) for stream_id in sorted(moved)]
        self._target.commit((self._position, self._hash), states)
        if broken is not None:
            raise broken

    def _add_parts(self, until: int) -> None:
        have = max(self._commitments, default=0)
        for row in self._source.run(_PARTS, have, until).fetchall():
            part_id, commitment, base, encoding, crc, data = row
            if crc32(data) != crc or self._target.add_part(commitment, base, encoding, crc, data) != (part_id, True):
                raise RecordDamaged(f"Part {part_id} of {self._source_name} was changed: run `steno verify`.")
            self._commitments[part_id] = commitment

    def _add_streams(self, until: int) -> None:
        for stream_id, name in self._source.run(_STREAMS, max(self._streams, default=0), until).fetchall():
            if self._target.add_stream(name) != stream_id:
                raise RecordDamaged(f"Stream {stream_id} of {self._source_name} was changed: run `steno verify`.")
            self._streams[stream_id] = [name, 0, None, None]


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    copy: Head
    lost: int | None  # where the record ended before; None: it could not be read, or there was none
    common: int  # the newest position that was the same in both
    kept: str | None  # where the record from before is now


def restore(backup: Store, target: Store, *, clock: Clock, progress: Callable[[int, int], None]) -> Restored:
    """Put a copy in the place of a record, with a `RecordRestored`; vault and tokens of the place stay. RecordDamaged:
    the copy is not whole; IdConflict: it is of another record; RecordLocked: a process has the record. Then nothing was
    changed.
    """
    with Record.open(backup, clock=clock) as origin:
        verdict, head = origin.verify(), origin.head()
        if not verdict.ok:
            raise RecordDamaged(f"The copy {backup} is damaged ({verdict.damage[0].detail}): nothing was changed.")
        lost, common, record_id = None, head.position, origin.id
        with suppress(StenoError, TypeError), Record.open(target, clock=clock, check=False) as there:
            lost, record_id = there.head().position, there.id
            both = range(1, min(head.position, lost) + 1)
            common = bisect_left(both, 1, key=lambda at: there.digest(at) != origin.digest(at))
        if record_id != origin.id:
            raise IdConflict(f"{backup} is a copy of another record than {target}: nothing was changed.")
    copied = partial(copy, backup, clock=clock, progress=progress)
    kept = target.replace(partial(copied, private=False))
    copied(target)  # what is private, where there is none
    target.blob("snapshot").replace(b"")
    with Record.open(target, clock=clock, write=True) as record:
        record.append_many([Batch("record", [RecordRestored(common=common, lost=lost)])], durable=True)
    return Restored(copy=head, lost=lost, common=common, kept=kept)
