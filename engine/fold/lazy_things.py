"""The runs and machines of a snapshot, each decoded when it is first looked at: a start must not decode what ended long
ago. What nobody looked at is written to the next snapshot as it is. A brief beside each tells whether a decision has to
look.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import ItemsView as _Items
from collections.abc import ValuesView as _Values
from typing import Any, Final, TypeVar

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.states import Reason, VmState

T = TypeVar("T", bound=Run | Vm)


class Brief(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a run or machine without decoding it."""

    open: bool  # it goes on
    archive: str | None
    hidden: bool
    position: int  # of the newest poll that showed it, or of its last step if that is later
    at: int  # the latest of all moments known of it (microseconds, UTC)
    race: str | None = None
    lacked: bool = False  # it ended because the provider had no capacity
    speaks: bool = False  # its output is to be read, and was not read to its end


def brief_of(thing: Run | Vm) -> Brief:
    if isinstance(thing, Vm):
        is_open, last = thing.state is not VmState.TERMINATED, thing.steps[-1:]
        at = max((thing.last_at, thing.created, thing.finished_at or 0, *(step.at for step in last)))
        return Brief(is_open, thing.archive, thing.hidden, thing.last_position, at)
    steps = thing.transitions[-1:]
    moments = (thing.first_at, thing.last_at, thing.requested_at or 0, thing.finished_at or 0)
    said = thing.said
    return Brief(
        not thing.terminal,
        thing.archive,
        thing.hidden,
        max((thing.last_position, *(step.position for step in steps))),
        max((*moments, *(step.at for step in steps))),
        None if thing.terms is None else thing.terms.race,
        thing.reason is Reason.NO_CAPACITY,
        said is not None and not (said.over or said.ended),
    )


class LazyThings(dict[str, T]):
    """A dict by id, in order of first sight, that decodes a value when it is first read. Several threads may read at
    once while none writes, as with a dict. `msgspec` encodes it as it is, without decoding.
    """

    def __init__(
        self, found: dict[str, Any], briefs: dict[str, Brief], decode: Callable[[str, msgspec.Raw], T]
    ) -> None:
        """`found`: values, encoded or not; `briefs`: of the encoded ones."""
        super().__init__(found)
        self._briefs = briefs
        self._decode: Callable[[str, msgspec.Raw], T] = decode

    def __getitem__(self, key: str) -> T:
        found: Any = super().__getitem__(key)
        return self._met(key, found) if type(found) is msgspec.Raw else found

    def get(self, key: str, default: Any = None) -> Any:
        found: Any = super().get(key, default)
        return self._met(key, found) if type(found) is msgspec.Raw else found

    def _met(self, key: str, encoded: msgspec.Raw) -> T:
        found = self[key] = self._decode(key, encoded)
        return found

    def __setitem__(self, key: str, thing: T) -> None:
        super().__setitem__(key, thing)
        self._briefs.pop(key, None)

    def pop(self, key: str, *default: Any) -> Any:
        self.get(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self.get(key)
        return super().setdefault(key, default)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._briefs.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        """As it is; without a method of its own `dict(self)` would copy the encoded values."""
        return super().__iter__()

    def values(self) -> Any:
        return _LazyValues(self)

    def items(self) -> Any:
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and dict(self) == dict(other)

    __hash__ = None

    def encoded(self) -> int:
        """How many were not looked at yet."""
        return len(self._briefs)

    def briefs(self) -> dict[str, Brief]:
        """The briefs of all, for the next snapshot."""
        return {key: self._briefs.get(key) or brief_of(self[key]) for key in dict.__iter__(self)}

    def some(self, matters: Callable[[Brief], bool]) -> list[T]:
        """See `some_of`."""
        found = ((key, self._briefs.get(key)) for key in dict.__iter__(self))
        return [self[key] for key, brief in found if brief is None or matters(brief)]

    def part(self, belongs: Callable[[T | Brief], bool]) -> "LazyThings[T]":
        """Those that belong; they are decoded here, once."""
        known = self._briefs
        found = {key: thing for key, thing in dict.items(self) if belongs(known.get(key) or self[key])}
        briefs = {key: brief for key in found if (brief := known.get(key)) is not None}
        return LazyThings(found, briefs, lambda key, _: self[key])


class _LazyValues(_Values[T]):
    _mapping: LazyThings[T]

    def __reversed__(self) -> Iterator[T]:
        return (self._mapping[key] for key in reversed(self._mapping))


def some_of(things: dict[str, T], matters: Callable[[Brief], bool]) -> Iterable[T]:
    """Every run or machine, in order, but those that are over and of which the brief says that they do not matter: a
    caller must ask each itself.
    """
    return things.some(matters) if isinstance(things, LazyThings) else things.values()


def part_of(things: dict[str, T], belongs: Callable[[T | Brief], bool]) -> dict[str, T]:
    """Those that belong, in order."""
    if isinstance(things, LazyThings):
        return things.part(belongs)
    return {key: thing for key, thing in things.items() if belongs(thing)}


# -- as bytes ----------------------------------------------------------------------------------------------------------


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """Runs and machines as a snapshot has them."""

    runs: dict[str, msgspec.Raw]
    vms: dict[str, msgspec.Raw]
    run_briefs: dict[str, Brief]
    vm_briefs: dict[str, Brief]


decode_run: Final = msgspec.msgpack.Decoder(Run).decode
decode_vm: Final = msgspec.msgpack.Decoder(Vm).decode


def lazy(
    encoded: dict[str, msgspec.Raw], briefs: dict[str, Brief], decode: Callable[[str, msgspec.Raw], T]
) -> LazyThings[T]:
    """What a snapshot has, those that go on already decoded. ValueError: it is of another version."""
    if encoded.keys() != briefs.keys():
        raise ValueError("a snapshot without all of its briefs")
    found = LazyThings[T](encoded, briefs, decode)
    for key in [key for key, brief in briefs.items() if brief.open]:
        found[key]
    return found


def packed(runs: dict[str, Run], vms: dict[str, Vm]) -> Packed:
    """Only for the encoder: it encodes what is decoded."""
    return Packed(runs, vms, _briefs(runs), _briefs(vms))  # type: ignore[arg-type]


def _briefs(things: dict[str, T]) -> dict[str, Brief]:
    if isinstance(things, LazyThings):
        return things.briefs()
    return {key: brief_of(thing) for key, thing in things.items()}
