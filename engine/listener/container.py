"""A container, from its start to its removal: a cell for one program."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from steno.engine.kernel.machine.cells import Cell, Cells
from steno.engine.kernel.machine.clock import FREEZES, Freezer

from . import groups
from .daemon import Daemon, SandboxUnavailable

_OOM_NOTICE = 0.5  # seconds that the engine may take to notice that memory ran out
_LOOK = 0.003  # seconds
_ENGINE_LOOK = 1.0  # seconds between two looks whether the engine is there


class Container(Cell):
    def __init__(self, cells: Cells, daemon: Daemon, folder: Path, arguments: dict[str, Any]) -> None:
        """`folder`: shared with it; its name is the container's, so that one is found although the engine's
        answer was lost. `arguments`: of the SDK.
        """
        super().__init__(cells, folder)
        self._daemon, self._arguments = daemon, arguments
        self.name = f"steno-{folder.name}"
        self._killed = False  # by us
        self._looks, self._away = 0.0, False

    def start(self) -> None:
        self._id, self._pid = self._daemon.start(self.name, self._arguments)
        group = groups.freezer_of(self._pid, self._id)
        self.freezer = _Engine(self._daemon, self.name) if group is None else groups.ClockedGroup(group)
        self.coarse = "the container engine stopped its processes" if group is None else ""

    def status(self, wait: float) -> int | None:
        """Known a moment after the end. The engine reports death by signal n as 128 + n, as `exit(128 + n)`."""
        if self._killed:
            return 128 + signal.SIGKILL
        until = time.monotonic() + wait
        while (state := self._daemon.state(self.name))["Running"] and time.monotonic() < until:
            time.sleep(_LOOK)
        return None if state["Running"] else int(state["ExitCode"])

    def out_of_memory(self, status: int | None) -> bool:
        """By its control group while it runs, then by the engine, a moment later. The status proves nothing."""
        if (oom := groups.out_of_memory(self._pid, self._id)) is not None:
            return oom
        may_be = status == 128 + signal.SIGKILL and not self._killed
        until = time.monotonic() + (_OOM_NOTICE if may_be else 0)
        while not (killed := bool(self._daemon.state(self.name)["OOMKilled"])) and time.monotonic() < until:
            time.sleep(_LOOK)
        return killed

    def kill(self) -> None:
        """Where it can, without the engine, which may be away."""
        self._killed = True
        super().kill()

    def gone(self) -> bool:
        """Also where the engine is away: what runs there could not be removed."""
        if time.monotonic() > self._looks:
            self._looks = time.monotonic() + _ENGINE_LOOK
            self._away = not self._daemon.answers()
        return self._away or super().gone()

    def cpu_ms(self) -> float | None:
        return groups.cpu_ms(self._pid, self._id)


class _Engine(Freezer):
    """The container engine's own way: tens of milliseconds."""

    def __init__(self, daemon: Daemon, container: str) -> None:
        self._daemon, self._container = daemon, container
        self._frozen = False

    def kill(self) -> None:
        self._daemon.kill(self._container)

    def thaw(self) -> None:
        if self._frozen:
            self._daemon.pause(self._container, paused=False)
            self._frozen = False

    def freeze(self) -> bool:
        """A crowded machine's engine may give up (`unable to freeze`) where the next try succeeds. Raises its last
        refusal after `FREEZES`: the program is not to blame.
        """
        until = time.monotonic() + FREEZES
        while not self._frozen:
            try:
                self._daemon.pause(self._container, paused=True)
                self._frozen = True
            except SandboxUnavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK)  # each try takes the engine tens of milliseconds
        return True
