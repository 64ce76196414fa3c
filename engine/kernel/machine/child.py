"""A program of somebody else, run with a time limit; its output is kept within bounds, whatever it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO

KEPT = 16_384
"""Bytes kept of the beginning and of the end of an output."""
_LINGER = 10.0
"""Seconds for an output to close once its program is over."""


class ChildExit:
    """How a program ended."""

    def __init__(self, code: int | None, output: str, seconds: float) -> None:
        self.code = code
        """Its exit status, negative for a signal; None: it was out of time and was killed."""
        self.output = output
        self.seconds = seconds

    @property
    def why(self) -> str:
        """The message for a program that did not succeed."""
        if self.code is None:
            return f"it did not end within {self.seconds:.0f} s"
        if self.code < 0:
            try:
                name = signal.Signals(-self.code).name
            except ValueError:
                name = str(-self.code)
            return f"it was ended by {name}" + _MEANS.get(name, "")
        return f"it exited with status {self.code}"


_MEANS = {
    "SIGSEGV": ": memory was used that is not there",
    "SIGABRT": ": the program gave up",
    "SIGFPE": ": a division by zero, or a number out of range",
    "SIGKILL": ": perhaps the machine had no more memory",
}


def run(argv: list[str], *, cwd: str, limit: float) -> ChildExit:
    """Run a program to its end, or for `limit` seconds; nothing of it is left behind.

    Standard input is empty; both outputs are read here and go nowhere else.
    """
    began = time.monotonic()
    child = subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=_environment(),
    )
    kept = _Kept(child.stdout)
    try:
        code: int | None = child.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with contextlib.suppress(OSError):  # it has ended, and so has all it started
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    output = kept.text()
    return ChildExit(code, output, limit if code is None else time.monotonic() - began)


def _environment() -> dict[str, str]:
    """Ours without what is Steno's: the program has no use for it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STENO_")}


class _Kept:
    """Reads a pipe to its end in a thread and keeps the beginning and the end of it."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._pipe = pipe
        self._head = b""
        self._tail = b""
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
            while True:
                data = os.read(pipe.fileno(), 65_536)
                if not data:
                    return
                room = KEPT - len(self._head)
                self._head += data[:room]
                rest = self._tail + data[room:] if room > 0 else self._tail + data
                self._dropped += max(0, len(rest) - KEPT)
                self._tail = rest[-KEPT:]
