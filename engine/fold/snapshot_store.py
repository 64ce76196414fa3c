"""The engine's own snapshot: the world it decides from, in a blob beside the record. The controller ends machines by
this world, so it needs proof: the blob is sealed with the vault's key and names the record, the position and the chain
hash it was folded to, and the code that folded it. Any other blob is ignored and the record is folded from its start.
The blob is disposable: deleting it costs only that time.
"""

import hashlib
import hmac
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import engine
from engine.fold.world_codec import WorldState, dump_lazy, load_lazy
from engine.rules.current import CURRENT
from events.errors import RecordNotWritable

if TYPE_CHECKING:
    from events.store.record import Record

EVERY: Final = 20_000  # events folded before the next snapshot: 0.1 s of folding
AT_START: Final = 1_000
"""The same for a process that has just caught up: folding fewer again costs less than writing the file."""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    record: str
    position: int
    chain: str  # the hash at `position`, as the record stores it
    code: str  # `code()` of the process that folded it


class _File(msgspec.Struct, frozen=True, kw_only=True):
    header: _Header
    world: memoryview  # read: a view of the file's bytes, which are not copied
    seal: str  # the vault's commitment to header and world


class SnapshotStore:
    """Loads and saves the snapshot of one record. Not thread-safe; processes may share the file."""

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._blob = record.store.blob("snapshot")
        self._saved = 0  # the position of the last snapshot known to be in the file

    def load(self) -> WorldState | None:
        """The newest snapshot proven to be of this record; None: there is none, fold from the start."""
        try:
            found = msgspec.msgpack.decode(self._blob.read() or b"", type=_File)
            seal = self._seal(found.header, found.world)
            if found.header != self._header(found.header.position) or not hmac.compare_digest(found.seal, seal):
                return None
            state = load_lazy(found.world)
        except (RecordNotWritable, ValueError):
            return None
        self._saved = state.position
        return state

    def save(self, state: WorldState, *, every: int = EVERY) -> bool:
        """Replace the file if `every` events were folded since the last; whether it was replaced. Only between two
        folds: a world that an exception left half-way must not be saved. If the folder is not writable, the next start
        folds more.
        """
        if state.position - self._saved < every:
            return False
        header = self._header(state.position)
        if header is None:
            return False
        world = dump_lazy(state)
        try:
            file = _File(header=header, world=memoryview(world), seal=self._seal(header, world))
            self._blob.replace(msgspec.msgpack.encode(file), durable=False)
        except RecordNotWritable:
            return False
        self._saved = state.position
        return True

    def _header(self, position: int) -> _Header | None:
        for stored in self._record.at([position]):
            return _Header(record=self._record.id, position=position, chain=stored.hash, code=code())
        return None

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
