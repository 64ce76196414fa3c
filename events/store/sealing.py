"""Seals old events: writes ranges of them to files, reads each file back, follows the chain through it, and only then
lets their rows leave the database.

Whoever is killed at any point leaves the record whole: a file that no row of `sealed` names is written again, rows of a
range that is noted leave at the next call. Questions, answers and items (`parts`) stay: later events share them.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import func, select

from events.clock import Clock
from events.errors import RecordDamaged, RecordLocked, StenoError
from events.store.chain import MARK_BYTES, committer, followed, mark
from events.store.lookup import Lookup
from events.store.ranges import Indexes, SealedRange
from events.store.rows import Rows
from events.store.schema import events, head
from events.store.sealed.parquet import GROUP, ParquetRows, encoded
from events.store.sealed.place import UNREADABLE, SealedFolder
from events.store.store import Store

if TYPE_CHECKING:
    from events.store.store import Session

_LEASE: Final = "seal"

_HEAD: Final = select(head.c.position)
_FIRST: Final = select(func.min(events.c.position))
Progress = Callable[[int, int], None]


class SealedFile(msgspec.Struct, frozen=True):
    """One sealed range, as the manifest shows it."""

    first: int
    last: int
    file: str
    bytes: int
    sha256: str
    hash: str  # of the chain up to `last`


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed, or would be."""

    files: tuple[SealedFile, ...] = ()  # those of this call
    due: tuple[tuple[int, int], ...] = ()  # positions of files that were to be made
    sealed: int  # the last sealed position
    first: int  # the first position in the database: rows of sealed ranges may be in it for a while
    old: int  # the last position that is old enough
    head: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    record_id: str
    format: int
    ranges: tuple[SealedFile, ...]


def due(store: Store, *, before: int, size: int, clock: Clock) -> Sealing:
    """What is not sealed, of ranges of `size` events that were all recorded before `before` (microseconds UTC)."""
    with closing(store.open(write=False, create=False, check=True, clock=clock)) as session:
        return _due(session, before, size)


def _due(session: "Session", before: int, size: int) -> Sealing:
    rows = Rows(session)
    with session.guard():
        (end,) = session.run(_HEAD).fetchone()
    sealed, old = rows.sealed.end, _old(rows, before, end)
    found = tuple([(first, first + size - 1) for first in range(sealed + 1, old - size + 2, size)])
    return Sealing(due=found, sealed=sealed, first=_first(session), old=old, head=end)


def seal(store: Store, *, before: int, size: int, place: str | None, clock: Clock, progress: Progress) -> Sealing:
    """Seal what is due into files in the folder or bucket `place` (None: a folder beside the record's file), and let
    the rows of all sealed ranges leave the database.

    StenoError: there is no place; RecordDamaged: the chain is broken there, nothing of that range was sealed;
    RecordLocked: another process seals; RecordNotWritable: database or folder cannot be written.
    """
    with _alone(store), closing(store.open(write=True, create=False, check=True, clock=clock)) as session:
        state = _due(session, before, size)
        if state.due and place is None and session.home is None:
            raise StenoError("Say where the sealed files go: --to FOLDER or the setting seal.folder.")
        to = store.folder("sealed").name if place is None else place
        sealer = _Sealer(session, str(store), to, lambda at: progress(at, state.due[-1][1]))
        with session.guard():
            made = tuple([_shown(sealer.seal(first, last)) for first, last in state.due])
            session.release()
            sealed = state.due[-1][1] if state.due else state.sealed
            return msgspec.structs.replace(state, files=made, sealed=sealed, first=_first(session))


def move(store: Store, place: str, *, clock: Clock, progress: Progress) -> int:
    """Note that all sealed files are in another folder or bucket now, after each was read there; how many.

    RecordDamaged: one is missing or changed, and nothing was noted.
    """
    with _alone(store), closing(store.open(write=True, create=False, check=True, clock=clock)) as session:
        target, ranges = SealedFolder(place, session.home), Rows(session).sealed.ranges
        for number, of in enumerate(ranges, 1):
            try:
                if sha256(target.read(of.file)).digest() != of.digest:
                    raise ValueError("its bytes were changed")
            except UNREADABLE as error:
                raise target.failed(of.file, str(of), error) from error
            progress(number, len(ranges))
        with session.guard():
            session.move_sealed(place)
        return len(ranges)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    lease = store.lease(_LEASE)
    if lease is None:
        raise RecordLocked(f"Another process seals the record {store}: try again when it is done.")
    with lease:
        yield


class _Sealer:
    def __init__(self, session: "Session", record: str, place: str, progress: Callable[[int], None]) -> None:
        self._session = session
        self._record = record
        self._place = SealedFolder(place, session.home)
        self._progress = progress
        self._rows = Rows(session)
        self._commit = committer(session.identity)
        self._commitments = Lookup.commitments(session)
        self._names = Lookup.names(session)

    def seal(self, first: int, last: int) -> SealedRange:
        """Seal one range: from here on its rows are read from the file."""
        identity = self._session.identity
        row = self._rows.raw(last)
        if row is None:
            raise RecordDamaged(f"The record {self._record} has no position {last}: run `steno verify`.")
        # The hash in the name: another copy of the record, which went on otherwise, does not have this name.
        file = f"{identity.record_id}/{first:012}-{last:012}-{bytes(row[-1])[:MARK_BYTES].hex()}.parquet"
        found = self._found(file, first, last)
        if found is None:
            pages = self._rows.behind(first - 1, last, GROUP)
            about = {"record": identity.record_id, "format": str(identity.format)}
            try:
                content = encoded(pages, about)
            except (*UNREADABLE, AttributeError, struct.error) as error:
                raise self._damaged(first, error) from error
            self._place.write(file, content)
            del content
            found = self._verified(file, first, last)
        of, index = found
        self._session.add_sealed(of, index)
        self._rows.sealed.refresh()
        ranges = [_shown(one) for one in self._rows.sealed.ranges if one.place == of.place]
        manifest = _Manifest(record_id=identity.record_id, format=identity.format, ranges=tuple(ranges))
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
        self._place.write(f"{identity.record_id}/manifest.json", content)
        return of

    def _found(self, file: str, first: int, last: int) -> tuple[SealedRange, Indexes] | None:
        """The range in a file that is there already and is whole: a seal was interrupted, or a copy was sealed."""
        try:
            return self._verified(file, first, last) if self._place.size(file) is not None else None
        except RecordDamaged:
            return None
        except OSError as error:
            raise self._place.failed(file, f"positions {first} to {last}", error) from error

    def _verified(self, file: str, first: int, last: int) -> tuple[SealedRange, Indexes]:
        """The range in a file, after its events were read back and followed along the chain. Raises RecordDamaged."""
        try:
            content = self._place.read(file)
            pages = ParquetRows(content).pages()
        except UNREADABLE as error:
            raise self._place.failed(file, f"positions {first} to {last}", error) from error
        ranges = self._rows.sealed.ranges
        digest = ranges[-1].hash if ranges else self._session.identity.genesis()
        index, expected = Indexes(), first
        try:
            for rows in pages:
                for row in rows:
                    digest = followed(digest, row, self._names[row[1]], self._commit, self._commitments)
                    if row[0] != expected or mark(expected, digest) != row[-1]:
                        raise ValueError("the event or its hash was changed")
                    expected += 1
                index.note(rows)
                self._progress(expected - 1)
            if expected != last + 1:
                raise ValueError("events are missing")
        except (*UNREADABLE, AttributeError, struct.error) as error:
            raise self._damaged(expected, error) from error
        of = SealedRange(last, first, digest, self._place.url, file, len(content), sha256(content).digest())
        return of, index

    def _damaged(self, position: int, error: BaseException) -> RecordDamaged:
        return RecordDamaged(
            f"The record {self._record} is damaged at position {position} ({error}): that range was not sealed; run "
            "`steno verify`."
        )


def _shown(of: SealedRange) -> SealedFile:
    return SealedFile(of.first, of.last, of.file, of.size, of.digest.hex(), of.hash.hex())


def _first(session: "Session") -> int:
    with session.guard():
        return int(session.run(_FIRST).fetchone()[0] or 1)


def _old(rows: Rows, before: int, end: int) -> int:
    """The last position recorded before a moment, the newest event aside: where the record goes on stays."""
    low, high = rows.sealed.end, max(end - 1, rows.sealed.end)
    while low < high:
        middle = (low + high + 1) // 2
        row = rows.raw(middle)
        if row is None:
            raise RecordDamaged(f"The record has no position {middle}: run `steno verify`.")
        low, high = (middle, high) if row[5] + row[7] < before else (low, middle - 1)
    return low
