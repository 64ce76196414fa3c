"""The runs or machines of a world of which most are over: those that matter as a dict, the others in segments
(`engine/fold/segments.py`), found as if they were in it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from collections.abc import ItemsView as _Items
from collections.abc import KeysView as _Keys
from collections.abc import ValuesView as _Values
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from engine.fold.run import Run
from engine.fold.segments import Brief, Cold, Counted, counted
from engine.fold.vm import Vm

T = TypeVar("T", bound=Run | Vm)
V = TypeVar("V")


class _Elsewhere(dict[str, V]):
    """A dict in which a value that is not there may be found elsewhere, by `__missing__`."""

    __contains__ = Mapping.__contains__
    setdefault = MutableMapping.setdefault

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, *default: Any) -> Any:
        if default and key not in self:
            return default[0]
        found = self[key]
        del self[key]
        return found


class LazyThings(_Elsewhere[T]):
    """A dict by id, in order of first sight; the dict itself holds what matters. Several threads may read at once while
    none writes, as with a dict. `msgspec` encodes what the dict itself holds.
    """

    def __init__(
        self,
        held: dict[str, T],
        numbers: dict[str, int],
        cold: Cold[T],
        belongs: Callable[[T | Brief], bool] | None = None,
    ) -> None:
        """`numbers`: the place of each held thing in the order of first sight; `held` is in that order. `belongs`:
        those in segments for which it is false are not there.
        """
        super().__init__(held)
        self.numbers = numbers
        self.cold = cold
        self._belongs = belongs
        self._next = 1 + max((*list(numbers.values())[-1:], *(segment.last for segment in cold.segments)), default=-1)

    def _find(self, key: str) -> T | None:
        found = self.cold.find(key)
        return found if found is None or self._belongs is None or self._belongs(found) else None

    def __missing__(self, key: str) -> T:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: str, thing: T) -> None:
        if not dict.__contains__(self, key):
            if self.cold.find(key) is not None:
                self.cold.loaded[key] = thing
                return
            self.numbers[key] = self._next
            self._next += 1
        super().__setitem__(key, thing)

    def __delitem__(self, key: str) -> None:
        if dict.__contains__(self, key):
            super().__delitem__(key)
            del self.numbers[key]
        elif not self.cold.drop(key):
            raise KeyError(key)

    def __len__(self) -> int:
        return super().__len__() + len(self.cold) if self._belongs is None else sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        return self._in_order(1)

    def __reversed__(self) -> Iterator[str]:
        return self._in_order(-1)

    def keys(self) -> Any:
        return _Keys(self)

    def values(self) -> Any:
        return _LazyValues(self)

    def items(self) -> Any:
        return _Items(self)

    __eq__ = Mapping.__eq__
    __hash__ = None  # type: ignore[assignment]  # like dict, whose stub has the same exception

    def held(self) -> list[T]:
        """See the function of this name."""
        return self.some(lambda _: False)

    def some(self, matters: Callable[[Brief], bool]) -> list[T]:
        """See `some_of`."""
        belongs = self._belongs
        found = {self.numbers[key]: thing for key, thing in super().items()}
        found |= {number: one for number, one in self.cold.some(matters) if belongs is None or belongs(one)}
        return [found[number] for number in sorted(found)]

    def part(self, belongs: Callable[[T | Brief], bool]) -> "LazyThings[T]":
        """Those that belong; what is looked at in either is the same object."""
        held = {key: thing for key, thing in super().items() if belongs(thing)}
        return LazyThings(held, {key: self.numbers[key] for key in held}, self.cold, belongs)

    def _in_order(self, sign: int) -> Iterator[str]:
        """The ids by number, or with -1 backwards; a segment is read when its first number is due."""
        held = super().__iter__() if sign > 0 else super().__reversed__()
        rest: list[tuple[int, int, str, Iterator[tuple[int, str]]]] = []

        def put(place: int, numbers: Iterator[tuple[int, str]]) -> None:
            for number, key in numbers:
                heappush(rest, (sign * number, place, key, numbers))
                return

        for place, segment in enumerate(self.cold.segments):
            rest.append((sign * (segment.first if sign > 0 else segment.last), place, "", iter(())))
        heapify(rest)
        put(-1, ((self.numbers[key], key) for key in held))
        while rest:
            _, place, key, numbers = heappop(rest)
            if key:
                yield key
            else:
                numbers = self._of(self.cold.segments[place], sign)
            put(place, numbers)

    def _of(self, segment: Any, sign: int) -> Iterator[tuple[int, str]]:
        belongs, loaded = self._belongs, self.cold.loaded
        for entry in self.cold.numbered(segment)[::sign]:
            if belongs is None or belongs(loaded.get(entry.key) or entry.brief):
                yield entry.number, entry.key


class _LazyValues(_Values[T]):
    _mapping: LazyThings[T]

    def __reversed__(self) -> Iterator[T]:
        return (self._mapping[key] for key in reversed(self._mapping))


class Kept(_Elsewhere[V]):
    """What the world keeps about runs or machines, by their ids or others; what belongs to those in segments is there
    and comes with them. Looking through all of it shows only what is here.
    """

    def __init__(self, here: dict[str, V], wake: Callable[[str], None]) -> None:
        super().__init__(here)
        self._wake = wake

    def __missing__(self, key: str) -> V:
        self._wake(key)
        if not dict.__contains__(self, key):
            raise KeyError(key)
        return self[key]


def some_of(things: dict[str, T], matters: Callable[[Brief], bool]) -> Iterable[T]:
    """Every run or machine, in order, but those that are over and of which the brief says that they do not matter: a
    caller must ask each itself. A later moment or position in a brief must not make it matter less.
    """
    return things.some(matters) if isinstance(things, LazyThings) else things.values()


def found_by(things: dict[str, T], word: str) -> Iterable[T]:
    """As `held`, and those in segments that this word finds: a caller must ask each itself."""
    if isinstance(things, LazyThings):
        things.cold.wake(word)
    return held(things)


def held(things: dict[str, T]) -> Iterable[T]:
    """What a decision looks at, in order: what goes on, the newest, the newest machine of each kind, and what was
    looked at in segments.
    """
    return things.held() if isinstance(things, LazyThings) else things.values()


def tally_of(things: dict[str, T], name: str, of: Callable[[T], Counted]) -> Counter[str]:
    """What each run or machine adds to which number, added up. It may change only with the thing; `name` stands for the
    function, as segments keep their sums.
    """
    if not isinstance(things, LazyThings):
        return counted(map(of, things.values()))
    return counted(map(of, dict.values(things))) + things.cold.tally(name, of)


def part_of(things: dict[str, T], belongs: Callable[[T | Brief], bool]) -> dict[str, T]:
    """Those that belong, in order."""
    if isinstance(things, LazyThings):
        return things.part(belongs)
    return {key: thing for key, thing in things.items() if belongs(thing)}
