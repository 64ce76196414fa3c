"""Keeps the projections of a record caught up while it grows: a thread of the service."""

import threading
from pathlib import Path

import msgspec

from engine.readings.shapes import shape_of
from events.clock import SECOND, Clock
from events.record import Record
from projections.projector import caught_up


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the projections are behind the record."""

    positions: int
    seconds: float
    """The age of the oldest event they do not show yet; 0 where they show all."""


class Projector:
    """One thread; `wake` it when the record has grown."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._position = 0

    @property
    def position(self) -> int:
        """The last position the projections show."""
        return self._position

    @property
    def lag(self) -> Lag:
        """How far they are behind."""
        with Record.open(self._path, clock=self._clock, check=False, shapes=shape_of) as record:
            head = record.head().position
            behind = max(0, head - self._position)
            if not behind:
                return Lag(positions=0, seconds=0.0)
            first = next(iter(record.read(after=self._position, limit=1)), None)
            since = self._clock.now() if first is None else first.recorded_at
            return Lag(positions=behind, seconds=max(0, self._clock.now() - since) / SECOND)

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="projector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is under way is finished first."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """Say that the record has grown; returns at once."""
        self._woken.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with Record.open(self._path, clock=self._clock, shapes=shape_of) as record, caught_up(record) as store:
                checkpoint = store.checkpoint()
                self._position = 0 if checkpoint is None else checkpoint.position
            self._woken.wait(0.5)
            self._woken.clear()
