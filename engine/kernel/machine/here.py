"""Cells that are processes of this machine: what a rented machine and one's own computer have. As root each kind of
program has a user of its own, so that none reads the judge's memory. All that a program leaves behind is ended, in
whatever session. There is no wall around the network and the files: that is the container's work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from .cells import Cell, CellGone, Cells, ProgramEnd

KEPT = 16_384  # bytes kept of the beginning and of the end of an output
USERS = {"run": 10002, "open": 10001}  # whose rights programs have where this is root
FILE_BLOCKS = 1 << 21  # of the largest file a program may write; of 512 bytes, as POSIX has it
_ENDING = 5.0  # seconds for a program to end that closed its channel
_FLUSHING = 1.0  # … and for one whose channel was closed
_LINGER = 10.0  # seconds for an output to close once its program is over
_SUBREAPER, _DUMPABLE = 36, 4  # of prctl(2)
_CPU_CLOCK = 2  # of a process, as clock_getcpuclockid(3) has it
_CHANNEL = 'ulimit -c 0; ulimit -f "$0"; exec "$@" 3<&0 4>&1 </dev/null >&2'
_PLAIN = 'ulimit -c 0; ulimit -f "$0"; exec "$@" 2>&1'


def keep_to_itself() -> None:
    """Make this process the parent of whatever its programs leave behind, and its memory unreadable to its user's other
    processes.
    """
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1, 0, 0, 0)
        prctl(_DUMPABLE, 0, 0, 0, 0)


class Here(Cells):
    def __init__(self, folder: Path) -> None:
        """`folder`: empty, and nobody else's."""
        super().__init__()
        keep_to_itself()
        _others.update(set(_family(os.getpid())[1:]) - _alive)
        self._folder = folder
        folder.chmod(0o711)

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        with self._room("run") as room:
            for name, data in files.items():
                path = room / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            process = _started(_PLAIN, argv, room, "run", stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            found = _Running(process, process.stdout, limit)
            ended = found.wait()
            taken = _taken(room / takes, cap) if takes else None
        return ended, taken

    def open(self, program: bytes, words: Sequence[str], *, limit: float) -> Cell:
        room = self._room("open")
        path = room.__enter__() / "program"
        path.write_bytes(program)
        path.chmod(0o755)
        return _Process(room, path, words, limit)

    def interrupt(self) -> None:
        for pid in tuple(_alive):
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _room(self, kind: str) -> Iterator[Path]:
        """An empty folder of the program's user; gone with everything in it afterwards."""
        room = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            if os.geteuid() == 0:
                os.chown(room, USERS[kind], USERS[kind])
            yield room
        finally:
            with contextlib.suppress(OSError):
                room.chmod(0o700)
            shutil.rmtree(room, ignore_errors=True)


class _Running:
    """A process until its end: its output is bounded, and none of its processes survive it."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes] | None, limit: float) -> None:
        self.process = process
        _alive.add(process.pid)
        self.began = time.monotonic()
        self.until = self.began + limit
        self._limit = limit
        self._kept = _Kept(output)

    def wait(self) -> ProgramEnd:
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(max(0.0, self.until - time.monotonic()))
        finally:  # the judge may be told to stop
            ended = self.finished(code)
        return ended

    def finished(self, code: int | None) -> ProgramEnd:
        took = time.monotonic() - self.began
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _alive.discard(self.process.pid)
        _end_orphans()
        return ProgramEnd(code, self._kept.text(), self._limit if code is None else took)


class _Process(Cell):
    def __init__(self, room: contextlib.AbstractContextManager[Path], path: Path, words: Sequence[str], limit: float):
        self._room = room
        self._ended: ProgramEnd | None = None
        self._closed = False  # the program closed the channel, so it is about to end
        process = _started(
            _CHANNEL, ["./program", *words], path.parent, "open", stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._running = _Running(process, process.stderr, limit)
        self._pipes = cast("tuple[IO[bytes], IO[bytes]]", (process.stdin, process.stdout))
        self._to, self._from = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._expect(select.POLLOUT, self._to, self._running.until)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BlockingIOError:
                continue
            except OSError:
                self._closed = True
                raise CellGone from None

    def receive(self, size: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            self._expect(select.POLLIN, self._from, until)
            try:
                piece = os.read(self._from, min(size - len(found), 1 << 20))
            except BlockingIOError:
                continue
            if not piece:
                self._closed = True
                raise CellGone
            found += piece
        return bytes(found)

    def threads(self) -> int | None:
        return sum(len(_tasks(pid)) for pid in _family(os.getpid())[1:]) or None

    def cpu_ms(self) -> float | None:
        """Of the program; of its children once they have ended."""
        pid = self._running.process.pid
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            children = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
            return (time.clock_gettime(~pid << 3 | _CPU_CLOCK) + children) * 1000
        return None

    def end(self) -> ProgramEnd:
        if self._ended is None:
            process = self._running.process
            for pipe in self._pipes:  # an honest program ends now, and what it printed is written
                with contextlib.suppress(OSError):
                    pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING if self._closed else _FLUSHING)
            self._ended = self._running.finished(process.returncode)
            self._room.__exit__(None, None, None)
        return self._ended

    def _expect(self, event: int, descriptor: int, until: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = min(until, self._running.until) - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise CellGone


def _started(
    shell: str, argv: Sequence[str], folder: Path, kind: str, *, stdin: int, stderr: int
) -> subprocess.Popen[bytes]:
    """A program in a folder, in a session of its own and without Steno's variables."""
    root = os.geteuid() == 0
    if root:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USERS[kind], USERS[kind])
    return subprocess.Popen(
        ["/bin/sh", "-c", shell, str(FILE_BLOCKS), *argv],
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("STENO_")}
        | {"TMPDIR": ".", "HOME": "."},  # the folders above may be closed to this user
        user=USERS[kind] if root else None,
        group=USERS[kind] if root else None,
        extra_groups=_groups() if root else None,
    )


def _groups() -> list[int]:
    """The groups of the GPU's devices."""
    found = set()
    for device in ("/dev/kfd", "/dev/dri/renderD128"):
        with contextlib.suppress(OSError):
            found.add(Path(device).stat().st_gid)
    return sorted(found)


def _taken(path: Path, cap: int) -> bytes | None:
    """A regular file's bytes, at most `cap`; None: it is something else, larger, or not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        return file.read(cap + 1) if stat.S_ISREG(about.st_mode) and about.st_size <= cap else None


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in _tasks(one):
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text("ascii").split())
    return found


def _tasks(pid: int) -> list[Path]:
    """The folders of a process's threads."""
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


_alive: set[int] = set()
"""The programs that were started and have not ended."""
_others: set[int] = set()
"""Our children of before, which are no programs."""


def _end_orphans() -> None:
    """End the processes that became ours because their parents ended, and those they leave in turn."""
    while orphans := set(_family(os.getpid())[1:]) - {one for pid in _alive | _others for one in _family(pid)}:
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


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
