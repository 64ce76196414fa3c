"""Cells that are containers: no network, a read-only image, no rights, bounded memory, processes, files and output.
Every program has a container of its own, which is removed after it.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from steno.engine.kernel.machine.cells import Cell, Cells
from steno.engine.kernel.machine.exchange import SHARED, SHELL

from .container import Container
from .daemon import Daemon, EngineHealth, SandboxUnavailable
from .pool import ContainerPool

_FOLDER, _PYTHON = "/steno", "/steno-python"  # in a container
_LARGEST_FILE = 1 << 30  # bytes
_TURN = 0.05  # seconds between two attempts to have the machine alone
SECCOMP = Path(__file__).with_name("seccomp.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """The image of a container and the resources of a program; sizes in bytes."""

    image: str
    memory: int = 16 << 30  # files in /tmp count too
    tmp: int = 2 << 30
    cpus: float = 4  # as many processors as there are, at most
    pids: int = 256
    devices: tuple[str, ...] = ()  # such as /dev/kfd and /dev/dri


class Containers(Cells):
    """Cells of the Docker engine. Every method may raise `SandboxUnavailable`."""

    def __init__(
        self, limits: ContainerLimits, *, url: str | None = None, size: int = 3, name: str = "listener"
    ) -> None:
        """`url`: of the engine, None: from the environment. `size`: containers started ahead of need. `name`: of this
        listener, the same after a restart, and of no other listener on this engine.
        """
        super().__init__()
        self.limits = limits
        self.daemon = Daemon(url)
        self._size = size
        self._numbers = count()
        self._labels = {"steno": "listener", "steno.listener": name, "steno.pool": uuid.uuid4().hex}
        self._seccomp = SECCOMP.read_text("utf-8")
        self._pool: ContainerPool | None = None
        self._lock = threading.Lock()
        self._shared = SHARED / f"steno-{name}-{self._labels['steno.pool']}"
        here = sorted(os.sched_getaffinity(0))
        self._cpuset = here[-max(1, min(len(here), round(limits.cpus))) :]
        self.cpus = len(self._cpuset)
        self.python_path = _PYTHON
        self.ranks = os.geteuid() == 0

    def arguments(self, folder: Path) -> dict[str, Any]:
        """The SDK's arguments for a container that shares this folder. It has a set of processors, and no quota, which
        would stop a program now and then.
        """
        from docker.types import LogConfig, Mount, Ulimit

        limits = self.limits
        return {
            "image": limits.image,
            "command": ["sh", "-c", SHELL, _FOLDER],
            "entrypoint": [],
            "user": "10001:10001",
            "working_dir": "/tmp",  # noqa: S108 - of the container
            "environment": {"HOME": "/tmp/work", "TMPDIR": "/tmp"},  # noqa: S108
            "labels": self._labels,
            "init": True,  # as PID 1 the program would ignore its own signals
            "network_mode": "none",
            "ipc_mode": "private",
            "shm_size": 64 << 20,
            "read_only": True,
            "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,size={limits.tmp},nr_inodes=10000,mode=1777"},  # noqa: S108
            "mem_limit": limits.memory,
            "memswap_limit": limits.memory,  # without it swap doubles the memory
            "cpuset_cpus": ",".join(map(str, self._cpuset)),
            "mounts": [
                Mount(_FOLDER, str(folder), type="bind"),
                *(Mount(f"{_PYTHON}/{path.name}", str(path), type="bind", read_only=True) for path in _numpy()),
            ],
            "pids_limit": limits.pids,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true", f"seccomp={self._seccomp}"],
            "devices": [f"{device}:{device}:rw" for device in limits.devices],
            "group_add": sorted({Path(device).stat().st_gid for device in limits.devices if Path(device).exists()}),
            "ulimits": [
                Ulimit(name=name, soft=bound, hard=bound)
                for name, bound in (("core", 0), ("fsize", _LARGEST_FILE), ("nofile", 1024))
            ],
            "log_config": LogConfig(type="none"),
        }

    def take(self) -> Cell:
        return self.warm().take()

    def give_back(self, cell: Cell) -> None:
        assert isinstance(cell, Container)  # noqa: S101 - `take` gave it
        self.warm().give_back(cell)

    def quiet(self) -> None:
        self.warm().quiet()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock out the other listeners of this machine; ours removes used containers before every batch."""
        with (SHARED / "steno.lock").open("a") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                self.check()
                time.sleep(_TURN)
            yield

    def interrupt(self) -> None:
        with suppress(SandboxUnavailable):  # who waits for the program hears it too
            super().interrupt()

    def warm(self) -> ContainerPool:
        """Start the pool now; else the first program starts it."""
        with self._lock:
            if self._pool is None:
                self._pool = ContainerPool(self._made, self.daemon.remove, self._size)
            return self._pool

    def _made(self) -> Container:
        folder = self._shared / f"{self._labels['steno.pool']}-{next(self._numbers)}"
        try:
            return Container(self, self.daemon, folder, self.arguments(folder))
        except OSError as error:
            raise SandboxUnavailable(f"{SHARED} cannot be used ({error.strerror}): mount a tmpfs there.") from None

    def health(self) -> EngineHealth:
        return self.daemon.health(self.limits.image, self.limits.devices)

    def remove_leftovers(self) -> int:
        """Remove the containers that a dead listener of this name left, whatever runs in them; how many."""
        name, pool = self._labels["steno.listener"], self._labels["steno.pool"]
        containers = self.daemon.labelled(f"steno.listener={name}")
        old = [container for container, labels in containers if labels.get("steno.pool") != pool]
        for container in old:
            with suppress(SandboxUnavailable):  # the next one tries again
                self.daemon.remove(container)
        _remove_folders(name, but=self._shared)
        return len(old)

    def close(self) -> None:
        """Remove all containers, and wait for that. Cells must have been ended."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
            self.daemon.close()
            self._pool = None
        shutil.rmtree(self._shared, ignore_errors=True)


def remove_containers_of(listeners: Collection[str]) -> None:
    """Remove the containers of dead listeners of this host, by name, and their tensors from its memory; without an
    engine there are no containers.
    """
    with suppress(SandboxUnavailable), closing(Daemon()) as daemon:
        for container, labels in daemon.labelled("steno=listener"):
            if labels["steno.listener"] in listeners:
                daemon.remove(container)
    for name in listeners:
        _remove_folders(name)


def _remove_folders(name: str, but: Path | None = None) -> None:
    for folder in SHARED.glob(f"steno-{glob.escape(name)}-{'[0-9a-f]' * 32}"):
        if folder != but:
            shutil.rmtree(folder, ignore_errors=True)


def _numpy() -> list[Path]:
    """The folders of the judge's numpy, for references whose image has none."""
    import numpy as np

    home = Path(np.__file__).parent
    return [path for path in (home, home.with_name("numpy.libs")) if path.exists()]
