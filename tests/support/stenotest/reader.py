"""Somebody who types the commands of a document, one after the other, into a shell in a clone of the project."""

import os
import re
import shlex
import signal
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stenotest import steno_process
from stenotest.waiting import LIMIT_S

ENTER = "\n" * 20
"""The input at questions."""
SERVICE = re.compile(r"(?:\w+=(?:\$\([^)]*\)|\S+) )*(steno (?:up|serve|record|listener)|dask \w+)\b")
_OPERATORS = "|&;<>()"
READY = {
    "steno up": "recording ",
    "steno record": "recording ",
    "steno serve": "serving ",
    "steno listener": "listening ",
    "dask scheduler": "Scheduler at:",
    "dask worker": "Registered to:",
}
"""The line that a service prints when it is ready."""
ALONE = ("steno up", "steno record", "steno serve")
"""A reader ends the one before typing the next."""
STOPPED = ("steno db restore",)
"""Before these a reader ends all that uses the record, as the pages say."""


class Reader:
    """Types commands. `close` ends what goes on, by SIGTERM."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.printed = ""
        """By all commands so far, and by what goes on."""
        self._going: dict[str, subprocess.Popen[str]] = {}
        self._ends = ExitStack()

    def type(self, text: str, **variables: str) -> tuple[int, str]:
        """Its exit status and what it printed. 0 for a service, as soon as it is ready."""
        if text.startswith(STOPPED):
            self._end_alone()
        service = SERVICE.match(text)
        if service:
            return self._start(service[1], text.partition("#")[0].rstrip(" &"))
        words = _plain(text)
        environment = self.environment | variables
        if words:
            done = steno_process.run(words[1:], cwd=self.folder, env=environment, typed=ENTER, timeout=LIMIT_S)
            printed = done.stdout + done.stderr
        else:
            after, out = self.folder.parent / "environment", self.folder.parent / "output"
            script = f"{text}\nstatus=$?; env -0 > {after}; exit $status"
            with out.open("w") as written:  # a pipe would be open as long as what a command leaves behind
                done = subprocess.run(
                    ["bash", "-c", script], cwd=self.folder, env=environment, input=ENTER, timeout=LIMIT_S,
                    stdout=written, stderr=subprocess.STDOUT, text=True, check=False,
                )  # fmt: skip
            if text.startswith("export "):
                self.environment = dict(pair.split("=", 1) for pair in after.read_text().split("\0") if pair)
            printed = out.read_text()
        self.printed += printed
        return done.returncode, printed

    def close(self) -> None:
        """End what goes on; each must exit 0."""
        try:
            for name in reversed([*self._going]):
                self._end(name)
        finally:
            self._ends.close()

    def _start(self, name: str, text: str) -> tuple[int, str]:
        if name in ALONE:
            self._end_alone()
        words = shlex.split(subprocess.run(
            ["bash", "-c", f"printf '%q ' {text}"], env=self.environment, capture_output=True, text=True, check=True
        ).stdout)  # fmt: skip
        count = next(number for number, word in enumerate(words) if "=" not in word)
        given = dict(word.split("=", 1) for word in words[:count])
        options: dict[str, Any] = {
            "cwd": self.folder, "env": self.environment | given, "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT, "text": True,
        }  # fmt: skip
        if words[count] == "steno":
            process = self._ends.enter_context(steno_process.Popen(words[count + 1 :], **options))
        else:
            process = self._ends.enter_context(subprocess.Popen(words[count:], **options))
        self._ends.callback(process.kill)
        assert process.stdout is not None
        printed = ""
        late = threading.Timer(LIMIT_S, process.kill)
        late.start()
        for line in process.stdout:
            printed += line
            if READY[name] in line:
                break
        late.cancel()
        self.printed += printed
        if READY[name] not in printed:
            return process.wait() or 1, printed
        self._going[name] = process
        threading.Thread(target=self._drain, args=(process,), daemon=True).start()
        return 0, printed

    def _drain(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed += line

    def _end_alone(self) -> None:
        for name in ALONE:
            self._end(name)

    def _end(self, name: str) -> None:
        process = self._going.pop(name, None)
        if process is not None:
            os.kill(process.pid, signal.SIGTERM)
            code = process.wait(LIMIT_S)
            assert code == 0, (name, code, self.printed[-2000:])


def _plain(text: str) -> list[str]:
    """The words of a command that needs no shell and is ours; else none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    words = [*lexer]
    operators = [word for word in words if not word.strip(_OPERATORS)]
    return words if words[0] == "steno" and not operators and not set(text) & set("$`*?~") else []
