"""The runs, or the machines, of a world, and what it keeps about them elsewhere. A world that follows a record has in
memory what goes on, the newest and what was seen lately; what is over is behind it, and fetched when it is needed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec

from steno.engine.state.run import Run
from steno.engine.state.vm import Vm

T = TypeVar("T", bound=Run | Vm)
V = TypeVar("V")

Counted = tuple[str, int] | Mapping[str, int] | None  # what a run or machine adds to which numbers of a sum


class Brief(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The facts of a run or machine that is over that are known without decoding it. Of several: the latest of each
    kind.
    """

    archive: str | None
    hidden: bool
    position: int  # of the newest poll that showed it, or of its last step if that is later
    at: int  # the latest of all moments known of it (microseconds, UTC)
    lacked: bool = False  # `Run.unserved`
    speaks: bool = False  # its output is to be read, and was not read to its end


def brief_of(thing: Run | Vm) -> Brief:
    if isinstance(thing, Vm):
        at = max((thing.last_at, thing.created, thing.finished_at or 0, *(step.at for step in thing.steps[-1:])))
        return Brief(thing.archive, thing.hidden, thing.last_position, at)
    steps = thing.transitions[-1:]
    moments = (thing.first_at, thing.last_at, thing.requested_at or 0, thing.finished_at or 0)
    output = thing.said
    return Brief(
        thing.archive,
        thing.hidden,
        max((thing.last_position, *(step.position for step in steps))),
        max((*moments, *(step.at for step in steps))),
        thing.unserved,
        output is not None and not (output.over or output.ended),
    )


class Inventory(Generic[T]):
    """Runs or machines by id, in order of first sight, all of them in memory. Costs that a docstring names are those of
    a world of which most is elsewhere. Several threads may read at once while none writes.
    """

    def __init__(self, things: Mapping[str, T] | None = None, open_ids: Iterable[str] = ()) -> None:
        self.memory: dict[str, T] = {} if things is None else dict(things)
        self.open_ids: dict[str, None] = dict.fromkeys(open_ids)
        """The runs without a verdict, or the machines not seen gone, in order of first sight."""

    def get(self, key: str) -> T | None:
        """The run or machine of an id. One look-up in memory; elsewhere it is decoded once."""
        thing = self.memory.get(key)
        return self._fetch(key) if thing is None else thing

    def __getitem__(self, key: str) -> T:
        """As `get`; raises `KeyError`."""
        thing = self.memory.get(key)
        if thing is None and (thing := self._fetch(key)) is None:
            raise KeyError(key)
        return thing

    def __contains__(self, key: str) -> bool:
        """As expensive as `get`."""
        return key in self.memory or self._fetch(key) is not None

    def __setitem__(self, key: str, thing: T) -> None:
        self.memory[key] = thing

    def __delitem__(self, key: str) -> None:
        del self.memory[key]

    def open(self) -> list[T]:
        """The runs or machines that go on (`open_ids`). One look-up each."""
        return [self[key] for key in self.open_ids]

    def ended_since(self, moment: int) -> list[T]:
        """The runs or machines that do not go on, and ended, moved or were seen at `moment` (microseconds, UTC) or
        later. Decodes these; passes segments of 4,000 that are older by their row.
        """
        return [thing for thing in self.ended(lambda brief: brief.at >= moment) if brief_of(thing).at >= moment]

    def ended(self, may_matter: Callable[[Brief], bool]) -> list[T]:  # noqa: ARG002 - of what is in segments
        """The runs or machines that do not go on, without those in segments whose brief does not matter: the caller
        checks each. A later `at` or `position` must not make a brief matter less. Cost as of `ended_since`.
        """
        return [thing for key, thing in self._whole().items() if key not in self.open_ids]

    def raced(self, race: str) -> list[T]:
        """The runs of a race. Decodes these only, but passes all that is in memory."""
        return [thing for thing in self._whole().values() if race_of(thing) == race]

    def newest(self) -> Iterator[T]:
        """All, the newest first. The newest 200 runs are in memory; the rest is decoded in its turn."""
        return reversed(self._whole().values())

    def newest_ids(self) -> Iterator[str]:
        """The ids of `newest`, at its cost but for decoding."""
        return reversed(self._whole())

    def in_memory(self) -> list[T]:
        """A part: what goes on, what is not over, the newest machine of each kind, and more. Decodes nothing."""
        return list(self._whole().values())

    def part(self, belongs: Callable[[T | Brief], bool]) -> "Inventory[T]":
        """The runs or machines that belong, and which of them are open. Decodes nothing."""
        things = {key: thing for key, thing in self._whole().items() if belongs(thing)}
        return Inventory(things, filter(things.__contains__, self.open_ids))

    def all(self) -> Iterator[T]:
        """All of them: decodes everything, some 15 µs each."""
        return iter(self._whole().values())

    def ids(self) -> Iterator[str]:
        """All ids: reads everything, but decodes no run or machine."""
        return iter(self._whole())

    def sums(self, name: str, of: Callable[[T], Counted]) -> Counter[str]:  # noqa: ARG002 - of kept sums
        """The sums of what each run or machine adds (`of`), by name. `of` may depend on the run or machine only. `name`
        stands for it: sums are kept with what is over, so that the first call with a name decodes everything, and later
        calls nothing.
        """
        return counted(map(of, self._whole().values()))

    def __len__(self) -> int:
        return len(self._whole())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventory):
            return NotImplemented
        if self.open_ids != other.open_ids or len(self) != len(other):
            return False
        return all(thing == other.get(key) for key, thing in zip(self.ids(), self.all(), strict=True))

    __hash__ = None  # type: ignore[assignment]  # like dict, whose stub has the same exception

    def _fetch(self, key: str) -> T | None:  # noqa: ARG002 - of those that have things elsewhere
        """The run or machine of an id that is not in memory."""
        return None

    def _whole(self) -> dict[str, T]:
        """All of them, in memory now."""
        return self.memory


class Index(Generic[V]):
    """Values by the ids of runs or machines, or by others of their words. What belongs to runs and machines that are
    elsewhere is there too, and fetched by its key only: an index has no list of its keys.
    """

    def __init__(self, here: dict[str, V] | None = None, fetch: Callable[[str], V | None] | None = None) -> None:
        self.here: dict[str, V] = {} if here is None else here  # a part
        self.fetch = fetch  # the value of a key that is not in `here`; it may put it there

    def get(self, key: str) -> V | None:
        value = self.here.get(key)
        return self.fetch(key) if value is None and self.fetch is not None else value

    def __getitem__(self, key: str) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: str, value: V) -> None:
        self.here[key] = value

    def pop(self, key: str) -> V | None:
        """Remove a value and return it; None if there is none."""
        value = self.get(key)
        self.here.pop(key, None)
        return value

    def __eq__(self, other: object) -> bool:
        """Compares what was fetched."""
        return self.here == other.here if isinstance(other, Index) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def race_of(thing: Run | Vm) -> str | None:
    """The race of a run that was submitted with others, of which only the first is wanted."""
    return thing.terms.race if isinstance(thing, Run) and thing.terms is not None else None


def counted(each: Iterable[Counted]) -> Counter[str]:
    sums = Counter[str]()
    for part in each:
        if isinstance(part, tuple):
            sums[part[0]] += part[1]
        elif part is not None:
            sums.update(part)
    return sums


# -- as bytes


def _encoded(value: Any) -> bytes:
    match value:
        case Inventory():
            return encode((dict(zip(value.ids(), value.all(), strict=True)), tuple(value.open_ids)))
        case Index():
            return encode(value.here)
    raise NotImplementedError


def _decoded(kind: Any, data: Any) -> Any:
    content = _content(kind)(data)
    return Index(content) if get_origin(kind) is Index else Inventory(*content)


@cache
def _content(kind: Any) -> Callable[[bytes], Any]:
    things = GenericAlias(dict, (str, *get_args(kind)))
    content = GenericAlias(tuple, (things, tuple[str, ...])) if get_origin(kind) is Inventory else things
    return msgspec.msgpack.Decoder(content).decode


encode: Final = msgspec.msgpack.Encoder(enc_hook=_encoded).encode


def decoder(kind: type[V]) -> msgspec.msgpack.Decoder[V]:
    """Decodes a type that has inventories in it."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_decoded)
