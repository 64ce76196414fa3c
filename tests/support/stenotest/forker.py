"""The process that has imported Steno and forks `steno`: `python forker.py DESCRIPTOR` (see `stenotest.prefork`).

It has one thread, opens no file, and leaves when the connection on DESCRIPTOR closes.
"""

import atexit
import contextlib
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import threading
import time

_HEAD = struct.Struct("<Q")
_STATUS = struct.Struct("<i")


def main() -> None:
    shrink_if_asked = importlib.import_module("small_segments").shrink_if_asked
    thrift = importlib.import_module("thrift")
    sys.path.pop(0)  # this folder
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    _import_all()
    shrink_if_asked()
    thrift.read_authorities_once()
    thrift.pass_over_what_stays()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 1024)
            _tell_the_ended(running)
        if control in ready:
            head, fds, _, _ = socket.recv_fds(control, _HEAD.size, 4)
            if not head:
                return
            body = _exactly(control, _HEAD.unpack(head)[0])
            status = socket.socket(fileno=fds.pop())
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for other in (control, status, *running.values()):
                    other.close()
                os.close(wake)
                os.close(waker)
                _become(json.loads(body), fds)
                return
            for fd in fds:
                os.close(fd)
            running[pid] = status
            status.send(_STATUS.pack(pid))


def _tell_the_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as asked_by, contextlib.suppress(OSError):  # nobody may wait for it
            asked_by.send(_STATUS.pack(status))


def _import_all() -> None:
    """Everything that a command may import, but what reads the user's home while it is imported."""
    for package in ("cli", "projections", "engine", "events"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__") and "._examples" not in module.name:
                importlib.import_module(module.name)
    importlib.import_module("sqlalchemy.dialects.sqlite.pysqlite")
    importlib.import_module("dstack._internal.core.models.configurations")
    assert "dstack._internal.core.services.repos" not in sys.modules


def _become(asked: dict, fds: list[int]) -> None:
    """This process as `python -m cli.main WORDS…` would be."""
    for fd, standard in zip(fds, range(3), strict=True):
        os.dup2(fd, standard)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    sys.path.insert(0, asked["cwd"])
    main = importlib.import_module("cli.main")
    sys.argv[:] = [main.__file__, *asked["words"]]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8", "surrogateescape")
    sys.stdout = sys.__stdout__ = _writer(1, "surrogateescape")
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", at_once=True)
    try:
        main.main()
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise
        _end(ended.code or 0)
    _end(0)


def _end(code: int) -> None:
    """End as Python does: threads, what is registered, output. What follows there, taking every module apart, would
    copy the memory that this process shares with its parent: 50 of the 67 ms of CPU of `steno --version`.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise SystemExit(code) from None  # Python itself says what it says then
    os._exit(code)


def _writer(fd: int, errors: str, *, at_once: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(fd, "w")), "utf-8", errors, line_buffering=at_once or os.isatty(fd)
    )


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connection.recv(min(1 << 16, size - len(found)))
    return found


if __name__ == "__main__":
    main()
