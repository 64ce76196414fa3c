"""A run's output, passed on as it comes: the provider blocks, so each stream has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from events.clock import SECOND

if TYPE_CHECKING:
    from engine.fold.run import Run
    from events.clock import Clock
    from projections.api.service import Service

AHEAD = 16
"""Pieces that are read before the client has taken them; the provider waits then."""
_LOOK = 0.5
"""Seconds between looks whether a client that takes nothing is still there."""
_log = logging.getLogger(__name__)


class Left(Exception):
    """Nobody listens any more."""


class Listening:
    """A clock whose sleep ends when nobody listens: what waits by it stops asking.

    Raises:
        Left: from `sleep`.
    """

    def __init__(self, clock: Clock, gone: threading.Event) -> None:
        self._clock = clock
        self._gone = gone

    def now(self) -> int:
        """The present moment."""
        return self._clock.now()

    def sleep(self, duration: int) -> None:
        """Wait, or leave."""
        if self._gone.wait(max(0, duration) / SECOND):
            raise Left


class Output:
    """The pieces of one run's output, for one client. `begin`, then iterate; `end` whatever happened."""

    def __init__(self, service: Service, run: Run, *, follow: bool) -> None:
        self._service = service
        self._run = run
        self._follow = follow
        self._loop = asyncio.get_running_loop()
        self._gone = threading.Event()
        self._room = threading.Semaphore(AHEAD)
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._first: bytes | None = None

    async def begin(self) -> None:
        """Start, and wait for the first piece or the end.

        Raises:
            RunNotFound, ProviderUnreachable, ProviderRefused, ProviderError, Conflict: there is no output to be had.
        """
        threading.Thread(target=self._work, name="steno-output", daemon=True).start()
        self._first = await self._next()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            piece = self._first
            while piece is not None:
                yield piece
                piece = await self._next()
        finally:
            self.end()

    def end(self) -> None:
        """Nobody listens any more: the thread ends at its next wait or piece."""
        self._gone.set()

    async def _next(self) -> bytes | None:
        piece = await self._pieces.get()
        if isinstance(piece, Exception):
            raise piece
        self._room.release()
        return piece

    def _work(self) -> None:
        end: Exception | None = None
        clock = Listening(self._service.clock, self._gone)
        try:
            for piece in self._service.outside.logs(self._run, follow=self._follow, clock=clock):
                while not self._room.acquire(timeout=_LOOK):
                    if self._gone.is_set():
                        return
                self._give(piece)
        except Left:
            return
        except Exception as error:  # noqa: BLE001 - told to whoever reads
            end = error
        self._give(end)

    def _give(self, piece: bytes | Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: the server has ended
            self._gone.set()
