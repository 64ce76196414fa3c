"""Containers started ahead of need, each for one program: a start takes 150 ms, a program in a started one 30 ms."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from .container import Container
from .daemon import SandboxUnavailable

_STEP = 5.0  # seconds that a start or a removal takes at most, on a busy machine
_PAUSE = 2.0  # seconds until a failed start or removal is tried again


class ContainerPool:
    """A thread starts containers and removes used containers. It takes a core for a moment, which would slow the
    programs: so while one runs it starts only what is needed next, and from `quiet` to the next `take` or `give_back`,
    nothing.
    """

    def __init__(self, make: Callable[[], Container], remove: Callable[[str], None], size: int) -> None:
        """`make`: a container that is to be started; `remove`: a container by its name, though it never started."""
        self._make, self._remove, self._size = make, remove, size
        self.ready = deque[Container]()
        self._used = dict[str, Container]()
        self._running = self._waiting = 0  # programs; calls of `take` that wait
        self._busy = self._quiet = self._closed = False
        self.trouble: Exception | None = None  # of the last step, until the next is due
        self._change, self._closing = threading.Condition(), threading.Lock()
        self._thread = threading.Thread(target=self._work, name="steno-containers", daemon=True)
        self._thread.start()

    def take(self) -> Container:
        """A container that nothing ran in; `give_back` must follow."""
        self._make_room()
        with self._change:
            self._running += 1
            self._waiting += 1
            self._wake()
            self._change.wait_for(lambda: self.ready or self.trouble or self._closed)
            self._waiting -= 1
            self._change.notify_all()
            if self.ready and not self._closed:
                return self.ready.popleft()
            self._running -= 1
            raise self.trouble or SandboxUnavailable("The sandbox was closed.")

    def give_back(self, used: Container) -> None:
        """Remove a used container, soon."""
        with self._change:
            self._running -= 1
            self._used[used.name] = used
            self._wake()

    def quiet(self) -> None:
        """Returns when used containers are removed, with every process left in them, and the thread is idle."""
        with self._change:
            self._wake()
            self._change.wait_for(lambda: not self._busy and (self.trouble or not self._due()), _STEP)
            self._quiet = True

    def close(self) -> None:
        """Remove all containers, and wait for that; those of an engine that is away are left to the next listener."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()
        self._used |= {container.name: container for container in self.ready}
        self.ready.clear()
        self._make_room()
        for name in self._used:
            with suppress(SandboxUnavailable):
                self._remove(name)

    def _wake(self) -> None:
        """Work at once, though the last step failed."""
        self._quiet, self.trouble = False, None
        self._change.notify_all()

    def _due(self) -> bool:
        return not self._quiet and (bool(self._used) or self._lacks())

    def _lacks(self) -> bool:
        ahead = min(1, self._size) if self._running else self._size
        return len(self.ready) < max(ahead, self._waiting)

    def _work(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                pause = _PAUSE if self.trouble else None
                self._change.wait_for(lambda: self._closed or (self._due() and not self.trouble), pause)
                self.trouble = None
                if self._closed:
                    return
                if not self._due():
                    continue
                self._busy = True
                name = None if self._waiting and self._lacks() else next(iter(self._used), None)
            try:
                if name is None:
                    self._start()
                else:
                    self._make_room()
                    self._remove(name)
                    del self._used[name]
            except Exception as error:  # noqa: BLE001 - `take` raises it
                with self._change:
                    self.trouble = error

    def _start(self) -> None:
        container = self._make()
        try:
            container.start()
        except BaseException:  # the engine may have made it and not said so
            self._used[container.name] = container
            raise
        self.ready.append(container)

    def _make_room(self) -> None:
        """Give back the memory of used files; a gigabyte takes a while, for which no caller of `kill` waits."""
        with self._closing:
            for used in tuple(self._used.values()):
                used.close()
