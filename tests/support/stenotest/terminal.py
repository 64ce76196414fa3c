"""A command whose output goes to a terminal."""

import os
import pty
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from stenotest import steno_process

Start = Callable[..., "subprocess.Popen[Any]"]


class Shown(NamedTuple):
    """Its exit code, what the terminal got, and its standard output if that went elsewhere."""

    code: int
    terminal: str
    out: str


def on_terminal(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    streams: Sequence[str] = ("stdout", "stderr"),
    start: Start = steno_process.Popen,
    seconds: float = 600,
) -> Shown:
    """Run `start(words)` to its end with these streams on one terminal; otherwise standard input is empty.

    Args:
        start: what starts it, as `subprocess.Popen`; by default `steno`.
        seconds: after these it is killed.
    """
    ours, theirs = pty.openpty()
    given: dict[str, int | IO[Any]] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    given |= dict.fromkeys(streams, theirs)
    with start(words, cwd=cwd, env=env, **given) as process:
        os.close(theirs)
        late = threading.Timer(seconds, process.kill)
        late.start()
        printed = b""
        try:
            while piece := os.read(ours, 1 << 16):
                printed += piece
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
        out = b"" if process.stdout is None else process.stdout.read()
        code = process.wait()
        late.cancel()
    return Shown(code, printed.decode(), out if isinstance(out, str) else out.decode())
