"""A foreign program, run with a time limit; its output is bounded, whatever it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO, NamedTuple

KEPT = 16_384  # bytes kept of the beginning and of the end of an output
_LINGER = 10.0  # seconds for an output to close once its program is over
_MEANS = {
    "SIGSEGV": ": memory was used that is not there",
    "SIGABRT": ": the program gave up",
    "SIGFPE": ": a division by zero, or a number out of range",
    "SIGKILL": ": perhaps the machine had no more memory",
}


class ChildExit(NamedTuple):
    code: int | None  # exit status, negative for a signal; None: killed at its time limit
    output: str
    seconds: float

    @property
    def why(self) -> str:
        """The message for a failed program."""
        if self.code is None:
            return f"it did not end within {self.seconds:.0f} s"
        if self.code >= 0:
            return f"it exited with status {self.code}"
        known = -self.code in set(signal.Signals)
        name = signal.Signals(-self.code).name if known else str(-self.code)
        return f"it was ended by {name}" + _MEANS.get(name, "")


def run(argv: list[str], *, cwd: str, limit: float) -> ChildExit:
    """Run a program to its end, or for `limit` seconds; none of its processes survive. Standard input is empty; both
    outputs are read here and go nowhere else. It does not get Steno's variables.
    """
    began = time.monotonic()
    child = subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("STENO_")},
    )
    kept = _Kept(child.stdout)
    try:
        code: int | None = child.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with contextlib.suppress(OSError):  # it has ended, and so have all its children
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    output = kept.text()
    return ChildExit(code, output, limit if code is None else time.monotonic() - began)


class _Kept:
    """Reads a pipe to its end in a thread; keeps the beginning and the end."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._pipe = pipe
        self._head = self._tail = b""
        self._dropped = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """What was read, once the other end has closed."""
        self._thread.join(_LINGER)
        between = f"\n[… {self._dropped} bytes …]\n" if self._dropped else ""
        return self._head.decode("utf-8", "replace") + between + self._tail.decode("utf-8", "replace")

    def _read(self) -> None:
        if self._pipe is None:
            return
        with self._pipe as pipe:
            while data := os.read(pipe.fileno(), 65_536):
                room = KEPT - len(self._head)
                self._head += data[:room]
                rest = self._tail + data[max(0, room) :]
                self._dropped += max(0, len(rest) - KEPT)
                self._tail = rest[-KEPT:]
