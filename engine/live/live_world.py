"""The live world: a process folds each event of a record once, here, and publishes what changed.

One thread owns it and calls `catch_up`. Other threads read under `reading`, which waits for one batch of events at
most. Subscribers are called in the owner's thread and must not wait; if one fails, the fold goes on and the subscriber
catches up from the record.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.fold.snapshot import dump_in_memory, segments_of
from steno.engine.fold.snapshot_store import AT_START, EVERY, SnapshotStore
from steno.engine.rules.sets import ADOPTED
from steno.engine.state.changes import Change, Touched
from steno.engine.state.reading import Readings
from steno.engine.state.world import World
from steno.events.clock import EPOCH
from steno.events.poll import Poll
from steno.events.store.record import Head, Record, StreamOf

_log: Final = logging.getLogger("steno.fold")
BATCH: Final = 500  # positions folded between turns of subscribers and readers
RECENT: Final = 1_000
"""Positions before the head that an observer sees at the start: a client that reconnects after a restart needs them."""
_FIRST: Final = 20_000  # positions of the first fold between two reports of progress
LONG: Final = 50_000  # folds of more positions log their progress

T = TypeVar("T")
Progress = Callable[[int, int], None]  # called with (positions done, positions in all)


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of the positions after `after`, up to `until`."""

    after: int
    until: int
    changes: tuple[Change, ...]  # in order of their events


class Observer(Protocol):
    """Sees the world after each event, in the owner's thread: it computes and never waits."""

    def start(self, record: Record, state: World, position: int) -> None:
        """This world, which is at `position`, is shown from now on: the first, or another after a mistake."""

    def begin(self, after: int, until: int, *, more: bool) -> Sequence[int]:
        """The positions after `after`, up to `until`, are next; `more`: others follow. Returns, in order, the positions
        after which to call `reached`.
        """

    def changed(self, position: int, changes: tuple[Change, ...]) -> None:
        """The event at `position` is folded; not called for polls that only repeat the one before."""

    def reached(self, position: int) -> None:
        """The world is at `position`, one of those that `begin` asked for."""

    def end(self) -> None:
        """All of them are folded."""

    def failed(self, error: Exception) -> None:
        """The observer raised this, and is left out until it is given to `observe` again."""


class LiveWorld:
    """The world of one record at its head, or on its way there."""

    def __init__(self, readings: "Readings", record: "Record | None" = None, *, keep: bool = False) -> None:
        """`readings`: how each provider's answers are read. `record`: None: `open` gives it later. `keep`: start from
        the snapshot beside the record, and replace it now and then.
        """
        self._readings = readings
        self._keep = keep
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._fold: RecordFold | None = None
        self._position = 0
        self._record: Record | None = None
        self._snapshots: SnapshotStore | None = None
        self._observer: Observer | None = None
        self._started: World | None = None  # the world that the observer sees
        self._shown: int | None = None  # the last published position; None before the first change set
        self._looked_at = time.monotonic()
        self._subscribers: list[Callable[[ChangeSet], None]] = []
        self.head: Head | None = None  # where the record was last seen to end
        self.touched = Touched()  # for other threads: under `reading`
        self.nudge: Callable[[], None] = lambda: None
        """Call this from any thread after an append that the owner should see now; the owner may set it."""
        if record is not None:
            self.open(record)

    # -- the owner's thread

    def open(self, record: Record) -> None:
        """Follow this record from now on, from its snapshot if there is one; folds nothing yet."""
        self._record = record
        self._snapshots = SnapshotStore(record) if self._keep else None
        record.on_rollback.append(self._forget_items)
        self._load(record)

    def catch_up(self, progress: Progress | None = None) -> None:
        """Fold what is new in the record, and call subscribers.

        Raises:
            StenoError: the record cannot be read; the next call starts from the snapshot.
        """
        record = self.record
        if self._fold is None or (self._snapshots is not None and self._snapshots.stale):
            self._load(record)
        self.head = record.head()
        head = self.head.position
        self._fold_unseen(head, progress)
        state, position = self.state, self._position
        if self._observer is not None and self._started is not state:
            with self._lock:
                self._tell(self._observer, lambda observer: observer.start(record, state, position))
            self._started = state
        while self._position < head:
            until = min(head, self._position + BATCH)
            self._advance(until, more=until < head)
        self.looked()
        self._save(EVERY if self._ready.is_set() else AT_START)
        self._ready.set()

    def _save(self, every: int) -> None:
        snapshots, state = self._snapshots, self.state
        if snapshots is not None and snapshots.is_due(self._position, every):
            self._retire()
            with self._lock:  # readers look at what is over too
                world = dump_in_memory(state)
            snapshots.write(state.position, world, segments_of(state), every=every)

    def _retire(self) -> None:
        fold = self._fold
        if self._snapshots is not None and fold is not None:
            with self._lock:
                try:
                    fold.clear_lanes()
                    self._snapshots.retire(fold.world.state)
                except BaseException:
                    self._fold = None
                    raise

    @property
    def record(self) -> Record:
        if self._record is None:
            raise RuntimeError("the live world was not opened")
        return self._record

    @property
    def world(self) -> Fold:
        """For the owner's thread; others use `reading`. Raises what `catch_up` does if a fold was broken off."""
        if self._fold is None:
            self.catch_up()
        assert self._fold is not None  # noqa: S101 - `catch_up` made it
        return self._fold.world

    @property
    def state(self) -> World:
        """For the owner's thread; others use `reading`."""
        return self.world.state

    def stream_of(self, provider: str, poll: Poll) -> StreamOf:
        """Names the streams of a poll's items for its append, as `RecordFold.stream_of` does."""
        fold = self._fold
        assert fold is not None  # noqa: S101 - the owner has caught up
        return partial(fold.stream_of, provider, poll)

    def subscribe(self, subscriber: Callable[[ChangeSet], None]) -> None:
        """Call this with every change set, in the owner's thread."""
        self._subscribers.append(subscriber)

    def observe(self, observer: Observer | None) -> None:
        """Show this observer the world after each event, starting `RECENT` positions before the head."""
        self._observer, self._started = observer, None

    def looked(self) -> None:
        self._looked_at = time.monotonic()

    # -- any thread

    @property
    def position(self) -> int:
        return self._position

    @property
    def silence(self) -> float:
        """Seconds since the owner last looked at the record."""
        return time.monotonic() - self._looked_at

    def is_ready(self, timeout: float) -> bool:
        """True if the world has been at the record's head once; waits up to `timeout` seconds."""
        return self._ready.wait(timeout)

    @contextmanager
    def reading(self) -> "Iterator[World | None]":
        """The world between two answers; None: there is none yet. The fold waits meanwhile: for short looks only."""
        with self._lock:
            yield None if self._fold is None else self._fold.world.state

    # -- the fold

    def _forget_items(self) -> None:
        if self._fold is not None:
            self._fold.forget_items()

    def _load(self, record: Record) -> None:
        state = None if self._snapshots is None else self._snapshots.load()
        world = Fold(self._readings, ADOPTED, state, live=True)
        with self._lock:
            self._position = world.state.position
            self.touched = Touched(self._position)
            self._fold = RecordFold(record, world, self.touched)

    def _fold_unseen(self, head: int, progress: Progress | None) -> None:
        """Fold without publishing: at first all but the newest events, later what was published before."""
        begun, tenth = self._position, -1
        end = min(head, head - RECENT if self._shown is None else self._shown)
        while self._position < end:
            self._advance(min(end, self._position + _FIRST), published=False)
            self._retire()
            done, total = self._position - begun, head - begun
            if progress is not None:
                progress(done, total)
            if total >= LONG and 10 * done // total != tenth:
                tenth = 10 * done // total
                _log.info("reading the record: %d %%, %s of %s events", 100 * done // total, f"{done:,}", f"{total:,}")

    def _advance(self, until: int, *, published: bool = True, more: bool = True) -> None:
        """Fold one batch. A world that an exception leaves half-way is loaded again by the next `catch_up`."""
        fold, after, changes = self._fold, self._position, list[Change]()
        assert fold is not None  # noqa: S101 - of `catch_up`
        observer = self._observer if published and self._started is fold.world.state else None

        def each(position: int, new: tuple[Change, ...]) -> None:
            changes.extend(new)
            self.touched.note(position, new)
            self._tell(observer, lambda watcher: watcher.changed(position, new))

        with self._lock:
            try:
                for stop in self._tell(observer, lambda each: each.begin(after, until, more=more)) or ():
                    fold.run(Until(position=stop), each, repeats=False)
                    self._tell(observer, lambda each, at=stop: each.reached(at))  # type: ignore[misc]
                fold.run(Until(position=until), each, repeats=False)
            except BaseException:
                self._fold = None
                raise
            self._position = until
            self.touched.end(until)
            if (ours := fold.world.state.clocks.get(EPOCH >> 16)) is not None:
                fold.record.follow(ours.offset)
            self._tell(observer, lambda each: each.end())
        if published:
            self._shown, change_set = until, ChangeSet(after=after, until=until, changes=tuple(changes))
            for subscriber in self._subscribers:
                try:
                    subscriber(change_set)
                except Exception:  # noqa: BLE001 - whatever it is, the fold goes on
                    _log.exception("a subscriber failed at position %d", until)

    def _tell(self, observer: Observer | None, call: "Callable[[Observer], T]") -> "T | None":
        """Call an observer; after an exception it gets the error and is left out until it observes again."""
        if observer is None or observer is not self._observer:
            return None
        try:
            return call(observer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the fold goes on
            self._observer = None
            observer.failed(error)
            return None
