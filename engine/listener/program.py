"""One program in one container, from its start to the removal of the container."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from engine.kernel.machine.cells import Cell, CellGone, ProgramEnd

from .attachment import FLOOD, Attachment
from .daemon import ContainerGone, Daemon, SandboxUnavailable
from .pool import ContainerPool

_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_LOOK = 0.25  # seconds between looks at a silent program: a process that it left behind may hold its streams open
_READ_BACK = 20.0  # seconds at most to read a result file
_OOM_NOTICE = 0.5  # seconds that the engine may take to notice that memory ran out
_BESIDE = 2  # threads of a container that are ours: the init and the sleeper
_ATTEMPTS = 3  # a waiting container may have stopped, as after a restart of the engine
_TERM = "kill -TERM -1"  # all processes of the user; the sleeper ignores it
_TAKE = '[ -f "$1" ] && [ ! -L "$1" ] && exec head -c "$2" -- "$1"'


class Program(Cell):
    def __init__(
        self, daemon: Daemon, pool: ContainerPool, argv: Sequence[str], data: bytes, *, limit: float, watched: bool
    ):
        """Start `argv`, which reads exactly `data`, writes one byte to its standard output and becomes the program.
        `watched`: end it at its limit, for nobody calls `wait`.
        """
        self._daemon, self._pool, self._limit = daemon, pool, limit
        self._pid: int | None = None
        self._late = False
        self._ended: ProgramEnd | None = None
        self._seconds: float | None = None
        self._container, self._execution, self._streams = self._start(argv)
        self._began = time.monotonic()
        self._until = self._began + limit
        self._timer = threading.Timer(limit, self._expire)
        self._timer.daemon = True
        try:
            with suppress(CellGone):  # it ended already: `end` tells how
                self._streams.write(data, self._until)
                self._streams.read(1, self._until)
        except BaseException:
            self._release()
            raise
        self._began = time.monotonic()
        if watched:
            self._timer.start()

    def send(self, data: bytes) -> None:
        self._pool.pause()  # what is sent may be the start of a timed call
        self._streams.write(data, self._until)

    def receive(self, size: int, until: float) -> bytes:
        return self._streams.read(size, min(until, self._until))

    def threads(self) -> int | None:
        """From the container's control group; None where this machine does not show it (a remote engine)."""
        if self._pid is None:
            self._pid = int(self._daemon.state(self._container)["Pid"])
        with suppress(OSError):
            for line in Path(f"/proc/{self._pid}/cgroup").read_text("ascii").splitlines():
                _, group, path = line.split(":", 2)
                if self._container in path and group in ("pids", ""):  # "": cgroup v2
                    tasks = Path(f"/sys/fs/cgroup/{group}{path}", "tasks" if group else "cgroup.threads")
                    return len(tasks.read_text("ascii").split()) - _BESIDE
        return None

    def wait(self) -> int | None:
        """Until the program ended; its exit status, None at its limit."""
        code = self._status(self._until)
        self._seconds = time.monotonic() - self._began
        if code is None and not self._flooded():
            self._late = True
            self._terminate()
        return code

    def read_back(self, name: str, cap: int) -> bytes | None:
        """A regular file of the program's folder, of at most `cap` bytes; else None. What the program left running
        may change the bytes or delay them, no more.
        """
        until = time.monotonic() + _READ_BACK
        try:
            argv = ["sh", "-c", _TAKE, "sh", f"work/{name}", str(cap + 1)]
            execution, streams = self._daemon.execute(self._container, argv)
        except SandboxUnavailable:  # its processes took all that the limits allow; a dead engine shows at the end
            return None
        try:
            found = streams.rest(cap, until)
            while (
                (code := self._daemon.exit_status(execution)) is None and time.monotonic() < until and found is not None
            ):
                time.sleep(0.005)
            return found if code == 0 else None
        finally:
            streams.close()

    def end(self) -> ProgramEnd:
        if self._ended is None:
            self._timer.cancel()
            try:
                self._ended = self._finish()
            finally:
                self._release()
        return self._ended

    def _start(self, argv: Sequence[str]) -> tuple[str, str, Attachment]:
        attempts = _ATTEMPTS
        while True:
            attempts -= 1
            container = self._pool.take()
            try:
                return container, *self._daemon.execute(container, argv)
            except BaseException as error:
                self._pool.give_back(container)
                if not isinstance(error, ContainerGone) or attempts == 0:
                    raise

    def _finish(self) -> ProgramEnd:
        now = time.monotonic()
        code = self._status(now + (_LOOK if self._streams.closed else 0.05))
        seconds = self._seconds if self._seconds is not None else time.monotonic() - self._began
        self._kill()
        if code is None and self._flooded():
            code = -signal.SIGKILL
        elif self._late or code is None:
            code, seconds = None, self._limit if self._late else seconds
        text = self._streams.output.text()
        if self._flooded():
            text += f"\n[killed: more than {FLOOD >> 20} MiB of output]"
        return ProgramEnd(code, text, seconds, self._out_of_memory(code))

    def _status(self, until: float) -> int | None:
        pause = 0.005
        while (code := self._daemon.exit_status(self._execution)) is None:
            now = time.monotonic()
            if now >= until or self._flooded():
                break
            if self._streams.closed:  # it ended, or closed its output
                time.sleep(min(pause, until - now))
                pause = min(2 * pause, _LOOK)
            self._streams.drain(min(until, now + _LOOK))
        return code

    def _out_of_memory(self, code: int | None) -> bool:
        """As the engine says; the exit status proves nothing, and the engine hears of it a moment after the end."""
        until = time.monotonic() + (_OOM_NOTICE if code == 128 + signal.SIGKILL else 0)
        while not (found := bool(self._daemon.state(self._container)["OOMKilled"])) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def _expire(self) -> None:
        with suppress(SandboxUnavailable):  # `end` says so
            if self._daemon.exit_status(self._execution) is None:
                self._late = True
                self._terminate()
                self._daemon.kill(self._container)

    def _terminate(self) -> None:
        """SIGTERM, and time to end."""
        with suppress(SandboxUnavailable):  # its processes may have taken all that the limits allow
            self._daemon.execute_detached(self._container, ["sh", "-c", _TERM])
            until = time.monotonic() + _GRACE
            while time.monotonic() < until and self._daemon.exit_status(self._execution) is None:
                time.sleep(0.02)

    def _kill(self) -> None:
        """The engine answers only after the streams were read to their end, or closed."""
        if self._flooded():
            self._streams.close()
        with ThreadPoolExecutor(1) as other:
            killing = other.submit(self._daemon.kill, self._container)
            while not killing.done() and not self._streams.closed:
                self._streams.drain(time.monotonic() + 0.02)
            killing.result()
        self._streams.drain(time.monotonic() + _GRACE)

    def _flooded(self) -> bool:
        return self._streams.output.total > FLOOD

    def _release(self) -> None:
        self._streams.close()
        self._pool.give_back(self._container)
