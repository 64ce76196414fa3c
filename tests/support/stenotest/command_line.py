"""Types for tests of the command line, and the settings of a service."""

import subprocess
from collections.abc import Callable
from typing import Protocol

SERVICE = {"api.port": "0", "api.loopback": "open"}
"""Settings of every service that a test starts: a port of its own, as many run side by side; open to this machine, as
root has to say.
"""
VARIABLES = {f"STENO_{name.upper().replace('.', '_')}": value for name, value in SERVICE.items()}


Background = Callable[..., "subprocess.Popen[str]"]
"""Starts the genuine command, which goes on: `background("record", out=…, err=…)`."""


class Steno(Protocol):
    """The genuine command, run to its end in a home of its own."""

    def __call__(
        self, *words: object, stdin: str | None = None, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Its output as text, and its exit code."""
        ...


def refused(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    """The one line on stderr of a call that left with this code and printed nothing; no traceback."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("steno: ")
    return lines[0]
