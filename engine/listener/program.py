"""One program in one container, from its start to the removal of the container."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from engine.kernel.machine.cells import Cell, CellGone, ProgramEnd

from .attachment import FLOOD
from .daemon import Daemon, SandboxUnavailable, StartedContainer
from .pool import ContainerPool

_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_LOOK = 0.25  # seconds for a program to end after the end of its channel; what it left behind may hold its streams open
_EXIT = 5.0  # seconds at most until the engine knows that a program ended whose streams did
_READ_BACK = 20.0  # seconds at most to read a result file
_OOM_NOTICE = 0.5  # seconds that the engine may take to notice that memory ran out
_BESIDE = 1  # threads of a container that are ours: the init
_ATTEMPTS = 3  # beside the containers that wait: all of them have stopped after a restart of the engine
_TERM = "kill -TERM -1"  # all processes of the user; the shell ignores it
_DIGITS = 20


class Program(Cell):
    def __init__(self, daemon: Daemon, pool: ContainerPool, script: bytes, data: bytes, *, limit: float, watched: bool):
        """Send `script` to the shell that waits in a container: it reads exactly `data`, writes one byte to its
        standard output, then runs or becomes the program. `watched`: end it at its limit, for nobody calls `result`.
        """
        self._daemon, self._pool, self._limit = daemon, pool, limit
        self._late = False
        self._code: int | None = None
        self._ended: ProgramEnd | None = None
        self._seconds: float | None = None
        self._container, self._streams, self._pid = self._start(b"%d\n%b%b" % (len(script), script, data))
        self._began = time.monotonic()
        self._timer = threading.Timer(limit, self._expire)
        self._timer.daemon = True
        if watched:
            self._timer.start()

    def send(self, data: bytes) -> None:
        self._pool.pause()  # what is sent may be the start of a timed call
        self._streams.write(data, self._until)

    def receive(self, size: int, until: float) -> bytes:
        return self._streams.read(size, min(until, self._until))

    def threads(self) -> int | None:
        """From the container's control group; None where this machine does not show it (a remote engine)."""
        found = self._told_of_group("pids", "tasks", "cgroup.threads")
        return None if found is None else len(found.split()) - _BESIDE

    def cpu_ms(self) -> float | None:
        found = self._told_of_group("cpuacct", "cpuacct.usage", "cpu.stat")  # nanoseconds; "usage_usec N …"
        if found is None:
            return None
        return int(found) / 1e6 if found.strip().isdecimal() else int(found.split()[1]) / 1e3

    def _told_of_group(self, controller: str, name: str, unified: str) -> str | None:
        """A file of the container's control group by its name, which in cgroup v2 is another."""
        with suppress(OSError):
            for line in Path(f"/proc/{self._pid}/cgroup").read_text("ascii").splitlines():
                _, group, path = line.split(":", 2)
                if self._container in path and controller in group.split(","):
                    return Path(f"/sys/fs/cgroup/{controller}{path}", name).read_text("ascii")
                if self._container in path and not group and not Path("/sys/fs/cgroup", controller).exists():
                    return Path(f"/sys/fs/cgroup{path}", unified).read_text("ascii")
        return None

    def result(self, cap: int) -> bytes | None:
        """Wait until the program ended, at most its limit; the file that the script sends then, of at most `cap` bytes.
        What the program left running may change the bytes or delay them, no more.
        """
        code = self._number(self._until)
        self._seconds = time.monotonic() - self._began
        if code is None:
            if not self._streams.closed and not self._flooded():
                self._late = True
                self._terminate()
            return None
        self._code = code
        until = time.monotonic() + _READ_BACK
        size = self._number(until) if cap else None
        with suppress(CellGone):
            return None if size is None or size > cap else self._streams.read(size, until)
        return None

    def end(self) -> ProgramEnd:
        if self._ended is None:
            self._timer.cancel()
            try:
                self._ended = self._finish()
            finally:
                self._release()
        return self._ended

    def _start(self, sent: bytes) -> StartedContainer:
        """Send it to a container in which nothing ran; the program has begun, or ended already: `end` tells how."""
        attempts = self._pool.size + _ATTEMPTS
        for attempt in range(1, attempts + 1):
            found = self._pool.take()
            self._until = time.monotonic() + self._limit
            try:
                found.streams.write(sent, self._until)
                found.streams.read(1, self._until)
            except CellGone:
                if found.streams.closed and attempt < attempts:
                    self._pool.give_back(found)
                    continue
            except BaseException:
                self._pool.give_back(found)
                raise
            break
        return found

    def _number(self, until: float) -> int | None:
        """A line of the script; None if none comes."""
        text = b""
        with suppress(CellGone, ValueError):
            while not text.endswith(b"\n") and len(text) < _DIGITS:
                text += self._streams.read(1, until)
            return int(text)
        return None

    def _finish(self) -> ProgramEnd:
        self._streams.finish()  # an honest program ends now, and what it printed is written
        self._streams.drain(time.monotonic() + _LOOK)
        code = self._code if self._code is not None else self._exit_status()
        seconds = self._seconds if self._seconds is not None else time.monotonic() - self._began
        if not self._streams.closed or code is None:
            self._kill()
        if code is None and self._flooded():
            code = -signal.SIGKILL
        elif self._late or code is None:
            code, seconds = None, self._limit if self._late else seconds
        text = self._streams.output.text()
        if self._flooded():
            text += f"\n[killed: more than {FLOOD >> 20} MiB of output]"
        return ProgramEnd(code, text, seconds, self._out_of_memory(code), self._flooded())

    def _exit_status(self) -> int | None:
        """The exit status of the container's shell, or of the program that it became; None while it runs. It is known
        a moment after the streams ended. The engine reports death by signal n as 128 + n, as `exit(128 + n)`.
        """
        until = time.monotonic() + (_EXIT if self._streams.closed else 0)
        while (state := self._daemon.state(self._container))["Running"] and time.monotonic() < until:
            time.sleep(0.003)
        return None if state["Running"] else int(state["ExitCode"])

    def _out_of_memory(self, code: int | None) -> bool:
        """As the engine says; the exit status proves nothing, and the engine hears of it a moment after the end."""
        until = time.monotonic() + (_OOM_NOTICE if code == 128 + signal.SIGKILL else 0)
        while not (found := bool(self._daemon.state(self._container)["OOMKilled"])) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def _expire(self) -> None:
        with suppress(SandboxUnavailable):  # `end` says so
            if self._daemon.state(self._container)["Running"]:
                self._late = True
                self._terminate()
                self._daemon.kill(self._container)

    def _terminate(self) -> None:
        """SIGTERM, and time to end."""
        with suppress(SandboxUnavailable):  # its processes may have taken all that the limits allow
            self._daemon.execute(self._container, ["sh", "-c", _TERM])
            until = time.monotonic() + _GRACE
            while time.monotonic() < until and self._daemon.state(self._container)["Running"]:
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
        self._pool.give_back(StartedContainer(self._container, self._streams, self._pid))
