"""The control groups of a container, as this machine shows them: of cgroup v1, or v2 where the name of a file is
another. `pid`: of the container's init.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from steno.engine.kernel.machine import clock

_ROOT = Path("/sys/fs/cgroup")
_LOOK = 50  # milliseconds between two looks whether a program has ended


class ClockedGroup(clock.Group):
    """A control group whose batches are timed by a process of their own."""

    def batch(self, answers: Path, limit: float, gone: Callable[[], bool] = lambda: False) -> dict[str, int | None]:
        argv = [sys.executable, "-I", "-S", clock.__file__, str(self.folder), str(answers), str(limit)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            while not poll.poll(_LOOK):
                if gone():
                    process.kill()
            return dict(json.loads(process.stdout.read() or b"{}"))


def freezer_of(pid: int, container: str) -> Path | None:
    """The folder of its freezer, if this process may use it."""
    file = _file(pid, container, "freezer", "freezer.state", "cgroup.freeze")
    return file.parent if file is not None and os.access(file, os.W_OK) else None


def cpu_ms(pid: int, container: str) -> float | None:
    """Milliseconds that processors have worked for the container; None: not shown here."""
    file = _file(pid, container, "cpuacct", "cpuacct.usage", "cpu.stat")
    with suppress(OSError):
        if file is not None:
            words = file.read_text("ascii").split()  # nanoseconds, or `usage_usec` microseconds …
            return int(words[0]) / 1e6 if file.name == "cpuacct.usage" else int(words[1]) / 1e3
    return None


def out_of_memory(pid: int, container: str) -> bool | None:
    """True if the kernel ended a process of the container for want of memory; None: not shown here, or it has ended."""
    file = _file(pid, container, "memory", "memory.oom_control", "memory.events")
    with suppress(OSError):
        if file is not None:
            return "oom_kill 0\n" not in file.read_text("ascii")
    return None


def thaw(pid: int, container: str) -> None:
    """Let a container go on that may be frozen: it could not be killed."""
    if (folder := freezer_of(pid, container)) is not None:
        clock.Group(folder).thaw()


def _file(pid: int, container: str, controller: str, *names: str) -> Path | None:
    """The first of these files in its group of a controller; None where this machine does not show it."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text("ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if container in path and (not controllers or controller in controllers.split(",")):
                folder = _ROOT / (controller if controllers else "") / path.lstrip("/")
                for file in (folder / name for name in names):
                    if file.exists():
                        return file
    return None
