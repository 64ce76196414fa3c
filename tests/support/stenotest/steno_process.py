"""`steno` as a process of its own, forked by the fork server of `multiprocessing`, which has imported Steno already.

It has its own arguments, environment, working folder, files and signals. With `program=`, a text, it is what
`python -c` makes of that text, Steno being imported already. `STENO_TEST_FORK=0` starts Python instead.
"""

from __future__ import annotations

import functools
import importlib
import io
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import connection, reduction
from pathlib import Path
from typing import IO, Any

from stenotest import small_segments

PROGRAM = (sys.executable, "-m", "steno.cli.main")
PACKAGES = ("steno.cli", "steno.projections", "steno.engine", "steno.events")
MORE = (
    "sqlalchemy.dialects.sqlite.pysqlite",
    "dstack._internal.core.models.configurations",
    "transitions",
    "platformdirs.unix",
    "pwd",
)
"""Modules that commands import while they run; none of them reads the user's home."""
_lock = threading.Lock()
"""`multiprocessing` reads the exit codes of all children whenever it starts one."""


def run(
    words: Sequence[str], *, typed: str | None = None, timeout: float = 600, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `steno` with these words, its output captured as text; `typed` is its standard input."""
    with ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        if typed is not None:
            given.write(typed)
            given.seek(0)
            options["stdin"] = given
        with Popen(words, stdout=out, stderr=err, **options) as process:
            try:
                code = process.wait(timeout)
            except BaseException:
                process.kill()
                raise
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(process.args, code, out.read(), err.read())
    if check:
        done.check_returncode()
    return done


def Popen(words: Sequence[str], *, program: str = "", **options: Any) -> Any:  # noqa: N802 - as the class of `subprocess`
    """`steno` with these words, which goes on; the other options are those of `subprocess.Popen`."""
    if os.environ.get("STENO_TEST_FORK") == "0":
        start = (sys.executable, "-c", program) if program else PROGRAM
        return subprocess.Popen([*start, *words], **options)
    return Forked(words, program=program, **options)


def python(argv: Sequence[str], **options: Any) -> Any:
    """Python with these arguments; forked if they begin as those of `steno` do."""
    if (sys.executable, *argv[:2]) == PROGRAM:
        return Popen(argv[2:], **options)
    return subprocess.Popen([sys.executable, *argv], **options)


class Forked:
    """A forked process with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        program: str = "",
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        text: bool = False,
    ) -> None:
        self.args = [*PROGRAM, *words]
        self.returncode: int | None = None
        with ExitStack() as theirs:
            numbers = [_descriptor(stream, number, theirs) for number, stream in enumerate((stdin, stdout, stderr))]
            self.stdout = _pipe(numbers, 1, theirs, text=text) if stdout == subprocess.PIPE else None
            self.stderr = _pipe(numbers, 2, theirs, text=text) if stderr == subprocess.PIPE else None
            if stderr == subprocess.STDOUT:
                numbers[2] = numbers[1]
            args = words, program, str(cwd or Path.cwd()), dict(env), [Descriptor(number) for number in numbers]
            self._process = _context().Process(target=_become, args=args, daemon=True)
            with _lock:
                self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            with _lock:
                self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code when it has ended; minus the signal that killed it.

        Raises:
            subprocess.TimeoutExpired: it goes on after these seconds.
        """
        if not connection.wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """The rest of its standard output and of its standard error; the latter must fit into a pipe."""
        out, err = (None if stream is None else stream.read() for stream in (self.stdout, self.stderr))
        self.wait(timeout)
        return out, err

    def send_signal(self, number: int) -> None:
        """Sends it unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


class Descriptor:
    """An open file that a process is given when it starts: there, the number of the file."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _detach, (reduction.DupFd(self.number),)


def _detach(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


def _descriptor(stream: IO[Any] | int | None, number: int, theirs: ExitStack) -> int:
    if stream is None or stream in (subprocess.PIPE, subprocess.STDOUT):
        return number
    if stream == subprocess.DEVNULL:
        return theirs.enter_context(Path(os.devnull).open("r+b", 0)).fileno()
    return stream if isinstance(stream, int) else stream.fileno()


def _pipe(numbers: list[int], number: int, theirs: ExitStack, *, text: bool) -> IO[Any]:
    """The end to read of a new pipe; the other becomes the file of this number."""
    ours, numbers[number] = os.pipe()
    theirs.callback(os.close, numbers[number])
    return os.fdopen(ours, "r" if text else "rb")


@functools.cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    names = [
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        if not module.name.endswith("__main__") and "._examples" not in module.name
    ]
    context.set_forkserver_preload([*names, *MORE])
    return context


def _become(
    words: Sequence[str], program: str, cwd: str, environment: Mapping[str, str], streams: Sequence[int]
) -> None:
    """Does in this process what `python -m steno.cli.main WORDS…` does, or `python -c PROGRAM WORDS…`."""
    small_segments.shrink_if_asked()
    multiprocessing.current_process().daemon = False  # a command may have children
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked where a pool of Steno started the server
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path.insert(0, cwd)
    # DuckDB takes a main module without a file for a shell, and draws a bar.
    main = sys.modules["__main__"] = importlib.import_module("steno.cli.main")
    sys.argv[:] = [str(main.__file__), *words]
    sys.stdin = sys.__stdin__ = os.fdopen(0, "r", -1, "utf-8", "surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = _writer(1, "surrogateescape")
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", at_once=True)
    if program:
        exec(program, {"__name__": "__main__"})
    else:
        main.main()


def _writer(number: int, errors: str, *, at_once: bool = False) -> io.TextIOWrapper:
    return os.fdopen(number, "w", 1 if at_once or os.isatty(number) else -1, "utf-8", errors, closefd=False)
