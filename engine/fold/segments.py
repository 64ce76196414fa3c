"""Runs and machines that are over and were not seen for long, out of the world's way: encoded, in segments that never
change, each decoded when something in it is looked at. The world keeps a row for each segment.
"""

import hashlib
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm

T = TypeVar("T", bound=Run | Vm)

SIZE: Final = 4_000  # things in a full segment
_OPEN: Final = 4  # segments whose content stays decoded
_TALLIES: Final = 8  # tallies that a segment keeps

Counted = tuple[str, int] | None  # what a run or machine adds to which number of a tally


class Brief(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a run or machine that is over without decoding it. Of several: the latest of each kind."""

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
    said = thing.said
    return Brief(
        thing.archive,
        thing.hidden,
        max((thing.last_position, *(step.position for step in steps))),
        max((*moments, *(step.at for step in steps))),
        thing.unserved,
        said is not None and not (said.over or said.ended),
    )


class Beside(msgspec.Struct, frozen=True, array_like=True):
    """What the world keeps about a run or machine elsewhere."""

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
        return {self.key, *(one.key for one in self.beside)} | ({self.word} if self.word is not None else set())


class Segment(msgspec.Struct, kw_only=True):
    digest: str  # SHA-256 of its content
    entries: int
    first: int  # the least of its numbers
    last: int
    words: memoryview  # the CRC-32 of all its words, in order
    latest: tuple[Brief, ...]  # one for each kind of brief
    gone: set[str] = set()  # ids of those that changed since: no longer here
    tallies: dict[str, dict[str, int]] = {}  # of all of them; see `tally_of`

    def may_have(self, word: str) -> bool:
        wanted, known = zlib.crc32(word.encode()), self.words.cast("I")
        place = bisect_left(known, wanted)
        return place < len(known) and known[place] == wanted


_entries: Final = msgspec.msgpack.Decoder(list[Entry]).decode
encode: Final = msgspec.msgpack.Encoder().encode


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
    """The segments of the runs, or of the machines, of one world, and what was looked at in them."""

    def __init__(
        self,
        segments: list[Segment],
        read: Callable[[Segment], bytes],
        decode: Callable[[msgspec.Raw], T],
        restore: Callable[[Beside], None],
    ) -> None:
        """`read`: the content of a segment that was not made here; `restore`: puts back what was kept beside a thing
        that is looked at.
        """
        self.segments = segments
        self.made: dict[str, bytes] = {}  # the contents of segments that were made here, by digest
        self.loaded: dict[str, T] = {}  # what was looked at, by id
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

    def wake(self, word: str | None) -> None:
        """Look at everything that this word finds."""
        if word is None:  # a dict may be asked for it, and has it not
            return
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
            self._loaded_from[entry.key] = segment, entry
            self.loaded[entry.key] = thing
            for one in entry.beside:
                self._restore(one)
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
        """What is there still, in order of numbers."""
        return [entry for entry in self._opened(segment)[0] if entry.key not in segment.gone]

    def some(self, matters: Callable[[Brief], bool]) -> Iterator[tuple[int, T]]:
        """(number, thing) of what was looked at, and of those of which the brief matters. A later `at` or `position`
        must not make it matter less.
        """
        for segment in self.segments:
            if any(map(matters, segment.latest)):
                for entry in self.numbered(segment):
                    if matters(entry.brief):
                        self.load(segment, entry)
        yield from ((self._loaded_from[key][1].number, thing) for key, thing in self._looked_at())

    def tally(self, name: str, of: Callable[[T], Counted]) -> Counter[str]:
        """See `tally_of`."""
        total, decode = Counter[str](), self._decode
        for segment in self.segments:
            if name not in segment.tallies:
                found = counted(of(decode(entry.thing)) for entry in self.numbered(segment))
                segment.tallies = dict([*segment.tallies.items(), (name, found)][-_TALLIES:])
            total.update(segment.tallies[name])
        for key, thing in self._looked_at():  # it may have changed since
            total.update(counted([of(thing)]))
            total.subtract(counted([of(decode(self._loaded_from[key][1].thing))]))
        return total

    def _looked_at(self) -> list[tuple[str, T]]:
        """At once: a reader in another thread may look at more meanwhile."""
        return list(self.loaded.items())

    def settle(self, beside: dict[str, tuple[Beside, ...]]) -> tuple[dict[str, tuple[int, T]], list[Beside]]:
        """Take leave of what was looked at: (number and thing of those that changed, which are no longer here; what was
        restored for the others). `beside`: what the world has beside each now.
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
        found = self._open.get(segment.digest)
        if found is None:
            entries = _entries(zlib.decompress(self.content(segment)))
            by_word: dict[str, list[Entry]] = {}
            for entry in entries:
                for word in entry.words:
                    by_word.setdefault(word, []).append(entry)
            while len(self._open) >= _OPEN:
                self._open.pop(next(iter(self._open)), None)
            found = self._open[segment.digest] = entries, by_word
        return found


def counted(each: Iterable[Counted]) -> Counter[str]:
    found = Counter[str]()
    for one in each:
        if one is not None:
            found[one[0]] += one[1]
    return found


def _leave(segment: Segment, key: str) -> None:
    segment.gone = {*segment.gone, key}
    segment.tallies = {}
