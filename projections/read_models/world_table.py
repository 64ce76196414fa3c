"""The engine's world, stored piece by piece, so that a resumed fold loads only what it needs."""

from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from zlib import crc32

import msgspec
from msgspec.structs import fields

from steno.engine.rules.cases import RunCase
from steno.engine.state.changes import Anomaly, Blind
from steno.engine.state.inventory import Index, Inventory
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, dump, load
from steno.projections.read_models.row_table import RowTable
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.tables import RunTable

if TYPE_CHECKING:
    from steno.engine.live.live_world import LiveWorld


_WORLD: Final = "world"
_LASTING: Final = "lasting"
T = TypeVar("T", bound=Run | Vm)
encode: Final = msgspec.msgpack.Encoder().encode  # a run or a machine as the store keeps it


def form() -> str:
    """A hash, in eight digits, of the pieces' types, and of cases: after a change they cannot be read."""
    described = [
        (kind.__name__, [(field.name, str(field.type)) for field in fields(kind)])
        if issubclass(kind, msgspec.Struct)
        else (kind.__name__, [member.value for member in kind])
        for kind in sorted(_parts(RunCase, _parts(World, set())), key=lambda kind: kind.__qualname__)
    ]
    return f"{crc32(repr(described).encode()):08x}"


def _parts(kind: Any, kinds: set[type[msgspec.Struct] | type[Enum]]) -> set[type[msgspec.Struct] | type[Enum]]:
    """Every struct and enum in values of a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct | Enum) and kind not in kinds:
        kinds.add(kind)
        for field in fields(kind) if issubclass(kind, msgspec.Struct) else ():
            _parts(field.type, kinds)
    for inner in get_args(kind):
        _parts(inner, kinds)
    return kinds


class StoredInventory(Inventory[T]):
    """Runs or machines of a store, decoded when they are needed; what goes on is in memory from the start."""

    def __init__(self, table: RowTable[Any], open_ids: Iterable[str]) -> None:
        super().__init__(open_ids=open_ids)
        self._table = table
        self._is_whole = False
        self.stored: dict[str, int] = {}  # id → the hash of the bytes in the store
        self.gone: set[str] = set()  # what a fold took away and the store may still have
        for key in self.open_ids:
            self._fetch(key)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.gone.add(key)

    def _fetch(self, key: str) -> T | None:
        row = None if self._is_whole or key in self.gone else self._table.get(key)
        return None if row is None else self._load(key, row)

    def _whole(self) -> dict[str, T]:
        if not self._is_whole:
            before, self.memory = self.memory, {}
            for row in self._table.all():
                key = getattr(row, self._table.key)
                if key in before:
                    self.memory[key] = before.pop(key)
                elif key not in self.gone:
                    self._load(key, row)
            self.memory |= before
            self._is_whole = True
        return self.memory

    def _load(self, key: str, row: Any) -> T:
        thing: T = row.decoded
        self.memory[key], self.stored[key] = thing, hash(row.folded)
        return thing


class StoredRuns(StoredInventory[Run]):
    def __init__(self, table: RunTable, open_ids: Iterable[str]) -> None:
        self.filled: dict[str, int | None] = {}  # run id → the poll its provider's cost was read from
        super().__init__(table, open_ids)

    def _load(self, key: str, row: Any) -> Run:
        run = super()._load(key, row)
        self.filled[key] = run.cost_at
        return run


def stored_ids(store: ProjectionStore) -> Index[str]:
    """`<provider>/<provider_id>` → run id."""

    def fetch(key: str) -> str | None:
        run_id = store.runs.of_provider(*key.split("/", 1))
        if run_id is not None:
            index[key] = run_id
        return run_id

    index = Index[str](fetch=fetch)
    return index


def load_bare_world(store: ProjectionStore) -> World | None:
    """The stored world without runs and machines; None if this version cannot read it. `anomalies` and `blind` start
    empty, to collect what a fold adds.
    """
    world, lasting = store.get(_WORLD), store.get(_LASTING)
    with suppress(ValueError):
        return None if world is None or lasting is None else joined(world, load(lasting))
    return None


def stand_on(store: ProjectionStore, state: World) -> tuple[StoredRuns, StoredInventory[Vm]]:
    """Put a bare world on top of its stored runs and machines, and return these."""
    runs = StoredRuns(store.runs, state.runs.open_ids)
    vms = StoredInventory[Vm](store.vms, state.vms.open_ids)
    state.runs, state.vms, state.by_provider = runs, vms, stored_ids(store)
    return runs, vms


def load_world(store: ProjectionStore) -> World | None:
    """`load_bare_world` on top of its stored runs and machines."""
    state = load_bare_world(store)
    if state is not None:
        stand_on(store, state)
    return state


def load_whole_world(store: ProjectionStore) -> World | None:
    """As `load_world`, with every run and machine loaded: needs no store any more."""
    state = load_world(store)
    if state is None:
        return None
    state.runs, state.vms = state.runs.part(lambda _: True), state.vms.part(lambda _: True)
    state.by_provider = Index(
        {
            f"{run.provider}/{run.provider_id}": run.same_id[-1] if run.same_id else run.run_id
            for run in state.runs.all()
            if run.provider_id is not None
        }
    )
    return state


_LONG: Final = ("rule_texts", "arrays", "by_host", "former", "fleets", "policies", "noted", "crossed", "cases")
"""Fields that grow with the record and change seldom."""
APART: Final = frozenset({"runs", "vms", "by_provider", "anomalies", "blind", "outbox"})
"""Fields that `pieces` lack: they have tables of their own, or no reader (the outbox)."""


def pieces(state: World) -> tuple[bytes, bytes]:
    """A world without `APART` but with the ids of what goes on: (what changes with every poll, what seldom changes)."""
    rest = {name: getattr(state, name) for name in state.__struct_fields__ if name not in APART and name not in _LONG}
    runs, vms = Inventory[Run](open_ids=state.runs.open_ids), Inventory[Vm](open_ids=state.vms.open_ids)
    lasting = World(rules=state.rules, **{name: getattr(state, name) for name in _LONG})
    return dump(World(**rest, runs=runs, vms=vms)), dump(lasting)


def save_world(store: ProjectionStore, world: bytes, lasting: bytes, lasting_before: bytes | None = None) -> None:
    """Store the `pieces` of a world. `lasting_before`: the last stored second piece, if known, to skip an equal one."""
    store.put(_WORLD, world)
    if lasting != lasting_before:
        store.put(_LASTING, lasting)


def joined(world: bytes, lasting: World) -> World:
    """The world of `pieces`, the second already decoded."""
    state = load(world)
    for name in _LONG:
        setattr(state, name, getattr(lasting, name))
    return state


class LiveCut(msgspec.Struct, frozen=True, kw_only=True):
    """The world at `position`, as far as it differs from the position before."""

    position: int
    runs: dict[str, bytes]  # every run that may have changed; new runs in order of first sight
    gone: tuple[str, ...]  # runs that were taken into others
    vms: dict[str, bytes]
    world: bytes  # see `pieces`
    lasting: bytes
    notes: tuple[Anomaly | Blind, ...]  # those that are new, in order


def cut_of(live: "LiveWorld", after: int) -> LiveCut | None:
    """The changes since `after`; None if the live world does not know them, so that the record must be folded."""
    with live.reading() as state:
        touched, position = live.touched, live.position
        if state is None or not touched.floor <= after <= position:
            return None
        ids = touched.since(after)
        vm_ids = {key for key in ids if key in state.vms}
        runs = ids - vm_ids
        gone = tuple(run_id for run_id in runs if run_id not in state.runs)
        there = _in_order(state.runs, {*state.runs.open_ids, *runs}.difference(gone), after)
        vms = _in_order(state.vms, {*state.vms.open_ids, *vm_ids}, after)
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


def _in_order(known: Inventory[Run] | Inventory[Vm], ids: set[str], after: int) -> list[str]:
    """These ids; those first seen after `after` last, in the world's order, which ends with the newest."""
    new = {key for key in ids if known[key].first_position > after}
    behind: list[str] = []
    for newest in known.newest_ids():
        if len(behind) == len(new):
            break
        if newest in new:
            behind.append(newest)
    return [*(ids - new), *reversed(behind)]
