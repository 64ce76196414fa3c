"""`steno` as a process of its own, forked from one that has imported Steno already: a third of the processor's time of
a whole run of the tests went into starting Python and importing the same modules.

It is the real command: its own process, arguments, environment, working folder, files and signals, and it ends as any
Python program does. Only what is imported is there before. `run` and `Popen` are those of `subprocess`; with
`STENO_TEST_PREFORK=0`, and where the calling thread has other rights than the process that forks, they start Python.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stenotest import small_segments

PROGRAM = (sys.executable, "-m", "cli.main")
_HEAD = struct.Struct("<Q")
_STATUS = struct.Struct("<i")
_RIGHTS = ("CapEff", "NoNewPrivs", "Seccomp", "Umask", "SigIgn")


def run(
    words: Sequence[str],
    *,
    typed: str | None = None,
    timeout: float = 600,
    check: bool = False,
    text: bool = True,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` of `steno` with these words, its output captured as text; `typed` is its standard input."""
    if typed is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(words, text=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(typed, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def python(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Python with these arguments; forked if they begin as those of `steno` do."""
    if (sys.executable, *argv[:2]) == PROGRAM:
        return Popen(argv[2:], **options)
    return subprocess.Popen([sys.executable, *argv], **options)


class Popen(subprocess.Popen[Any]):
    """As `subprocess.Popen` of `steno` with these words. Only how it begins and how its end is known differ: the three
    methods of CPython's class that do that are overridden.
    """

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self._status: socket.socket | None = None
        super().__init__([*PROGRAM, *words], **options)

    def _execute_child(self, args: Any, executable: Any, *more: Any) -> None:
        """Has it forked. `more`: the parameters of `subprocess.Popen._execute_child` in order."""
        cwd, env = more[3], more[4]
        with _asking:
            forker = _forker()
        if forker is None:
            super()._execute_child(args, executable, *more)
            return
        (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite) = more[8:14]
        given = [fd if fd != -1 else std for fd, std in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        self._status, theirs = socket.socketpair()
        body = json.dumps({"words": args[len(PROGRAM) :], "cwd": str(cwd or Path.cwd()), "env": dict(env)}).encode()
        with theirs, _asking:
            socket.send_fds(forker, [_HEAD.pack(len(body))], [*given, theirs.fileno()])
            forker.sendall(body)
        self.pid = _STATUS.unpack(_exactly(self._status, _STATUS.size))[0]
        self._child_created = True
        devnull: int | None = getattr(self, "_devnull", None)
        for theirs_end, our_end in ((p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread)):
            if -1 not in (theirs_end, our_end) and theirs_end != devnull:
                os.close(theirs_end)
        if devnull is not None:
            os.close(devnull)
        self._closed_child_pipe_fds = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(flags)
        self._status.setblocking(not flags & os.WNOHANG)
        try:
            said = self._status.recv(_STATUS.size)
        except BlockingIOError:
            return 0, 0
        self._status.close()
        return self.pid, _STATUS.unpack(said)[0] if said else 0

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return super()._internal_poll(_deadstate, _waitpid=lambda _pid, flags: self._try_wait(flags))


_asking = threading.Lock()
_started: dict[int, tuple[socket.socket, str]] = {}
"""The connection to the process that forks, and the rights it has, of each process of the tests."""


def _forker() -> socket.socket | None:
    """The connection to the process that forks; None: Python is to be started."""
    if os.environ.get("STENO_TEST_PREFORK") == "0":
        return None
    pid = os.getpid()
    if pid not in _started:
        ours, theirs = socket.socketpair()
        with theirs:
            forker = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("forker.py")), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={name: os.environ[name] for name in ("PATH", small_segments.NAME) if name in os.environ},
                stdin=subprocess.DEVNULL,
            )
        _started[pid] = (ours, _rights())
        atexit.register(lambda: (ours.close(), forker.wait()))
    connection, rights = _started[pid]
    return connection if rights == _rights() else None


def _rights() -> str:
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith(_RIGHTS))


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise OSError("the process that forks `steno` is gone")
        found += piece
    return found
