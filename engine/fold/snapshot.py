"""A world as a snapshot has it: what matters in one piece, what is over and was not seen for long in segments."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

import msgspec

from engine.fold.lazy_things import Kept, LazyThings
from engine.fold.outbox import OpenSubmit, TakenStop
from engine.fold.run import Run
from engine.fold.segments import Beside, Cold, Entry, Segment, brief_of, encode
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, share_words
from engine.states import VmState

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


class _Things(msgspec.Struct, frozen=True, array_like=True):
    runs: dict[str, Run]
    vms: dict[str, Vm]


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    world: WorldState  # without runs and machines
    held: _Things
    numbers: tuple[list[int], list[int]]  # of the runs and of the machines
    segments: tuple[list[Segment], list[Segment]]


_decode: Final = msgspec.msgpack.Decoder(Snapshot).decode


def retire(state: WorldState, before: int, read: Read, *, newest: int | None = None) -> None:
    """Move the runs and machines that ended, and that no poll after the position `before` showed, into segments. The
    newest runs and the newest machine of each kind stay. The caller must drop its references to runs and machines: a
    moved one is decoded as another object.
    """
    runs, vms = _lazy(state, read)
    newest = NEWEST if newest is None else newest
    recent = set(list(dict.__iter__(runs))[-newest:]) if newest else set()
    models = {vm.vm_id for vm in _newest_of_each_kind(vms.held())}  # what was looked at too

    def is_past_run(run: Run) -> bool:
        return run.terminal and run.run_id not in recent and run.run_id not in state.unsettled

    def is_past_vm(vm: Vm) -> bool:
        over = vm.state is VmState.TERMINATED and vm.finished_at is not None
        return over and vm.vm_id not in models and vm.vm_id not in state.open_vms

    state.runs = _retired(state, runs, before, is_past_run, _ABOUT_RUNS)
    state.vms = _retired(state, vms, before, is_past_vm, _ABOUT_VMS)


def segments_of(state: WorldState) -> tuple[Cold[Any], ...]:
    """What is in segments: of the runs and of the machines; nothing if it was never retired."""
    return tuple(things.cold for things in (state.runs, state.vms) if isinstance(things, LazyThings))


def dump_held(state: WorldState) -> bytes:
    """A retired state as bytes, without the contents of its segments. TypeError: `retire` was never called."""
    runs, vms = state.runs, state.vms
    if not isinstance(runs, LazyThings) or not isinstance(vms, LazyThings):
        raise TypeError("only a retired state can be dumped")
    return encode(
        Snapshot(
            msgspec.structs.replace(state, runs={}, vms={}),
            _Things(runs, vms),
            (list(runs.numbers.values()), list(vms.numbers.values())),
            (runs.cold.segments, vms.cold.segments),
        )
    )


def load_held(data: bytes | memoryview, read: Read) -> WorldState:
    """The state that `dump_held` wrote; what is in segments is read when it is looked at. ValueError: the bytes are of
    another version.
    """
    found = _decode(data)
    state, known = found.world, dict[str, str]()
    for run in found.held.runs.values():
        share_words(run, known)
    run_numbers = dict(zip(found.held.runs, found.numbers[0], strict=True))
    vm_numbers = dict(zip(found.held.vms, found.numbers[1], strict=True))
    runs = _things(state, found.held.runs, run_numbers, found.segments[0], read, _run_decoder(known))
    vms = _things(state, found.held.vms, vm_numbers, found.segments[1], read, _decode_vm)
    _keep(state, _ABOUT_RUNS, runs.cold)
    _keep(state, _ABOUT_VMS, vms.cold)
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


def _lazy(state: WorldState, read: Read) -> tuple[LazyThings[Run], LazyThings[Vm]]:
    """The runs and machines of a state, which may never have been retired."""
    runs, vms = state.runs, state.vms
    if not isinstance(runs, LazyThings):
        runs = _things(state, runs, {key: place for place, key in enumerate(runs)}, [], read, _run_decoder({}))
    if not isinstance(vms, LazyThings):
        vms = _things(state, vms, {key: place for place, key in enumerate(vms)}, [], read, _decode_vm)
    return runs, vms


def _things(
    state: WorldState,
    held: dict[str, T],
    numbers: dict[str, int],
    segments: list[Segment],
    read: Read,
    decode: Callable[[msgspec.Raw], T],
) -> LazyThings[T]:
    def restore(one: Beside) -> None:
        _dict_of(state, one.where)[one.key] = _DECODE[one.where](one.value)

    return LazyThings(held, numbers, Cold(segments, read, decode, restore))


def _retired(
    state: WorldState,
    things: LazyThings[T],
    before: int,
    is_past: Callable[[T], bool],
    about: Collection[str],
) -> LazyThings[T]:
    cold, beside = things.cold, _beside(state, about)
    changed, restored = cold.settle(beside)
    for one in restored:
        dict.pop(_dict_of(state, one.where), one.key, None)
    held = {key: (things.numbers[key], thing) for key, thing in dict.items(things)} | changed
    stay: list[tuple[int, str, T]] = []
    leave: list[Entry] = []
    for key, (number, thing) in sorted(held.items(), key=lambda item: item[1][0]):
        brief = brief_of(thing)
        if is_past(thing) and brief.position < before and not brief.speaks:
            raced = thing.terms.race if isinstance(thing, Run) and thing.terms is not None else None
            leave.append(Entry(key, number, brief, msgspec.Raw(encode(thing)), beside.get(key, ()), raced))
        else:
            stay.append((number, key, thing))
    cold.add(leave)
    for one in (one for entry in leave for one in entry.beside):
        dict.pop(_dict_of(state, one.where), one.key)
    _keep(state, about, cold)
    return LazyThings({key: thing for _, key, thing in stay}, {key: number for number, key, _ in stay}, cold)


def _beside(state: WorldState, about: Iterable[str]) -> dict[str, tuple[Beside, ...]]:
    """What the world keeps about each run or machine elsewhere, by its id."""
    found: dict[str, tuple[Beside, ...]] = {}
    for name in about:
        for key, value in dict.items(_dict_of(state, name)):
            owner = value if name == "by_provider" else key
            found[owner] = (*found.get(owner, ()), Beside(name, key, encode(value)))
    return found


def _keep(state: WorldState, about: Iterable[str], cold: Cold[Any]) -> None:
    for name in about:
        here = _dict_of(state, name)
        if not isinstance(here, Kept):
            setattr(state if name == "by_provider" else state.outbox, name, Kept(here, cold.wake))


def _dict_of(state: WorldState, name: str) -> dict[str, Any]:
    found: dict[str, Any] = getattr(state if name == "by_provider" else state.outbox, name)
    return found


def _newest_of_each_kind(vms: Iterable[Vm]) -> Iterable[Vm]:
    """The machines that tell the newest price of each kind (`engine/money/prices.py`)."""
    found: dict[tuple[object, ...], Vm] = {}
    for vm in vms:
        facts = vm.facts
        kind = (vm.archive, facts.backend, (facts.gpu or "").casefold(), facts.gpu_count, facts.spot)
        if vm.prices and (kind not in found or vm.last_at > found[kind].last_at):
            found[kind] = vm
    return found.values()
