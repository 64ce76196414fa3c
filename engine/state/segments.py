"""Runs and machines that are over and were not seen for long: encoded, in segments that never change, each decoded when
something in it is needed. The world keeps a row for each segment.
"""

import hashlib
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Final, Generic, TypeVar

import msgspec

from steno.engine.state.inventory import Brief, Counted, Inventory, counted, encode, race_of
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm

T = TypeVar("T", bound=Run | Vm)

SIZE: Final = 4_000  # things in a full segment
_OPEN: Final = 4  # segments whose content stays decoded
_TALLIES: Final = 8  # tallies that a segment keeps


class Beside(msgspec.Struct, frozen=True, array_like=True):
    """A value that the world keeps about a run or machine elsewhere."""

    where: str
    key: str
    value: bytes


class Entry(msgspec.Struct, frozen=True, array_like=True):
    key: str  # its id
    number: int  # its place in the order of first sight
    brief: Brief
    thing: msgspec.Raw
    beside: tuple[Beside, ...]
    word: str | None  # what it is also found by: the race of a run

    @property
    def words(self) -> set[str]:
        """Everything it is found by."""
        return {self.key, *(part.key for part in self.beside)} | ({self.word} if self.word is not None else set())


class Segment(msgspec.Struct, kw_only=True):
    digest: str  # SHA-256 of its content
    entries: int
    first: int  # the least of its numbers
    last: int
    words: memoryview  # the CRC-32 of all its words, in order
    latest: tuple[Brief, ...]  # one for each kind of brief
    gone: set[str] = set()  # ids of those that changed since: no longer here
    tallies: dict[str, dict[str, int]] = {}  # of all of them; see `Inventory.sums`

    def may_have(self, word: str) -> bool:
        wanted, known = zlib.crc32(word.encode()), self.words.cast("I")
        place = bisect_left(known, wanted)
        return place < len(known) and known[place] == wanted


_NUMBER: Final = itemgetter(0)
_entries: Final = msgspec.msgpack.Decoder(list[Entry]).decode


def segment_of(entries: list[Entry]) -> tuple[Segment, bytes]:
    """A segment of these, in order of their numbers, and its content."""
    content = zlib.compress(encode(entries), 1)
    latest: dict[Brief, Brief] = {}
    for entry in entries:
        brief = entry.brief
        kind = msgspec.structs.replace(brief, position=0, at=0)
        before = latest.get(kind, kind)
        at, position = max(before.at, brief.at), max(before.position, brief.position)
        latest[kind] = msgspec.structs.replace(brief, position=position, at=at)
    words = array("I", sorted({zlib.crc32(word.encode()) for entry in entries for word in entry.words}))
    segment = Segment(
        digest=hashlib.sha256(content).hexdigest(),
        entries=len(entries),
        first=entries[0].number,
        last=entries[-1].number,
        words=memoryview(words.tobytes()),
        latest=tuple(latest.values()),
    )
    return segment, content


class Cold(Generic[T]):
    """The segments of the runs, or of the machines, of one world, and what was fetched from them."""

    def __init__(
        self,
        segments: list[Segment],
        read: Callable[[Segment], bytes],
        decode: Callable[[msgspec.Raw], T],
        restore: Callable[[Beside], None],
    ) -> None:
        """`read`: the content of a segment that was not made here; `restore`: puts back what was kept beside a thing
        that is fetched.
        """
        self.segments = segments
        self.made: dict[str, bytes] = {}  # the contents of segments that were made here, by digest
        self.loaded: dict[str, T] = {}  # what was fetched, by id
        self._loaded_from: dict[str, tuple[Segment, Entry]] = {}
        self._read, self._decode, self._restore = read, decode, restore
        self._open: dict[str, tuple[list[Entry], dict[str, list[Entry]]]] = {}

    def __len__(self) -> int:
        return sum(segment.entries - len(segment.gone) for segment in self.segments)

    def content(self, segment: Segment) -> bytes:
        """Raises what `read` does."""
        made = self.made.get(segment.digest)
        return made if made is not None else self._read(segment)

    def find(self, key: str) -> T | None:
        """The thing with this id."""
        if key not in self.loaded:
            self.wake(key)
        return self.loaded.get(key)

    def wake(self, word: str) -> None:
        """Fetch everything with this word: an id, a provider's id, a race."""
        for segment in self.segments:
            if segment.may_have(word):
                for entry in self._opened(segment)[1].get(word, ()):
                    self.load(segment, entry)

    def load(self, segment: Segment, entry: Entry) -> T | None:
        """The thing of an entry; None: it is no longer there."""
        if entry.key in segment.gone:
            return None
        thing = self.loaded.get(entry.key)
        if thing is None:
            thing = self._decode(entry.thing)
            for part in entry.beside:
                self._restore(part)
            self._loaded_from[entry.key] = segment, entry
            thing = self.loaded.setdefault(entry.key, thing)  # another thread may have decoded it too
        return thing

    def drop(self, key: str) -> bool:
        """Forget a thing that was found; whether there was one."""
        if self.find(key) is None:
            return False
        segment, _ = self._loaded_from.pop(key)
        del self.loaded[key]
        _leave(segment, key)
        return True

    def numbered(self, segment: Segment) -> list[Entry]:
        """The entries that are still valid, in order of numbers."""
        return [entry for entry in self._opened(segment)[0] if entry.key not in segment.gone]

    def ended(self, matters: Callable[[Brief], bool]) -> list[tuple[int, str, T]]:
        """(number, id, thing) of what was fetched, and of those whose brief matters. A later `at` or `position` must
        not make it matter less.
        """
        for segment in self.segments:
            if any(map(matters, segment.latest)):
                for entry in self.numbered(segment):
                    if matters(entry.brief):
                        self.load(segment, entry)
        return [(self._loaded_from[key][1].number, key, thing) for key, thing in self._fetched()]

    def tally(self, name: str, of: Callable[[T], Counted]) -> Counter[str]:
        """See `Inventory.sums`."""
        total, decode = Counter[str](), self._decode
        for segment in self.segments:
            if name not in segment.tallies:
                sums = counted(of(decode(entry.thing)) for entry in self.numbered(segment))
                segment.tallies = dict([*segment.tallies.items(), (name, sums)][-_TALLIES:])
            total.update(segment.tallies[name])
        for key, thing in self._fetched():  # it may have changed since
            total.update(counted([of(thing)]))
            total.subtract(counted([of(decode(self._loaded_from[key][1].thing))]))
        return total

    def _fetched(self) -> list[tuple[str, T]]:
        """A copy: a reader in another thread may fetch more meanwhile."""
        return list(self.loaded.items())

    def settle(self, beside: dict[str, tuple[Beside, ...]]) -> tuple[dict[str, tuple[int, T]], list[Beside]]:
        """Evict what was fetched: (number and thing of those that changed, which are no longer here; what was restored
        for the others). `beside`: what the world has beside each now.
        """
        changed: dict[str, tuple[int, T]] = {}
        restored: list[Beside] = []
        for key, thing in self.loaded.items():
            segment, entry = self._loaded_from[key]
            if encode(thing) == bytes(entry.thing) and set(beside.get(key, ())) == set(entry.beside):
                restored += entry.beside
            else:
                changed[key] = entry.number, thing
                _leave(segment, key)
        self.loaded.clear()
        self._loaded_from.clear()
        return changed, restored

    def add(self, entries: Iterable[Entry]) -> None:
        """Put these into segments; the last one is filled first."""
        new = list(entries)
        if not new:
            return
        if self.segments and self.segments[-1].entries < SIZE:
            last = self.segments.pop()
            new += self.numbered(last)
            self.made.pop(last.digest, None)
            self._open.pop(last.digest, None)
        new.sort(key=lambda entry: entry.number)
        for begin in range(0, len(new), SIZE):
            segment, content = segment_of(new[begin : begin + SIZE])
            self.segments.append(segment)
            self.made[segment.digest] = content

    def _opened(self, segment: Segment) -> tuple[list[Entry], dict[str, list[Entry]]]:
        opened = self._open.get(segment.digest)
        if opened is None:
            entries = _entries(zlib.decompress(self.content(segment)))
            by_word: dict[str, list[Entry]] = {}
            for entry in entries:
                for word in entry.words:
                    by_word.setdefault(word, []).append(entry)
            for digest in list(self._open)[: 1 - _OPEN]:  # a copy: another thread may open one too
                self._open.pop(digest, None)
            opened = self._open[segment.digest] = entries, by_word
        return opened


def _leave(segment: Segment, key: str) -> None:
    segment.gone = {*segment.gone, key}
    segment.tallies = {}


class SegmentedInventory(Inventory[T]):
    """An inventory of which most is in segments."""

    def __init__(
        self,
        memory: dict[str, T],
        open_ids: Iterable[str],
        numbers: dict[str, int],
        cold: Cold[T],
        belongs: Callable[[T | Brief], bool] | None = None,
    ) -> None:
        """`numbers`: the place of each in memory, in order of first sight. `belongs`: false for what is not there."""
        super().__init__(memory, open_ids)
        self.numbers = numbers
        self.cold = cold
        self._belongs = belongs
        self._next = 1 + max((*list(numbers.values())[-1:], *(segment.last for segment in cold.segments)), default=-1)

    def __setitem__(self, key: str, thing: T) -> None:
        if key not in self.memory:
            if self.cold.find(key) is not None:
                self.cold.loaded[key] = thing
                return
            self.numbers[key] = self._next
            self._next += 1
        self.memory[key] = thing

    def __delitem__(self, key: str) -> None:
        if key in self.memory:
            del self.memory[key], self.numbers[key]
        elif not self.cold.drop(key):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self.memory) + len(self.cold) if self._belongs is None else sum(1 for _ in self.ids())

    def ended(self, may_matter: Callable[[Brief], bool]) -> list[T]:
        return self._with_fetched(may_matter, self.open_ids)

    def raced(self, race: str) -> list[T]:
        self.cold.wake(race)
        return [thing for thing in self.in_memory() if race_of(thing) == race]

    def in_memory(self) -> list[T]:
        return self._with_fetched(lambda _: False, {})

    def part(self, belongs: Callable[[T | Brief], bool]) -> "SegmentedInventory[T]":
        """As of every inventory; what is fetched from either is the same object."""
        things = {key: thing for key, thing in self.memory.items() if belongs(thing)}
        numbers = {key: self.numbers[key] for key in things}
        open_ids = (key for key in self.open_ids if belongs(self[key]))
        return SegmentedInventory(things, open_ids, numbers, self.cold, belongs)

    def newest(self) -> Iterator[T]:
        return map(self.__getitem__, self.newest_ids())

    def newest_ids(self) -> Iterator[str]:
        return self._in_order(-1)

    def all(self) -> Iterator[T]:
        return map(self.__getitem__, self.ids())

    def ids(self) -> Iterator[str]:
        return self._in_order(1)

    def sums(self, name: str, of: Callable[[T], Counted]) -> Counter[str]:
        return counted(map(of, self.memory.values())) + self.cold.tally(name, of)

    def _fetch(self, key: str) -> T | None:
        thing = self.cold.find(key)
        return thing if thing is None or self._belongs is None or self._belongs(thing) else None

    def _with_fetched(self, matters: Callable[[Brief], bool], without: Mapping[str, None]) -> list[T]:
        """The things in memory, with those fetched and those of the rest that matter, in order."""
        belongs = self._belongs
        fetched = [
            entry
            for entry in self.cold.ended(matters)
            if entry[1] not in without and (belongs is None or belongs(entry[2]))
        ]
        if not fetched:
            return [thing for key, thing in self.memory.items() if key not in without]
        here = ((self.numbers[key], key, thing) for key, thing in self.memory.items() if key not in without)
        return [thing for _, _, thing in merge(here, sorted(fetched, key=_NUMBER), key=_NUMBER)]

    def _in_order(self, sign: int) -> Iterator[str]:
        """The ids by number, or with -1 backwards; a segment is read when its first number is due."""
        memory = self.memory if sign > 0 else reversed(self.memory)
        here = ((sign * self.numbers[key], key) for key in memory)
        return (key for _, key in merge(here, *(self._places(segment, sign) for segment in self.cold.segments)) if key)

    def _places(self, segment: Segment, sign: int) -> Iterator[tuple[int, str]]:
        """The numbers and ids of a segment; the first number comes once more before them, without an id and unread."""
        yield sign * (segment.first if sign > 0 else segment.last), ""
        for entry in self.cold.numbered(segment)[::sign]:
            if self._belongs is None or self._belongs(self.cold.loaded.get(entry.key) or entry.brief):
                yield sign * entry.number, entry.key
