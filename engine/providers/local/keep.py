"""What a command writes, kept in order: one pipe for standard output and standard error, one file, bounded.

Two pipes would tell the streams apart but lose the order of their lines, which is worth more to a reader.
Standard library only, for the supervisor.
"""

import contextlib
import fcntl
import os
import sys
from pathlib import Path

from engine.providers.local.durable import write_all

_PIPE_SIZE = 1 << 20
_F_SETPIPE_SZ = 1031


class OutputKeeper:
    """Moves bytes from the pipe to the file.

    What is over `limit` bytes is read, counted and dropped, so that the command never blocks.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.pipe: int | None
        """The end to read; None once every writer has closed."""
        self.pipe, self.writer = os.pipe()
        os.set_blocking(self.pipe, False)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a small pipe is only slower
                fcntl.fcntl(self.pipe, _F_SETPIPE_SZ, _PIPE_SIZE)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit = limit
        self.kept = 0
        self.dropped = 0

    def handed_over(self) -> None:
        """Close our copy of the writing end: the command has its own, or never will."""
        os.close(self.writer)

    def move(self) -> bool:
        """Keep what is in the pipe now, at most a pipe's worth; False if nothing is."""
        if self.pipe is None:
            return False
        try:
            data = os.read(self.pipe, _PIPE_SIZE)
        except BlockingIOError:
            return False
        if not data:
            os.close(self.pipe)
            self.pipe = None
            return False
        self._keep(data)
        return True

    def finish(self) -> None:
        """Keep what is left and make the file durable, as far as the disk allows."""
        while self.move():
            pass
        with contextlib.suppress(OSError):  # the exit status is worth more than the last lines
            os.fsync(self._file)

    def _keep(self, data: bytes) -> None:
        room = self._limit - self.kept
        try:
            write_all(self._file, data[:room])
            if len(data) > room and self.dropped == 0:
                notice = f"\n[steno: the limit of {self._limit} bytes of output is reached, the rest is dropped]\n"
                write_all(self._file, notice.encode())
        except OSError:
            room = 0  # disk full: the command must not suffer for it
        self.kept += min(room, len(data))
        self.dropped += max(0, len(data) - room)
