"""A process of the lab, started and ended by its own id."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from stenolab.versions import LAB

END_S = 60.0  # dstack's server takes three seconds to leave by itself


class Process:
    """`python -m module arguments…` with a pipe as standard input (see `stenolab.child`) and its output in `log`."""

    def __init__(
        self, python: Path, module: str, *arguments: object, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(python), "-m", module, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LAB), **(environment or {})},
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C is for pytest, which then ends the lab in its own way
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self, *, gently: bool = False) -> None:
        """Ends it: with SIGTERM if `gently`, else by closing its standard input; killed if it does not listen."""
        if gently and self.alive:
            self._process.terminate()
            self._await_end()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._await_end()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._process.kill()
        self.end()

    def last_words(self, lines: int = 30) -> str:
        """The end of its log, for a failure's message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _await_end(self) -> None:
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
