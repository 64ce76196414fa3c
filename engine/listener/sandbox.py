"""Cells that are containers: no network, a read-only image, no rights, bounded memory, processes, files and output.
Every program has a container of its own, which is removed after it.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.kernel.machine.cells import Cell, Cells, ProgramEnd

from .daemon import Daemon, SandboxUnavailable
from .health import EngineHealth, examine
from .pool import ContainerPool
from .program import Program

SECCOMP = Path(__file__).with_name("seccomp.json")
# It waits for a script, and takes no notice of the SIGTERM that a deadline sends to all processes of the user
_SHELL = ["sh", "-c", 'trap : TERM; read -r size && eval "$(head -c "$size")"']
# "." says that the input was read; what a program writes is output, the shell alone speaks on the channel
_RUN = """mkdir work && cd work && head -c {size} | tar -xf - && printf . || exit
{words} </dev/null >&2
echo $?
"""
_TAKE = """[ -f {file} ] && [ ! -L {file} ] && size=$(wc -c <{file}) && echo "$size" && [ "$size" -le {cap} ] &&
head -c "$size" -- {file}
"""
_OPEN = """mkdir work && cd work && head -c {size} >../program && chmod 755 ../program && printf . &&
exec ../program {words} 3<&0 4>&1 </dev/null >&2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """What a container is made of and what a program may use; sizes in bytes."""

    image: str
    memory: int = 16 << 30  # files in /tmp count too
    tmp: int = 2 << 30
    cpus: float = 4
    pids: int = 256
    file: int = 1 << 30  # the largest file
    open_files: int = 1024
    user: str = "10001:10001"
    devices: tuple[str, ...] = ()  # such as /dev/kfd and /dev/dri
    groups: tuple[int, ...] = ()  # the gids of the devices


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
        self._labels = {"steno": "listener", "steno.listener": name, "steno.pool": uuid.uuid4().hex}
        self._seccomp = SECCOMP.read_text("utf-8")
        self._pool: ContainerPool | None = None
        self._lock = threading.Lock()

    def arguments(self) -> dict[str, Any]:
        """What the SDK is given to create a container."""
        from docker.types import LogConfig, Ulimit

        limits = self.limits
        return {
            "image": limits.image,
            "command": _SHELL,
            "stdin_open": True,
            "entrypoint": [],
            "user": limits.user,
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
            "cpu_period": 100_000,
            "cpu_quota": int(limits.cpus * 100_000),  # nano_cpus above the machine's cores are refused
            "pids_limit": limits.pids,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true", f"seccomp={self._seccomp}"],
            "devices": [f"{one}:{one}:rw" for one in limits.devices],
            "group_add": list(limits.groups),
            "ulimits": [
                Ulimit(name=name, soft=bound, hard=bound)
                for name, bound in (("core", 0), ("fsize", limits.file), ("nofile", limits.open_files))
            ],
            "log_config": LogConfig(type="none"),
        }

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        cap = cap if takes else 0
        script = _RUN + (_TAKE.format(file=shlex.quote(takes), cap=cap) if takes else "")
        program = self._program(script, _archive(files), argv, limit=limit, watched=False)
        try:
            taken = program.result(cap)
        finally:
            ended = program.end()
        return ended, taken

    def open(self, program: bytes, words: Sequence[str], *, limit: float) -> Cell:
        return self._program(_OPEN, program, words, limit=limit, watched=True)

    def interrupt(self) -> None:
        for container in () if self._pool is None else self._pool.taken():
            # in a thread: the engine answers only when the program's streams were read
            threading.Thread(target=self._kill, args=(container,), daemon=True).start()

    def warm(self) -> ContainerPool:
        """Start the pool now; else the first program starts it."""
        with self._lock:
            if self._pool is None:
                self._pool = ContainerPool(
                    lambda: self.daemon.start(self.arguments()), self.daemon.remove, self._of_this_pool, self._size
                )
            return self._pool

    def _of_this_pool(self) -> list[str]:
        found = self.daemon.labelled(f"steno.pool={self._labels['steno.pool']}")
        return [container for container, _ in found]

    def health(self) -> EngineHealth:
        return examine(self.daemon, self.limits.image, self.limits.devices)

    def fetch(self) -> None:
        """Pull the image; `health` says whether that worked."""
        with suppress(SandboxUnavailable):
            self.daemon.pull(self.limits.image)

    def remove_leftovers(self) -> int:
        """Remove the containers that a dead listener of this name left, whatever runs in them; how many."""
        mine = self._labels
        found = self.daemon.labelled("steno=listener", f"steno.listener={mine['steno.listener']}")
        old = [container for container, labels in found if labels.get("steno.pool") != mine["steno.pool"]]
        for container in old:
            self.daemon.remove(container)
        return len(old)

    def close(self) -> None:
        """Remove all containers, and wait for that. Cells must have been ended."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
            self.daemon.close()
            self._pool = None

    def _kill(self, container: str) -> None:
        with suppress(SandboxUnavailable):  # `run` and `end` raise it too
            self.daemon.kill(container)

    def _program(self, script: str, data: bytes, words: Sequence[str], *, limit: float, watched: bool) -> Program:
        told = script.replace("{size}", str(len(data))).replace("{words}", shlex.join(words)).encode()
        return Program(self.daemon, self.warm(), told, data, limit=limit, watched=watched)


def remove_containers_of(listeners: Collection[str]) -> None:
    """Remove the containers of dead listeners of this host, by name; without an engine there are none."""
    with suppress(SandboxUnavailable), closing(Daemon()) as daemon:
        for container, labels in daemon.labelled("steno=listener"):
            if labels["steno.listener"] in listeners:
                daemon.remove(container)


def _archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
