"""Keeps the live world up to date in a process that records nothing: a thread that polls the record."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.events.clock import Clock
from steno.events.errors import RecordReplaced, reported
from steno.events.store.record import Record
from steno.events.store.store import Where

LOOK: Final = 0.01  # seconds between looks at the record
_AGAIN: Final = 1.0  # seconds before a record that could not be read is tried again

_log = logging.getLogger("steno.feed")


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
            except RecordReplaced as replaced:
                self._tell(str(replaced))
                self.over = True
                self._ended()
                self._stopping.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, the service reports it and retries
                self._tell(reported(error))
                self._stopping.wait(_AGAIN)

    def _follow(self) -> None:
        with Record.open(self._path, clock=self._clock, shapes=READINGS.shape) as record:
            if self._live.head is not None:
                record.expect(self._live.head)
            record.head()
            self._live.open(record)
            while True:
                self._catch_up(record)
                self.trouble = None
                if self._stopping.wait(LOOK):
                    return

    def _catch_up(self, record: Record) -> None:
        if self._live.is_ready(0) and record.head().position == self._live.position:
            self._live.looked()
        else:
            self._live.catch_up(self._go_on)

    def _go_on(self, _done: int, _total: int) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _tell(self, trouble: str) -> None:
        if self.trouble != trouble and not self._stopping.is_set():
            _log.error("%s", trouble)
        self.trouble = trouble


class _Stopped(Exception):
    """The service ends during the first reading of the record."""
