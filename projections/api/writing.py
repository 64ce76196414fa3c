"""The writer of a service: one thread with one open record, so that commands are appended one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from engine.act.journal import Journal
from engine.providers.readings import READINGS
from events.store.record import Record
from events.store.store import Where

if TYPE_CHECKING:
    from events.clock import Clock

_T = TypeVar("_T")


class Writer:
    """Appends for one service. The record is opened at the first command."""

    def __init__(self, path: Where, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="steno-commands")
        self._journal: Journal | None = None

    async def do(self, work: Callable[[Journal], _T]) -> _T:
        """The result of `work`, called in the writer's thread after all earlier commands.

        Raises:
            RecordLocked, RecordNotWritable and what else opening a record raises.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    def close(self) -> None:
        """Finish what is under way, and close the record."""
        self._thread.submit(self._close_record).result()
        self._thread.shutdown()

    def _do(self, work: Callable[[Journal], _T]) -> _T:
        if self._journal is None:
            record = Record.open(self._path, write=True, shapes=READINGS.shape, clock=self._clock)
            self._journal = Journal(record)
        return work(self._journal)

    def _close_record(self) -> None:
        if self._journal is not None:
            self._journal.record.close()
            self._journal = None
