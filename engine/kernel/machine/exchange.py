"""The folder that the judge shares with one program: `in`, which the program may only read, `out`, and the FIFOs
`channel` and `answers`, its descriptors 3 (reads) and 4 (writes). Whatever it prints goes to `printed`. A shell in the
cell waits at `channel` for a line, then follows `script`.

The program may do to `out`, `answers` and `printed` whatever a writer may. So the judge opens everything once, before
the program runs, uses `pread` and `pwrite` alone, and checks the size.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SHARED = Path("/dev/shm")  # noqa: S108 - a tmpfs of every Linux
KEPT = 16_384  # bytes kept of the beginning and of the end of the output
FLOOD = 256 << 20  # bytes of output after which the program is killed
SHELL = """exec 3<"$0/channel" 4>"$0/answers" </dev/null >>"$0/printed" 2>&1
read -r _ <&3 && printf . >&4 && . "$0/script"
"""
"""The shell's program; `$0` is the folder in the cell. It answers "." when it begins."""
_FILES = {
    "in": (os.O_RDWR | os.O_CREAT, 0o444),
    "out": (os.O_RDWR | os.O_CREAT, 0o666),
    "printed": (os.O_RDWR | os.O_CREAT, 0o622),
    "channel": (os.O_RDWR | os.O_NONBLOCK, 0o444),  # open for both directions it has no end until the judge closes it
    "answers": (os.O_RDONLY | os.O_NONBLOCK, 0o622),
}
"""How the judge opens each file, and its mode; FIFOs do not block."""
_STARTS = 60.0  # seconds for a shell to begin, and for a program to read its channel
_LOOK = 0.05  # seconds between two checks of the size of the output
_FILL = b"\xff" * (1 << 20)  # outputs before each batch: NaN, or -1
_READS = 64  # of 64 KiB: more than a FIFO holds
_STEP = 1 << 25  # bytes of a file that are made or given back at once


class OutputChanged(Exception):
    """The program changed the size of its output file."""


class CellGone(Exception):
    """The program ended, closed its channel, or did not answer in time; `Cell.end` says which."""


class CellExchange:
    def __init__(self, folder: Path) -> None:
        """Make the folder, which `close` removes; in `SHARED`, for a disk is slow."""
        folder.mkdir(mode=0o755, parents=True)
        (folder / "files").mkdir()
        self.folder = folder
        self._fds = dict[str, int]()
        for name, (flags, mode) in _FILES.items():
            if flags & os.O_NONBLOCK:
                os.mkfifo(folder / name)
            self._fds[name] = os.open(folder / name, flags)
            (folder / name).chmod(mode)
        self._size = 0

    # -- the program and its channel; methods raise `CellGone`

    def begin(self, script: str, files: Mapping[str, bytes]) -> None:
        """Have the shell follow the script, for which these files lie in `files`."""
        contents = {self.folder / "files" / name: data for name, data in files.items()}
        for path, data in {self.folder / "script": script.encode(), **contents}.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755)
        self.send(b"\n")
        self.receive(1, time.monotonic() + _STARTS)

    def send(self, data: bytes) -> None:
        rest, until = memoryview(data), time.monotonic() + _STARTS
        while rest and (channel := self._fds.get("channel")) is not None:
            self._wait({self._fds["answers"]: 0, channel: select.POLLOUT}, until)
            rest = rest[os.write(channel, rest) :]

    def receive(self, size: int, until: float) -> bytes:
        """Exactly `size` bytes, before the monotonic time `until`."""
        data = b""
        while len(data) < size:
            self._wait({self._fds["answers"]: select.POLLIN}, until)
            data += os.read(self._fds["answers"], size - len(data))
        return data

    def order(self, calls: int) -> None:
        """Order a batch of so many calls; 0: the numbers of a case follow. Drops unread answers; of a frozen program
        none is left, so the next byte is of this batch.
        """
        with contextlib.suppress(BlockingIOError):
            for _ in range(_READS):  # no more: a program that runs may write for ever
                os.read(self._fds["answers"], 1 << 16)
        self.send(struct.pack("<Q", calls))

    def finish(self, wait: float) -> bool:
        """Close the channel: an honest program ends at that. True if it did within so many seconds."""
        if (channel := self._fds.pop("channel", None)) is not None:
            os.close(channel)
        return bool(_poll({self._fds["answers"]: 0}).poll(wait * 1000))

    @property
    def gone(self) -> bool:
        """True if the program has ended, or must be ended."""
        return self.flooded or bool(_poll({self._fds["answers"]: 0}).poll(0))

    @property
    def flooded(self) -> bool:
        return os.fstat(self._fds["printed"]).st_size > FLOOD

    def printed(self) -> str:
        """The beginning and the end of the output."""
        size = os.fstat(self._fds["printed"]).st_size
        head = os.pread(self._fds["printed"], KEPT, 0)
        tail = os.pread(self._fds["printed"], KEPT, max(len(head), size - KEPT))
        dropped = size - len(head) - len(tail)
        between = f"\n[… {dropped} bytes …]\n" if dropped > 0 else ""
        killed = f"\n[killed: more than {FLOOD >> 20} MiB of output]" if size > FLOOD else ""
        return head.decode("utf-8", "replace") + between + tail.decode("utf-8", "replace") + killed

    def listen(self) -> socket.socket:
        """Listen at a Unix socket in the folder, for one connection; call it before the program is told to connect."""
        listening, folder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), os.open(self.folder, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{folder}/memory")  # the folder's own path may be too long for a socket
        os.close(folder)
        (self.folder / "memory").chmod(0o666)
        listening.listen(1)
        return listening

    def _wait(self, events: Mapping[int, int], until: float) -> None:
        """Wait for an event; 0 waits for the end of the program. Raises `CellGone` if the event cannot come."""
        poll = _poll(events)
        while not self.flooded and (left := until - time.monotonic()) > 0:
            ready = dict(poll.poll(1000 * min(left, _LOOK)))
            if any(seen & events[descriptor] for descriptor, seen in ready.items()):
                return
            if ready:  # the other end was closed
                break
        raise CellGone

    # -- the tensors; `check` is called often, and may raise

    def resize(self, inputs: int, outputs: int, check: Callable[[], None]) -> None:
        """Make room for so many bytes, and touch every page. Raises OSError if there is no memory."""
        for name, size in (("in", max(1, inputs)), ("out", max(1, outputs))):
            for left in range(os.fstat(self._fds[name]).st_size - 1, -1, -_STEP):
                check()
                os.ftruncate(self._fds[name], max(0, left - _STEP))
            for at in range(0, size, _STEP):
                check()
                os.posix_fallocate(self._fds[name], at, min(_STEP, size - at))
        self._size = max(1, outputs)

    def write_input(self, at: int, data: bytes | memoryview) -> None:
        _write(self._fds["in"], data, at)

    def read_input(self, at: int, size: int) -> bytes:
        return os.pread(self._fds["in"], size, at)

    def read_output(self, at: int, size: int) -> bytes:
        """Raises `OutputChanged` if bytes are missing."""
        data = os.pread(self._fds["out"], size, at)
        if len(data) != size or os.fstat(self._fds["out"]).st_size != self._size:
            raise OutputChanged
        return data

    def taken(self, cap: int) -> bytes | None:
        """The contents of `out`, if they are 1 to `cap` bytes."""
        data = os.pread(self._fds["out"], cap + 1, 0)
        return data if 0 < len(data) <= cap else None

    def poison(self, check: Callable[[], None]) -> None:
        """Fill the outputs with a value that no solution means. Raises `OutputChanged`."""
        if os.fstat(self._fds["out"]).st_size != self._size:
            raise OutputChanged
        for at in range(0, self._size, len(_FILL)):
            check()
            _write(self._fds["out"], _FILL[: self._size - at], at)

    def close(self) -> None:
        """Remove the folder; idempotent."""
        while self._fds:
            os.close(self._fds.popitem()[1])
        shutil.rmtree(self.folder, ignore_errors=True)


def _poll(events: Mapping[int, int]) -> select.poll:
    poll = select.poll()
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    return poll


def _write(descriptor: int, data: bytes | memoryview, at: int) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        wrote = os.pwrite(descriptor, rest, at)
        rest, at = rest[wrote:], at + wrote
