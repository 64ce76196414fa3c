"""The judge's clock: `python3 clock.py GROUP FIFO SECONDS`, a process of its own with real-time priority, so that no
other work and no other thread of the judge comes between a thaw and the reading of the clock. It prints the result of
`batch`. Needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

FREEZES = 2.0  # seconds for a control group to freeze; a slower group is killed
_PAUSE = 20e-6  # seconds between two looks: a process that is to freeze may need this processor to do so
_LOOK = 50  # milliseconds between two checks of the time
_PRIORITY = 10  # of SCHED_FIFO
_FAVOURED = -20  # nice, where real-time priority is refused


class Freezer(ABC):
    """Freezes, thaws and kills all processes of one program."""

    @abstractmethod
    def thaw(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def freeze(self) -> bool:
        """Freeze, and wait until everything is frozen; False: not within `FREEZES`."""

    def batch(self, answers: Path, limit: float, gone: Callable[[], bool] = lambda: False) -> dict[str, int | None]:
        """Time a batch that is done at a byte in the FIFO: the clock is read before the thaw, and after everything is
        known to be frozen. `gone`: True if the program has ended; called now and then.

        Returns:
            Nanoseconds: `began`; `came`, None if no byte came in time; `frozen`, None if it does not freeze.
        """
        done = os.open(answers, os.O_RDONLY | os.O_NONBLOCK)
        try:
            poll, events = select.poll(), list[tuple[int, int]]()
            poll.register(done, select.POLLIN)
            began = time.monotonic_ns()
            self.thaw()
            while not events and not gone() and time.monotonic_ns() < began + limit * 1e9:
                events = poll.poll(_LOOK)
            came = any(event & select.POLLIN for _, event in events)  # else the program has ended
            at = time.monotonic_ns()
            frozen = self.freeze()
            return {"began": began, "came": at if came else None, "frozen": time.monotonic_ns() if frozen else None}
        finally:
            os.close(done)


class Group(Freezer):
    """The freezer of one control group, of cgroup v1 (`freezer.state`) or v2 (`cgroup.freeze`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / "freezer.state"
        self._unified = not self._state.exists()
        self._events = folder / "cgroup.events"
        if self._unified:
            self._state = folder / "cgroup.freeze"

    def thaw(self) -> None:
        with contextlib.suppress(OSError):  # the group is gone
            self._state.write_text("0" if self._unified else "THAWED", "ascii")

    def freeze(self) -> bool:
        until = time.monotonic() + FREEZES
        with contextlib.suppress(OSError):
            while time.monotonic() < until:
                self._state.write_text("1" if self._unified else "FROZEN", "ascii")
                if self.frozen:
                    return True
                time.sleep(_PAUSE)
        return False

    def kill(self) -> None:
        """Kill every process of it, with the container's init."""
        self.thaw()
        with contextlib.suppress(OSError):
            for pid in (self.folder / "cgroup.procs").read_text("ascii").split():
                os.kill(int(pid), signal.SIGKILL)

    @property
    def frozen(self) -> bool:
        if self._unified:
            return "frozen 1" in self._events.read_text("ascii")
        return self._state.read_text("ascii").strip() == "FROZEN"


def hurry() -> None:
    """Real-time priority for this process; nice -20 where the system refuses it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _FAVOURED)


def main(group: str, fifo: str, limit: str) -> None:
    hurry()
    print(json.dumps(Group(Path(group)).batch(Path(fifo), float(limit))))  # noqa: T201 - that is its answer


if __name__ == "__main__":
    main(*sys.argv[1:])
