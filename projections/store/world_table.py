"""The engine's world, kept in the store piece by piece: a fold that goes on loads only what it meets."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, get_args
from zlib import crc32

import msgspec
from msgspec.structs import fields

from engine.fold.outbox import Outbox
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, dump, load
from projections.store.store import ProjectionStore

_WORLD: Final = "world"
_LASTING: Final = "lasting"
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Run)
_vm_decoder: Final = msgspec.msgpack.Decoder(Vm)


def form() -> str:
    """What the kept pieces are made of, in eight digits: another form, and they cannot be read."""
    described = [
        (kind.__name__, [(field.name, str(field.type)) for field in fields(kind)])
        if issubclass(kind, msgspec.Struct)
        else (kind.__name__, [member.value for member in kind])
        for kind in sorted(_parts(WorldState, {}), key=lambda kind: kind.__qualname__)
    ]
    return f"{crc32(repr(described).encode()):08x}"


def _parts(
    kind: Any, found: dict[type[msgspec.Struct] | type[Enum], None]
) -> Iterable[type[msgspec.Struct] | type[Enum]]:
    """Every structure and every vocabulary that values of a type are made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct | Enum):
        if kind in found:
            return found
        found[kind] = None
        if issubclass(kind, msgspec.Struct):
            for field in fields(kind):
                _parts(field.type, found)
    for inner in get_args(kind):
        _parts(inner, found)
    return found


def encode_run(run: Run) -> bytes:
    """A run as the store keeps it."""
    return _encoder.encode(run)


def decode_run(data: bytes) -> Run:
    """The run `encode_run` wrote."""
    return _decoder.decode(data)


def encode_vm(vm: Vm) -> bytes:
    """A machine as the store keeps it."""
    return _encoder.encode(vm)


def decode_vm(data: bytes) -> Vm:
    """The machine `encode_vm` wrote."""
    return _vm_decoder.decode(data)


class StoredRuns(dict[str, Run]):
    """The runs of a world, loaded from a store when first met; what is in the dict itself was met since.

    Who asks for all items gets all; `values()` are those met.
    """

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__()
        self._store = store
        self.kept: dict[str, int] = {}
        """run id → the hash of what the store has of it."""
        self.filled: dict[str, int | None] = {}
        """run id → the poll that its provider's cost was read from."""

    def __missing__(self, run_id: str) -> Run:
        row = self._store.runs.get(run_id)
        if row is None:
            raise KeyError(run_id)
        return self.meet(run_id, row.folded)

    def meet(self, run_id: str, folded: bytes) -> Run:
        """The run the store keeps as these bytes, from now on met."""
        run = self[run_id] = decode_run(folded)
        self.kept[run_id], self.filled[run_id] = hash(folded), run.cost_at
        return run

    def get(self, run_id: str, default: Run | None = None) -> Run | None:  # type: ignore[override]
        """The run, or `default`."""
        try:
            return self[run_id]
        except KeyError:
            return default

    def items(self) -> Any:
        """Every run there is, in order of first sight."""
        met = dict(dict.items(self))
        self.clear()
        for row in self._store.runs.all():
            if row.run_id in met:
                self[row.run_id] = met.pop(row.run_id)
            else:
                self.meet(row.run_id, row.folded)
        self.update(met)
        return super().items()

    def __contains__(self, run_id: object) -> bool:
        return super().__contains__(run_id) or (isinstance(run_id, str) and self._store.runs.get(run_id) is not None)


class StoredVms(dict[str, Vm]):
    """As `StoredRuns`, machines; who asks for all gets all."""

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__()
        self._store = store
        self._all = False
        self.kept: dict[str, int] = {}

    def __missing__(self, vm_id: str) -> Vm:
        row = None if self._all else self._store.vms.get(vm_id)
        if row is None:
            raise KeyError(vm_id)
        return self.meet(vm_id, row.folded)

    def meet(self, vm_id: str, folded: bytes) -> Vm:
        """The machine the store keeps as these bytes, from now on met."""
        vm = self[vm_id] = decode_vm(folded)
        self.kept[vm_id] = hash(folded)
        return vm

    def get(self, vm_id: str, default: Vm | None = None) -> Vm | None:  # type: ignore[override]
        """The machine, or `default`."""
        try:
            return self[vm_id]
        except KeyError:
            return default

    def __contains__(self, vm_id: object) -> bool:
        return super().__contains__(vm_id) or (isinstance(vm_id, str) and self.get(vm_id) is not None)

    def _load(self) -> None:
        if self._all:
            return
        met = dict(dict.items(self))
        self.clear()
        for row in self._store.vms.all():
            if row.vm_id in met:
                self[row.vm_id] = met.pop(row.vm_id)
            else:
                self.meet(row.vm_id, row.folded)
        self.update(met)
        self._all = True

    def __iter__(self) -> Any:
        self._load()
        return super().__iter__()

    def values(self) -> Any:
        """Every machine there is, in order of first sight."""
        self._load()
        return super().values()

    def items(self) -> Any:
        """Every machine there is, with its id."""
        self._load()
        return super().items()


class StoredIds(dict[str, str]):
    """`<provider>/<provider_id>` → run id, looked up in a store where it was not met since."""

    def __init__(self, store: ProjectionStore) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, key: str) -> str:
        provider, _, provider_id = key.partition("/")
        run_id = self._store.runs.of_provider(provider, provider_id)
        if run_id is None:
            raise KeyError(key)
        self[key] = run_id
        return run_id

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """The run id, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None


def take_up(store: ProjectionStore, kept: tuple[bytes, bytes] | None = None) -> WorldState | None:
    """The world the store was left with, its runs and machines behind it; None where there is none that this version
    can read. `kept`: the world as `put_down` gave it, where it is another than the store's own.

    `anomalies` and `blind` are empty: what a fold adds to them is what is new.
    """
    world, lasting = kept if kept is not None else (store.get(_WORLD), store.get(_LASTING))
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


def take_up_whole(store: ProjectionStore, kept: tuple[bytes, bytes] | None = None) -> WorldState | None:
    """As `take_up`, every run and machine loaded: a world that goes on without the store."""
    state = take_up(store, kept)
    if state is None:
        return None
    state.runs = {row.run_id: decode_run(row.folded) for row in store.runs.all()}
    state.vms = {row.vm_id: decode_vm(row.folded) for row in store.vms.all()}
    state.by_provider = {
        f"{run.provider}/{run.provider_id}": run.run_id for run in state.runs.values() if run.provider_id is not None
    }
    return state


_LONG: Final = ("by_host", "former", "fleets", "policies", "noted", "crossed")
"""What grows with the record and seldom moves."""
APART: Final[dict[str, Any]] = {
    "runs": {},
    "vms": {},
    "by_provider": {},
    "anomalies": [],
    "blind": [],
    "outbox": Outbox(),
}
"""What `pieces` leave out: it has tables of its own, or no reader asks for it (the outbox)."""


def pieces(state: WorldState) -> tuple[bytes, bytes]:
    """All of a world but what is `APART`: (what moves with every poll, what seldom moves)."""
    world = dump(msgspec.structs.replace(state, **APART, **{name: {} for name in _LONG}))
    return world, dump(WorldState(rules=state.rules, **{name: getattr(state, name) for name in _LONG}))


def put_down(store: ProjectionStore, world: bytes, lasting: bytes, lasting_before: bytes | None = None) -> None:
    """Keep the `pieces` of a world.

    Args:
        lasting_before: the second of them that was kept the last time, if that is known.
    """
    store.put(_WORLD, world)
    if lasting != lasting_before:
        store.put(_LASTING, lasting)


def joined(world: bytes, lasting: WorldState) -> WorldState:
    """The world of `pieces`, the second of them decoded."""
    state = load(world)
    for name in _LONG:
        setattr(state, name, getattr(lasting, name))
    return state
