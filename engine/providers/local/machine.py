"""The process that is a machine kept warm: it comes up, waits for runs, and goes when told or when idle for too long.

It does nothing but be there: runs have supervisors of their own, which hold `busy` in its folder. It lives apart from
the engine (own session, parent gone) and is standard library only. The lock of its folder, inherited from the
submitter and held until exit, is the sign that it lives; `ended.json` is its last act.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from engine.providers.local.durable import BUSY, is_locked, lock, write_json

TYPE_CHECKING = False  # `typing` would double the time that the imports take
if TYPE_CHECKING:
    from typing import Any

_TICK = 0.2
"""Seconds between two looks for a request to go."""
_SECOND = 1_000_000
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from engine.providers.local.machine import main; main()"


class Machine:
    """One machine, from its folder (see `state`) to its end."""

    def __init__(self, folder: Path, gate: Path, made: dict[str, Any]) -> None:
        """A machine described by its `made.json`; whoever holds `gate` may place runs."""
        self._folder = folder
        self._gate = gate
        boot, idle = made["boot"], made["idle"]
        self._up_at = time.monotonic() + boot / _SECOND
        self._timeout = None if idle < 0 else idle / _SECOND
        self._up = False
        self._idle_from: float | None = None
        self._told_to_quit = False

    def quit(self, *_: object) -> None:
        self._told_to_quit = True

    def live(self) -> None:
        """Stay until told to go, idle for too long, or the folder is gone."""
        write_json(self._folder / "started.json", {"at": _now(), "pid": os.getpid()})
        while self._folder.is_dir():
            now = time.monotonic()
            if self._told_to_quit and self._end("unreachable", "the machine's process was told to quit"):
                return
            if (self._folder / "stop.json").exists() and self._end("stopped", "stopped"):
                return
            if not self._up and now >= self._up_at:
                self._come_up()
            if self._up and self._idles_too_long(now) and self._leave():
                return
            time.sleep(_TICK if self._up else min(_TICK, max(0.001, self._up_at - now)))

    def _come_up(self) -> None:
        with contextlib.suppress(OSError):  # a full disk may have room again at the next look
            write_json(self._folder / "up.json", {"at": _now()})
            self._up = True

    def _idles_too_long(self, now: float) -> bool:
        if is_locked(self._folder, BUSY):
            self._idle_from = None
        elif self._idle_from is None:
            self._idle_from = now
        return self._timeout is not None and self._idle_from is not None and now - self._idle_from >= self._timeout

    def _leave(self) -> bool:
        """Go because nobody came, unless somebody is just coming: then the next look decides."""
        gate = lock(self._gate)
        if gate is None:
            return False
        try:
            busy = lock(self._folder, BUSY)
            if busy is None:
                return False
            os.close(busy)
            return self._end("idle_timeout", f"idle for {self._timeout:g}s")
        finally:
            os.close(gate)

    def _end(self, reason: str, message: str) -> bool:
        """Write why; False where that cannot be written now, so that the machine stays and is seen."""
        try:
            write_json(self._folder / "ended.json", {"reason": reason, "message": message, "at": _now()})
        except OSError:
            return False
        return True


def start_machine(folder: Path, life: int, gate: str) -> None:
    """Start the process that is a machine, from a supervisor on its way; only it holds its lock `life` from here on.

    It becomes no child of the supervisor's, which ends all of its own, and knows nothing of the run.
    """
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _PROGRAM, sys.argv[1], str(folder), str(life), gate],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(folder / "machine.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
    )
    os.close(life)


def main() -> None:
    """The machine's whole life. The arguments: the folder to import from, its own folder and lock, and the gate's."""
    folder, held, gate = Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    os.set_inheritable(held, False)  # noqa: FBT003 - nothing may look like this machine
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    machine = Machine(folder, gate, json.loads((folder / "made.json").read_bytes()))
    signal.signal(signal.SIGTERM, machine.quit)
    machine.live()


def _now() -> int:
    return time.time_ns() // 1000


_LOOK = 0.02
"""Seconds between two looks at a machine that is a process of its own."""


class MachineReadiness:
    """The machine of one run, from its supervisor's side."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """Of a plan (see `launch`): `machine` is the folder of a machine that is kept; else the supervisor itself is
        the machine and comes up `boot` microseconds after its start, or at once where there is neither.
        """
        machine, boot = plan["machine"], plan["boot"]
        self._machine = Path(machine) if machine is not None else None
        self._ready_at = None if boot is None else time.monotonic() + boot / _SECOND

    @property
    def matters(self) -> bool:
        return self._machine is not None or self._ready_at is not None

    @property
    def waits(self) -> bool:
        if self._machine is not None:
            return not (self._machine / "up.json").exists()
        return self._left() > 0

    @property
    def lost(self) -> bool:
        """The machine is a process of its own and has died."""
        return self._machine is not None and not is_locked(self._machine)

    def pause(self, longest: float) -> float:
        """Seconds until the next look is worth while."""
        return _LOOK if self._machine is not None else min(longest, max(0.001, self._left()))

    def _left(self) -> float:
        return 0.0 if self._ready_at is None else self._ready_at - time.monotonic()
