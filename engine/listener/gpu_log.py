"""Samples of the machine's GPUs: the sampler's file, of which the engine reads the end."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from steno.engine.providers.sampler import EVERY, SCRIPT

TAIL = 256 << 10  # bytes of an answer: of eight GPUs more than half an hour


class GpuLog:
    """Samples of this machine's GPUs while it is open. A machine without bash, a GPU or its tool has none."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "samples"
        self._process: subprocess.Popen[bytes] | None = None
        words = [str(os.getpid()), str(self._file), str(EVERY), str(EVERY), ""]
        with suppress(OSError):
            self._process = subprocess.Popen(  # in a group of its own, with the vendor's tool
                ["bash", "-c", SCRIPT, "steno-sampler", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def text(self) -> str:
        """The newest lines of the vendor's tool behind its header. The listener's own processes are not a task's."""
        parts = [path.read_bytes() for path in (self._file.with_name("samples.old"), self._file) if path.exists()]
        lines = [line for line in b"".join(parts).splitlines(keepends=True) if b",processes," not in line]
        return b"".join(lines[:1]).decode(errors="replace") + _end(lines[1:])

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _end(lines: list[bytes]) -> str:
    """The last lines, of `TAIL` bytes at most."""
    room, first = TAIL, len(lines)
    while first and len(lines[first - 1]) <= room:
        first -= 1
        room -= len(lines[first])
    return b"".join(lines[first:]).decode(errors="replace")
