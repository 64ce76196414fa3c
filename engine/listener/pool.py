"""Containers started ahead of need, each for one program: a start takes 260 ms, a program in a started one 50 ms."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from .daemon import SandboxUnavailable

_BACK_OFF = 1.0  # seconds after a failure of the engine
_STEP = 5.0  # seconds that a start or a removal takes at most, on a busy machine


class ContainerPool:
    """A thread starts containers and removes used ones. It takes a core for a moment, which would show in the time of
    a program, so it pauses while a program is timed. One program is timed at a time.
    """

    def __init__(self, start: Callable[[], str], remove: Callable[[str], None], size: int) -> None:
        self._start, self._remove, self._size = start, remove, size
        self._ready: deque[str] = deque()
        self._taken: set[str] = set()
        self._used: deque[str] = deque()
        self._paused = self._busy = self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="steno-containers", daemon=True)
        self._thread.start()

    def take(self) -> str:
        """A container that nothing ran in; `give_back` must follow. Ends a pause."""
        with self._change:
            if self._closed:
                raise SandboxUnavailable("The sandbox was closed.")
            self._resume()
            found = self._ready.popleft() if self._ready else None
        found = found or self._start()
        with self._change:
            self._taken.add(found)
        return found

    def give_back(self, container: str) -> None:
        """Remove a used container, soon. Ends a pause."""
        with self._change:
            self._taken.discard(container)
            self._used.append(container)
            self._resume()

    def taken(self) -> tuple[str, ...]:
        """The containers that programs run in."""
        with self._change:
            return tuple(self._taken)

    def pause(self) -> None:
        """Start and remove nothing until the next `take` or `give_back`; returns when the thread is idle."""
        with self._change:
            self._paused = True
            self._change.wait_for(lambda: not self._busy, _STEP)

    def close(self) -> None:
        """Remove all containers, and wait for that."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()
        for container in (*self._used, *self._ready):
            self._remove(container)

    def _resume(self) -> None:
        self._paused = False
        self._change.notify_all()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(self._has_work)
                if self._closed:
                    return
                used = self._used.popleft() if self._used else None
                self._busy = True
            failed, started = False, None
            try:
                if used is None:
                    started = self._start()
                else:
                    self._remove(used)
            except SandboxUnavailable:  # the next `take` says why
                failed = True
            with self._change:
                self._busy = False
                if started is not None:
                    self._ready.append(started)
                if failed and used is not None:
                    self._used.append(used)
                self._change.notify_all()
                if failed:
                    self._change.wait_for(lambda: self._closed, _BACK_OFF)

    def _has_work(self) -> bool:
        return self._closed or (not self._paused and (bool(self._used) or len(self._ready) < self._size))
