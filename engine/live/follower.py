"""Keeps the live world up to date in a process that records nothing: a thread that polls the record."""

import logging
import threading
from collections.abc import Callable
from itertools import count
from typing import Final

from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from events.clock import Clock
from events.errors import StenoError, reported
from events.store.record import Record
from events.store.store import Store, Where

LOOK: Final = 0.01  # seconds between looks at the record
_AGAIN: Final = 1.0  # seconds before a record that could not be read is tried again
_LOOK_AT_STORE: Final = 100  # looks at the record between two checks that the store is still the same

_log = logging.getLogger("steno.feed")


class Replaced(StenoError):
    """The record was replaced by another while it was served: restart the server."""

    def __init__(self, store: Store) -> None:
        super().__init__(f"The record {store} was replaced while it was served: restart the server.")


class Follower:
    """Owns a live world in a thread. `ended` is called there when the record was replaced and will never go on."""

    def __init__(self, path: Where, live: LiveWorld, clock: Clock, *, ended: Callable[[], None]) -> None:
        self.trouble: str | None = None
        """Why the record is not followed now; None: it is, or it is being read for the first time."""
        self.over = False  # True: it will never be followed again
        self._path = path
        self._live = live
        self._clock = clock
        self._ended = ended
        self._stopping = threading.Event()
        self._record_id: str | None = None
        self._mark: tuple[int, str] | None = None  # a position that was folded, and the chain's hash there
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the current batch."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except _Stopped:
                return
            except Replaced as replaced:
                self._tell(str(replaced))
                self.over = True
                self._ended()
                self._stopping.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, the service reports it and retries
                self._tell(reported(error))
                self._stopping.wait(_AGAIN)

    def _follow(self) -> None:
        with Record.open(self._path, clock=self._clock, shapes=READINGS.shape) as record:
            if self._record_id not in (None, record.id):
                raise Replaced(record.store)
            self._record_id = record.id
            self._expect_same(record)
            stamp = record.store.stamp()
            self._live.open(record)
            for looks in count(1):
                self._catch_up(record)
                self.trouble = None
                if self._stopping.wait(LOOK):
                    return
                if looks % _LOOK_AT_STORE == 0 and record.store.stamp() != stamp:
                    raise Replaced(record.store)

    def _catch_up(self, record: Record) -> None:
        if self._live.is_ready(0):
            if record.head().position == self._live.position:
                self._live.looked()
                return
            self._expect_same(record)
        self._live.catch_up(self._go_on)
        if after := self._live.position:
            self._mark = (after, _hash_at(record, after))

    def _expect_same(self, record: Record) -> None:
        if self._mark is not None and _hash_at(record, self._mark[0]) != self._mark[1]:
            raise Replaced(record.store)

    def _go_on(self, _done: int, _total: int) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _tell(self, trouble: str) -> None:
        if self.trouble != trouble and not self._stopping.is_set():
            _log.error("%s", trouble)
        self.trouble = trouble


class _Stopped(Exception):
    """The service ends during the first reading of the record."""


def _hash_at(record: Record, position: int) -> str:
    return "".join(one.hash for one in record.read(after=position - 1, until=position, limit=1))
