"""A world as a snapshot has it: what goes on in one piece, what is over and was not seen for long in segments."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

import msgspec

from steno.engine.state.inventory import Index, Inventory, brief_of, decoder, encode, race_of
from steno.engine.state.outbox import OpenSubmit, TakenStop
from steno.engine.state.run import Run
from steno.engine.state.segments import Beside, Cold, Entry, Segment, SegmentedInventory
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, share_words

T = TypeVar("T", bound=Run | Vm)
Read = Callable[[Segment], bytes]

NEWEST: Final = 200  # the newest runs stay: estimates learn from them

_ABOUT_RUNS: Final[dict[str, Any]] = {
    "by_provider": str,
    "provider_ids": str,
    "outcomes": int,
    "stop_outcomes": int,
    "taken": TakenStop,
    "accepted": OpenSubmit,
}
_ABOUT_VMS: Final[dict[str, Any]] = {"vm_outcomes": int}
"""Dicts of the world and its outbox that keep something about each run or machine, and the type of their values."""
_DECODE: Final = {name: msgspec.msgpack.Decoder(kind).decode for name, kind in (_ABOUT_RUNS | _ABOUT_VMS).items()}


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    world: World  # with the runs and machines in memory
    numbers: tuple[list[int], list[int]]  # of the runs and of the machines
    segments: tuple[list[Segment], list[Segment]]


_decode: Final = decoder(_Snapshot).decode


def retire(state: World, before: int, read: Read, *, newest: int | None = None) -> None:
    """Move the runs and machines that ended, and that no poll after the position `before` showed, into segments. The
    newest runs and the newest machine of each kind stay. The caller must drop its references to runs and machines: a
    moved one is decoded as another object.
    """
    runs, vms = _segmented(state, read)
    newest = NEWEST if newest is None else newest
    recent = set(list(runs.memory)[-newest:]) if newest else set()
    models = {vm.vm_id for vm in _newest_of_each_kind(vms.in_memory())}  # what was fetched too

    def is_past_run(run: Run) -> bool:
        return run.terminal and run.run_id not in recent and run.run_id not in runs.open_ids

    def is_past_vm(vm: Vm) -> bool:
        over = vm.state is VmState.TERMINATED and vm.finished_at is not None
        return over and vm.vm_id not in models and vm.vm_id not in vms.open_ids

    state.runs = _retired(state, runs, before, is_past_run, _ABOUT_RUNS)
    state.vms = _retired(state, vms, before, is_past_vm, _ABOUT_VMS)


def segments_of(state: World) -> tuple[Cold[Any], ...]:
    """The segments of the runs and of the machines; empty if the state was never retired."""
    return tuple(things.cold for things in (state.runs, state.vms) if isinstance(things, SegmentedInventory))


def dump_in_memory(state: World) -> bytes:
    """A retired state as bytes, without the contents of its segments. TypeError: `retire` was never called."""
    runs, vms = state.runs, state.vms
    if not isinstance(runs, SegmentedInventory) or not isinstance(vms, SegmentedInventory):
        raise TypeError("only a retired state can be dumped")
    memory = [Inventory(things.memory, things.open_ids) for things in (runs, vms)]
    return encode(
        _Snapshot(
            msgspec.structs.replace(state, runs=memory[0], vms=memory[1]),
            (list(runs.numbers.values()), list(vms.numbers.values())),
            (runs.cold.segments, vms.cold.segments),
        )
    )


def load_in_memory(data: bytes | memoryview, read: Read) -> World:
    """The state that `dump_in_memory` wrote; what is in segments is read when it is needed. ValueError: the bytes are
    of another version.
    """
    snapshot = _decode(data)
    state, known = snapshot.world, dict[str, str]()
    for run in state.runs.all():
        share_words(run, known)
    (run_numbers, vm_numbers), (run_segments, vm_segments) = snapshot.numbers, snapshot.segments
    runs = _with_segments(state, state.runs, run_numbers, run_segments, read, _run_decoder(known))
    vms = _with_segments(state, state.vms, vm_numbers, vm_segments, read, _decode_vm)
    _fetch_beside(state, _ABOUT_RUNS, runs.cold)
    _fetch_beside(state, _ABOUT_VMS, vms.cold)
    state.runs, state.vms = runs, vms
    return state


_decode_run: Final = msgspec.msgpack.Decoder(Run).decode
_decode_vm: Final = msgspec.msgpack.Decoder(Vm).decode


def _run_decoder(known: dict[str, str]) -> Callable[[msgspec.Raw], Run]:
    def decode(encoded: msgspec.Raw) -> Run:
        run = _decode_run(encoded)
        share_words(run, known)
        return run

    return decode


def _segmented(state: World, read: Read) -> tuple[SegmentedInventory[Run], SegmentedInventory[Vm]]:
    """The runs and machines of a state, which may never have been retired."""
    runs, vms = state.runs, state.vms
    if not isinstance(runs, SegmentedInventory):
        runs = _with_segments(state, runs, range(len(runs)), [], read, _run_decoder({}))
    if not isinstance(vms, SegmentedInventory):
        vms = _with_segments(state, vms, range(len(vms)), [], read, _decode_vm)
    return runs, vms


def _with_segments(
    state: World,
    memory: Inventory[T],
    numbers: Iterable[int],
    segments: list[Segment],
    read: Read,
    decode: Callable[[msgspec.Raw], T],
) -> SegmentedInventory[T]:
    def restore(part: Beside) -> None:
        _index(state, part.where)[part.key] = _DECODE[part.where](part.value)

    numbered = dict(zip(memory.memory, numbers, strict=True))
    return SegmentedInventory(memory.memory, memory.open_ids, numbered, Cold(segments, read, decode, restore))


def _retired(
    state: World,
    things: SegmentedInventory[T],
    before: int,
    is_past: Callable[[T], bool],
    about: Collection[str],
) -> SegmentedInventory[T]:
    cold, beside = things.cold, _beside(state, about)
    changed, restored = cold.settle(beside)
    for part in restored:
        _index(state, part.where).here.pop(part.key, None)
    present = {key: (things.numbers[key], thing) for key, thing in things.memory.items()} | changed
    stay: list[tuple[int, str, T]] = []
    leave: list[Entry] = []
    for key, (number, thing) in sorted(present.items(), key=lambda item: item[1][0]):
        brief = brief_of(thing)
        if is_past(thing) and brief.position < before and not brief.speaks:
            leave.append(Entry(key, number, brief, msgspec.Raw(encode(thing)), beside.get(key, ()), race_of(thing)))
        else:
            stay.append((number, key, thing))
    cold.add(leave)
    for part in (part for entry in leave for part in entry.beside):
        del _index(state, part.where).here[part.key]
    _fetch_beside(state, about, cold)
    memory, numbers = {key: thing for _, key, thing in stay}, {key: number for number, key, _ in stay}
    return SegmentedInventory(memory, things.open_ids, numbers, cold)


def _beside(state: World, about: Iterable[str]) -> dict[str, tuple[Beside, ...]]:
    """Values that the world keeps about each run or machine elsewhere, by its id."""
    beside: dict[str, tuple[Beside, ...]] = {}
    for name in about:
        for key, value in _index(state, name).here.items():
            owner = value if name == "by_provider" else key
            beside[owner] = (*beside.get(owner, ()), Beside(name, key, encode(value)))
    return beside


def _fetch_beside(state: World, about: Iterable[str], cold: Cold[Any]) -> None:
    """Let these indexes fetch what belongs to what is in segments."""

    def fetching(index: Index[Any]) -> Callable[[str], Any]:
        def fetch(key: str) -> Any:
            cold.wake(key)
            return index.here.get(key)

        return fetch

    for name in about:
        index = _index(state, name)
        index.fetch = fetching(index)


def _index(state: World, name: str) -> Index[Any]:
    index: Index[Any] = getattr(state if name == "by_provider" else state.outbox, name)
    return index


def _newest_of_each_kind(vms: Iterable[Vm]) -> Iterable[Vm]:
    """The machines that tell the newest price of each kind (`engine/money/prices.py`)."""
    newest: dict[tuple[object, ...], Vm] = {}
    for vm in vms:
        facts = vm.facts
        kind = (vm.archive, facts.backend, (facts.gpu or "").casefold(), facts.gpu_count, facts.spot)
        if vm.prices and (kind not in newest or vm.last_at > newest[kind].last_at):
            newest[kind] = vm
    return newest.values()
