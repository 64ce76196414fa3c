"""The engine's snapshot beside a record: a world sealed with the vault's key and bound to the record, its position and
chain hash, and to the code that folded it. What does not match in every part is not used.
"""

import hashlib
import hmac
from contextlib import suppress
from functools import cache
from itertools import count, filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steno import engine
from steno.engine.errors import SnapshotLost
from steno.engine.fold.snapshot import load_in_memory, retire, segments_of
from steno.engine.rules.sets import CURRENT
from steno.engine.state.segments import SIZE, Cold, Segment
from steno.engine.state.world import World
from steno.events.errors import RecordNotWritable

if TYPE_CHECKING:
    from steno.events.store.record import Record
    from steno.events.store.store import Blob

EVERY: Final = 20_000  # events folded before the next snapshot: seconds of folding
AT_START: Final = 1_000
"""The same for a process that has just caught up: folding fewer again costs less than writing the file."""
ABANDONED: Final = 2 * EVERY  # events without another snapshot, after which the process that wrote the last one is gone
SETTLED: Final = 10_000  # events since a run or machine was last seen, after which it may go into a segment


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    record: str
    position: int
    chain: str  # the hash at `position`, as the record stores it
    code: str  # `code()` of the process that folded it
    segments: dict[str, int] = {}  # digest → the slot that has it: `snapshot-<slot>`


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    header: _Header
    world: memoryview  # read: a view of the file's bytes, which are not copied
    seal: str  # the vault's commitment to header and world


class SnapshotStore:
    """Loads and saves the snapshot of one record. Not thread-safe. Processes may share the file: one writes it, another
    goes on if that one stays behind.
    """

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._blob = record.store.blob("snapshot")
        self._slots: dict[str, int] = {}  # as in the header that was loaded or written last
        self._known = 0  # the position of the snapshot that was loaded or written last
        self._tried = 0  # the position from which to count until the next is due
        self._lost: set[str] = set()  # digests of segments that could not be read
        self.stale = False  # one of them was needed: the world must be loaded again

    def load(self) -> World | None:
        """The newest snapshot proven to be of this record; None: there is none, fold from the start."""
        self.stale, self._known, self._tried = False, 0, 0
        try:
            file = self._believed(self._blob)
            if file is None:
                return None
            self._slots = file.header.segments
            state = load_in_memory(file.world, self._read)
            for cold in segments_of(state):
                for segment in cold.segments:
                    if segment.entries < SIZE:  # whoever writes next replaces it by a fuller one
                        cold.made[segment.digest] = self._read(segment)
        except (RecordNotWritable, SnapshotLost, ValueError):
            self.stale = False
            return None
        self._known = self._tried = state.position
        return state

    def is_due(self, position: int, every: int) -> bool:
        """True if so many events were folded since the last snapshot."""
        return position - self._tried >= every

    def retire(self, state: World) -> None:
        """Put into segments what is over and was not seen for long. Only between two folds."""
        retire(state, state.position - SETTLED, self._read)

    def write(self, position: int, world: bytes, colds: tuple[Cold[Any], ...], *, every: int) -> bool:
        """Replace the file, unless another process does that; whether it was replaced. If the folder is not writable,
        the next start folds more.

        Args:
            position: of the world, which was just retired.
            world: its `dump_held`.
            colds: its `segments_of`.
        """
        header = self._header(position)
        self._tried = position
        if header is None:
            return False
        try:
            with self._blob.try_locked() as blob:  # another process may stand still in the middle of it
                if blob is None:
                    return False
                there = self._believed(blob)
                other = there is not None and there.header.position != self._known
                if there is not None and other and there.header.position > position - ABANDONED:
                    self._tried = there.header.position + every
                    return False
                old = {} if there is None else there.header.segments
                header = msgspec.structs.replace(header, segments=self._put(colds, old))
                file = _File(header=header, world=memoryview(world), seal=self._seal(header, world))
                blob.replace(msgspec.msgpack.encode(file), durable=False)
                self._slots, self._known = header.segments, position
                for digest, slot in old.items():
                    if digest not in self._slots:
                        self._segment(slot).replace(b"", durable=False)
        except (RecordNotWritable, SnapshotLost):
            return False
        return True

    def _put(self, colds: tuple[Cold[Any], ...], old: dict[str, int]) -> dict[str, int]:
        """Write those segments that are not there yet, each into a slot that `old` does not use; the slot of each."""
        slots: dict[str, int] = {}
        free = filterfalse(set(old.values()).__contains__, count())
        for cold in colds:
            for segment in cold.segments:
                slot = old.get(segment.digest)
                if slot is None:
                    content, slot = cold.content(segment), next(free)
                    self._segment(slot).replace(content, durable=False)
                slots[segment.digest] = slot
        return slots

    def _read(self, segment: Segment) -> bytes:
        slot = self._slots.get(segment.digest)
        with suppress(RecordNotWritable):
            content = None if slot is None else self._segment(slot).read()
            if content is not None and hashlib.sha256(content).hexdigest() == segment.digest:
                return content
        self._lost.add(segment.digest)
        self.stale = True
        raise SnapshotLost

    def _segment(self, slot: int) -> "Blob":
        return self._record.store.blob(f"snapshot-{slot}")

    def _believed(self, blob: "Blob") -> _File | None:
        """The content of the file, if it is proven to be of this record and not known to be damaged."""
        try:
            file = msgspec.msgpack.decode(blob.read() or b"", type=_File)
        except ValueError:
            return None
        header = self._header(file.header.position)
        if not self._lost.isdisjoint(file.header.segments):
            return None
        if header is None or file.header != msgspec.structs.replace(header, segments=file.header.segments):
            return None
        return file if hmac.compare_digest(file.seal, self._seal(file.header, file.world)) else None

    def _header(self, position: int) -> _Header | None:
        stored = self._record.at(position)
        if stored is None:
            return None
        return _Header(record=self._record.id, position=position, chain=stored.hash, code=code())

    def _seal(self, header: _Header, world: bytes | memoryview) -> str:
        digest = hashlib.sha256(msgspec.msgpack.encode(header))
        digest.update(world)
        return self._record.vault.commitment(b"steno snapshot\0" + digest.digest())


@cache
def code() -> str:
    """A digest of the rules and the source code that fold: another rule set, or one changed line, makes another
    world.
    """
    root = Path(engine.__file__).parent
    digest = hashlib.sha256(CURRENT.name.encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
