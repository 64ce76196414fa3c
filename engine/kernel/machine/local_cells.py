"""Cells that are processes of this machine, for one's own code: no wall is around them, and signals stop them, so that
their times do not rank. Each is a session of its own, which is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from . import clock
from .cells import Cell, Cells
from .exchange import SHARED, SHELL

_LIMITS = f"ulimit -c 0; ulimit -f {1 << 21}; "  # no core files; the largest file in POSIX's blocks of 512 bytes


class LocalCells(Cells):
    ranks = False

    def __init__(self, folder: Path) -> None:
        """`folder`: empty, and nobody else's."""
        super().__init__()
        self.cpus = len(os.sched_getaffinity(0))
        self.python_path = str(Path(np.__file__).parents[1])
        self._folder = folder

    def take(self) -> Cell:
        return _Process(self, Path(tempfile.mkdtemp(dir=self._folder)))

    def give_back(self, cell: Cell) -> None:
        cell.close()


class _Process(Cell):
    coarse = "signals stopped its processes"

    def __init__(self, cells: Cells, room: Path) -> None:
        super().__init__(cells, SHARED / f"steno-here-{secrets.token_hex(16)}")
        self._room = room
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITS + SHELL, self.exchange.folder],
            cwd=room,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("STENO_")},
        )
        self.freezer = _Signals(self._process.pid)

    def status(self, wait: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(wait)
        return None

    def close(self) -> None:
        self.kill()
        self._process.wait()
        super().close()
        shutil.rmtree(self._room, ignore_errors=True)


class _Signals(clock.Freezer):
    """Stops the session of a program by SIGSTOP."""

    def __init__(self, session: int) -> None:
        self._session = session

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def freeze(self) -> bool:
        until = time.monotonic() + clock.FREEZES
        self._send(signal.SIGSTOP)
        while time.monotonic() < until:
            try:
                stat = Path(f"/proc/{self._session}/stat").read_text("utf-8", "replace")
            except OSError:
                return True  # it is gone
            if stat.rpartition(")")[2].split()[0] in "TtZX":
                return True
        return False

    def _send(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._session, number)
