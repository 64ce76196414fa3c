"""The process that is a machine kept warm: it boots, waits for runs, and ends when told or idle for too long.

Runs have supervisors of their own, which hold `busy` in its folder. It lives apart from the engine (own session, parent
gone), standard library only. It lives while the lock of its folder is held; its last act is `ended.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from steno.engine.providers.local.durable import BUSY, followed, is_locked, lock, now, write_json

TYPE_CHECKING = False  # `typing` would double the import time
if TYPE_CHECKING:
    from typing import Any

_TICK = 0.2  # seconds between two looks for a request to go
_SECOND = 1_000_000


class Machine:
    def __init__(self, folder: Path, gate: Path, made: dict[str, Any]) -> None:
        """A machine described by its `made.json`; the holder of `gate` may place runs."""
        self._named = folder
        self._folder = followed(folder)
        self._gate = followed(gate)
        self._up_at = time.monotonic() + made["boot"] / _SECOND
        self._timeout = None if made["idle"] < 0 else made["idle"] / _SECOND
        self._up = False
        self._idle_from: float | None = None
        self._told_to_quit = False

    def quit(self, *_: object) -> None:
        self._told_to_quit = True

    def live(self) -> None:
        """Stay until told to go, idle for too long, or the folder is gone from its name; not before the run on it."""
        write_json(self._folder / "started.json", {"at": now(), "pid": os.getpid()})
        while self._named.is_dir() or is_locked(self._folder, BUSY):
            moment = time.monotonic()
            if self._told_to_quit and self._end("unreachable", "the machine's process was told to quit"):
                return
            if (self._folder / "stop.json").exists() and self._end("stopped", "stopped"):
                return
            if not self._up and moment >= self._up_at:
                self._come_up()
            if self._up and self._idles_too_long(moment) and self._leave():
                return
            time.sleep(_TICK if self._up else min(_TICK, max(0.001, self._up_at - moment)))

    def _come_up(self) -> None:
        with contextlib.suppress(OSError):  # a full disk may have room again at the next look
            write_json(self._folder / "up.json", {"at": now()})
            self._up = True

    def _idles_too_long(self, moment: float) -> bool:
        if is_locked(self._folder, BUSY):
            self._idle_from = None
        elif self._idle_from is None:
            self._idle_from = moment
        return self._timeout is not None and self._idle_from is not None and moment - self._idle_from >= self._timeout

    def _leave(self) -> bool:
        """End if still idle; while a run is just being placed, the next look decides."""
        gate = lock(self._gate)
        if gate is None:
            return False
        try:
            return not is_locked(self._folder, BUSY) and self._end("idle_timeout", f"idle for {self._timeout:g} s")
        finally:
            os.close(gate)

    def _end(self, reason: str, message: str) -> bool:
        """Write why; False if that fails, so that the machine stays and is seen."""
        try:
            write_json(self._folder / "ended.json", {"reason": reason, "message": message, "at": now()})
        except OSError:
            return False
        return True


def main() -> None:
    """Arguments: the folder to import from, the machine's folder, its lock and the gate's descriptors."""
    folder, held, gate = Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    os.set_inheritable(held, False)  # noqa: FBT003 - nothing may look like this machine
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    machine = Machine(folder, gate, json.loads((folder / "made.json").read_bytes()))
    signal.signal(signal.SIGTERM, machine.quit)
    machine.live()
