"""The engine's world, kept in the store piece by piece: a fold that goes on loads only the runs it meets."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, get_args
from zlib import crc32

import msgspec
from msgspec.structs import fields

from engine.world.runs import Run
from engine.world.state import WorldState, dump, load
from projections.store import Store

_WORLD = "world"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Run)


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


class StoredRuns(dict[str, Run]):
    """The runs of a world, loaded from a store when first met; what is in the dict itself was met since."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, run_id: str) -> Run:
        row = self._store.run(run_id)
        if row is None:
            raise KeyError(run_id)
        run = self[run_id] = decode_run(row.folded)
        return run

    def get(self, run_id: str, default: Run | None = None) -> Run | None:  # type: ignore[override]
        """The run, or `default`."""
        try:
            return self[run_id]
        except KeyError:
            return default

    def __contains__(self, run_id: object) -> bool:
        return super().__contains__(run_id) or (isinstance(run_id, str) and self._store.run(run_id) is not None)


class StoredIds(dict[str, str]):
    """`<provider>/<provider_id>` → run id, looked up in a store where it was not met since."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, key: str) -> str:
        provider, _, provider_id = key.partition("/")
        run_id = self._store.run_of(provider, provider_id)
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


def take_up(store: Store) -> WorldState | None:
    """The world the store was left with, its runs behind it; None where there is none that this version can read.

    `anomalies` and `blind` are empty: what a fold adds to them is what is new.
    """
    data = store.get(_WORLD)
    if data is None:
        return None
    try:
        state = load(data)
    except ValueError:
        return None
    state.runs = StoredRuns(store)
    for run_id in state.unsettled:
        state.runs[run_id]  # met: a fold asks all open runs whether they are missing
    state.by_provider = StoredIds(store)
    return state


def take_up_whole(store: Store) -> WorldState | None:
    """As `take_up`, every run loaded: a world that goes on without the store."""
    state = take_up(store)
    if state is None:
        return None
    state.runs = {row.run_id: decode_run(row.folded) for row in store.runs()}
    state.by_provider = {
        f"{run.provider}/{run.provider_id}": run.run_id for run in state.runs.values() if run.provider_id is not None
    }
    return state


def put_down(store: Store, state: WorldState) -> None:
    """Keep all of a world but its runs, anomalies and gaps, which have tables of their own."""
    store.put(_WORLD, dump(msgspec.structs.replace(state, runs={}, by_provider={}, anomalies=[], blind=[])))


def sources_of(state: WorldState) -> dict[str, int | None]:
    """When each source last answered (microseconds, UTC)."""
    return {name: source.last_answered for name, source in state.sources.items()}
