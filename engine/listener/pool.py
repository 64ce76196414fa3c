"""Containers started ahead of need, each for one program: a start takes 150 ms, a program in a started one 30 ms."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from .daemon import SandboxUnavailable, StartedContainer

_BACK_OFF = 1.0  # seconds after a failure of the engine
_STEP = 5.0  # seconds that a start or a removal takes at most, on a busy machine


class ContainerPool:
    """A thread starts containers and removes used ones. It takes a core for a moment, which would slow the programs: so
    while one runs it starts only what is needed next, and while one is timed, nothing. One program is timed at a time.
    """

    def __init__(
        self,
        start: Callable[[], StartedContainer],
        remove: Callable[[str], None],
        there: Callable[[], Iterable[str]],
        size: int,
    ) -> None:
        """`there`: the ids of all containers that `start` ever made and the engine still has."""
        self._start, self._remove, self._there, self.size = start, remove, there, size
        self._ready: deque[StartedContainer] = deque()
        self._taken: set[str] = set()  # ids
        self._used: deque[str] = deque()  # ids
        self._taking = 0  # containers that `take` starts itself
        self._paused = self._busy = self._closed = False
        self._strays = False  # a start failed: the engine may have made a container and not told us
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="steno-containers", daemon=True)
        self._thread.start()

    def take(self) -> StartedContainer:
        """A container that nothing ran in; `give_back` must follow. Ends a pause."""
        with self._change:
            if self._closed:
                raise SandboxUnavailable("The sandbox was closed.")
            self._resume()
            found = self._ready.popleft() if self._ready else None
            if found is not None:
                self._taken.add(found.container)
                return found
            self._taking += 1
        try:
            found = self._start()
        except BaseException:
            with self._change:
                self._taking -= 1
                self._strays = True
                self._change.notify_all()
            raise
        with self._change:
            self._taking -= 1
            self._taken.add(found.container)
            self._change.notify_all()  # strays may be waiting for the last start to end
        return found

    def give_back(self, used: StartedContainer) -> None:
        """Remove a used container, soon. Ends a pause."""
        used.streams.close()
        with self._change:
            self._taken.discard(used.container)
            self._used.append(used.container)
            self._resume()

    def taken(self) -> tuple[str, ...]:
        """The ids of the containers that programs run in."""
        with self._change:
            return tuple(self._taken)

    def pause(self) -> None:
        """Start nothing until the next `take` or `give_back`; returns when used containers are removed, with whatever
        still ran in them, and the thread is idle.
        """
        with self._change:
            self._paused = True
            self._change.wait_for(lambda: not self._busy and not self._used, _STEP)

    def close(self) -> None:
        """Remove all containers, and wait for that; those of an engine that is away are left to the next listener."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()
        for ready in self._ready:
            ready.streams.close()
        with suppress(SandboxUnavailable):
            for container in (*self._used, *(ready.container for ready in self._ready)):
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
                looks = used is None and self._strays and not self._taking
                self._busy = True
            failed, started, there = False, None, set[str]()
            try:
                if used is not None:
                    self._remove(used)
                elif looks:
                    there = set(self._there())
                else:
                    started = self._start()
            except SandboxUnavailable:  # the next `take` says why
                failed = True
            with self._change:
                self._busy = False
                if started is not None:
                    self._ready.append(started)
                if failed and used is not None:
                    self._used.append(used)
                if failed and used is None:
                    self._strays = True
                elif looks and not self._taking:  # else it would take one for a stray that is just being started
                    self._used.extend(there - self._taken - {ready.container for ready in self._ready})
                    self._strays = False
                self._change.notify_all()
                if failed:
                    self._change.wait_for(lambda: self._closed, _BACK_OFF)

    def _has_work(self) -> bool:
        if self._closed or self._used:
            return True
        if self._strays and not self._taking and not self._paused:
            return True
        wanted = min(1, self.size) if self._taken or self._taking else self.size
        return not self._paused and len(self._ready) < wanted
