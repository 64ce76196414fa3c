"""The engine's world, stored piece by piece, so that a resumed fold loads only what it needs."""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec.structs import fields

from engine.fold.change import Anomaly, Blind
from engine.fold.outbox import Outbox
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, dump, load
from projections.store.row_table import RowTable
from projections.store.store import ProjectionStore

if TYPE_CHECKING:
    from engine.live.live_world import LiveWorld


_WORLD: Final = "world"
_LASTING: Final = "lasting"
T = TypeVar("T")
encode: Final = msgspec.msgpack.Encoder().encode  # a run or a machine as the store keeps it
decode_run: Final = msgspec.msgpack.Decoder(Run).decode
decode_vm: Final = msgspec.msgpack.Decoder(Vm).decode


def form() -> str:
    """A hash, in eight digits, of the pieces' types: after a change they cannot be read."""
    described = [
        (kind.__name__, [(field.name, str(field.type)) for field in fields(kind)])
        if issubclass(kind, msgspec.Struct)
        else (kind.__name__, [member.value for member in kind])
        for kind in sorted(_parts(WorldState, set()), key=lambda kind: kind.__qualname__)
    ]
    return f"{crc32(repr(described).encode()):08x}"


def _parts(kind: Any, found: set[type[msgspec.Struct] | type[Enum]]) -> set[type[msgspec.Struct] | type[Enum]]:
    """Every struct and enum in values of a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct | Enum) and kind not in found:
        found.add(kind)
        for field in fields(kind) if issubclass(kind, msgspec.Struct) else ():
            _parts(field.type, found)
    for inner in get_args(kind):
        _parts(inner, found)
    return found


class _Lazy(dict[str, T]):
    """A dict that looks up missing values in a store."""

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None


class _Stored(_Lazy[T]):
    """Objects of a world, loaded on demand; the dict holds the loaded ones, `items()` gives all, by first sight."""

    def __init__(self, table: RowTable[Any], decode: Callable[[bytes], T]) -> None:
        super().__init__()
        self._table = table
        self._decode = decode
        self._all = False
        self.kept: dict[str, int] = {}  # id → the hash of what the store has of it
        self.gone: set[str] = set()  # what a fold took away and the store may still have

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.gone.add(key)

    def __missing__(self, key: str) -> T:
        row = None if self._all or key in self.gone else self._table.get(key)
        if row is None:
            raise KeyError(key)
        return self._meet(key, row.folded)

    def _meet(self, key: str, folded: bytes) -> T:
        found = self[key] = self._decode(folded)
        self.kept[key] = hash(folded)
        return found

    def load(self) -> None:
        if self._all:
            return
        met = dict(dict.items(self))
        self.clear()
        for row in self._table.all():
            key = getattr(row, self._table.key)
            if key in met:
                self[key] = met.pop(key)
            elif key not in self.gone:
                self._meet(key, row.folded)
        self.update(met)
        self._all = True

    def items(self) -> Any:
        self.load()
        return super().items()


class StoredRuns(_Stored[Run]):
    """Runs; `values()` gives the loaded ones only."""

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__(store.runs, decode_run)
        self.filled: dict[str, int | None] = {}  # run id → the poll its provider's cost was read from

    def _meet(self, key: str, folded: bytes) -> Run:
        run = super()._meet(key, folded)
        self.filled[key] = run.cost_at
        return run


class StoredVms(_Stored[Vm]):
    """Machines; `values()` gives all."""

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__(store.vms, decode_vm)

    def __iter__(self) -> Any:
        self.load()
        return super().__iter__()

    def values(self) -> Any:
        self.load()
        return super().values()


class StoredIds(_Lazy[str]):
    """`<provider>/<provider_id>` → run id."""

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__()
        self._runs = store.runs

    def __missing__(self, key: str) -> str:
        run_id = self._runs.of_provider(*key.split("/", 1))
        if run_id is None:
            raise KeyError(key)
        self[key] = run_id
        return run_id


def load_world(store: ProjectionStore) -> WorldState | None:
    """The stored world on top of its stored runs and machines; None if this version cannot read it. `anomalies` and
    `blind` start empty, to collect what a fold adds.
    """
    world, lasting = store.get(_WORLD), store.get(_LASTING)
    if world is None or lasting is None:
        return None
    try:
        state = joined(world, load(lasting))
    except ValueError:
        return None
    runs, vms = StoredRuns(store), StoredVms(store)
    state.runs, state.vms, state.by_provider = runs, vms, StoredIds(store)
    for run_id in state.unsettled:
        runs[run_id]  # met: a fold asks all open runs whether they are missing
    for vm_id in state.open_vms:
        vms[vm_id]
    return state


def load_whole_world(store: ProjectionStore) -> WorldState | None:
    """As `load_world`, with every run and machine loaded: needs no store any more."""
    state = load_world(store)
    if state is None:
        return None
    state.runs = {row.run_id: decode_run(row.folded) for row in store.runs.all()}
    state.vms = {row.vm_id: decode_vm(row.folded) for row in store.vms.all()}
    state.by_provider = {
        f"{run.provider}/{run.provider_id}": run.same_id[-1] if run.same_id else run.run_id
        for run in state.runs.values()
        if run.provider_id is not None
    }
    return state


_LONG: Final = ("arrays", "by_host", "former", "fleets", "policies", "noted", "crossed")
"""Fields that grow with the record and change seldom."""
APART: Final[dict[str, Any]] = {  # not in `pieces`: has its own table, or no reader (the outbox)
    "runs": {},
    "vms": {},
    "by_provider": {},
    "anomalies": [],
    "blind": [],
    "outbox": Outbox(),
}


def pieces(state: WorldState) -> tuple[bytes, bytes]:
    """A world without `APART`: (what changes with every poll, what seldom changes)."""
    world = dump(msgspec.structs.replace(state, **APART, **{name: {} for name in _LONG}))
    return world, dump(WorldState(rules=state.rules, **{name: getattr(state, name) for name in _LONG}))


def save_world(store: ProjectionStore, world: bytes, lasting: bytes, lasting_before: bytes | None = None) -> None:
    """Store the `pieces` of a world. `lasting_before`: the last stored second piece, if known, to skip an equal one."""
    store.put(_WORLD, world)
    if lasting != lasting_before:
        store.put(_LASTING, lasting)


def joined(world: bytes, lasting: WorldState) -> WorldState:
    """The world of `pieces`, the second already decoded."""
    state = load(world)
    for name in _LONG:
        setattr(state, name, getattr(lasting, name))
    return state


class LiveCut(msgspec.Struct, frozen=True, kw_only=True):
    """The world at `position`, as far as it differs from the position before."""

    position: int
    runs: dict[str, bytes]  # every run that may have changed; new ones in order of first sight
    gone: tuple[str, ...]  # runs that were taken into others
    vms: dict[str, bytes]
    world: bytes  # see `pieces`
    lasting: bytes
    notes: tuple[Anomaly | Blind, ...]  # new ones, in order


def cut_of(live: "LiveWorld", after: int) -> LiveCut | None:
    """The changes since `after`; None if the live world does not know them, so that the record must be folded."""
    with live.reading() as state:
        touched, position = live.touched, live.position
        if state is None or not touched.floor <= after <= position:
            return None
        ids = touched.since(after)
        vm_ids = {one for one in ids if one in state.vms}
        runs = ids - vm_ids
        gone = tuple(run_id for run_id in runs if run_id not in state.runs)
        there = _in_order(state.runs, {*state.unsettled, *runs}.difference(gone), after)
        vms = _in_order(state.vms, {*state.open_vms, *vm_ids}, after)
        world, lasting = pieces(state)
        return LiveCut(
            position=position,
            runs={run_id: encode(state.runs[run_id]) for run_id in there},
            gone=gone,
            vms={vm_id: encode(state.vms[vm_id]) for vm_id in vms},
            world=world,
            lasting=lasting,
            notes=tuple(touched.notes_since(after)),
        )


def _in_order(known: dict[str, Run] | dict[str, Vm], ids: set[str], after: int) -> list[str]:
    """These ids; those first seen after `after` last, in the world's order, which ends with the newest."""
    new = {one for one in ids if known[one].first_position > after}
    behind: list[str] = []
    for one in reversed(known):
        if len(behind) == len(new):
            break
        if one in new:
            behind.append(one)
    return [*(ids - new), *reversed(behind)]
