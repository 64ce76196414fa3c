"""Commands of `steno` in this process: a fifth of the work of a process of their own."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from steno.cli.program import run as run_command
from steno.cli.program import steno
from steno.cli.wiring.app import App
from stenotest import steno_process

UNSET = ("STENO_PROVIDER", "STENO_PROJECT", "DSTACK_PROJECT", "FORCE_COLOR", "AMD_GRANT_CREDITS_TOTAL")


class InProcess:
    """`here("ps", "--all")`: a command with the home folder `home` and the record in it."""

    def __init__(self, home: Path, **variables: str) -> None:
        plain = {"COLUMNS": "80", "NO_COLOR": "1", "HOME": str(home), "STENO_RECORD": str(home / "record.db")}
        self._environment = dict.fromkeys(UNSET, "") | plain | variables

    def __call__(self, *words: object, **variables: str) -> Result:
        self.app = App()
        return CliRunner(env=self._environment | variables).invoke(steno, [str(word) for word in words], obj=self.app)

    def page(self, *words: object, **variables: str) -> str:
        """The text of a command that succeeds."""
        done = self(*words, **variables)
        assert done.exit_code == 0, done.output
        return done.output

    def json(self, *words: object, **variables: str) -> Any:
        """The JSON of a command that succeeds."""
        done = self(*words, "--json", **variables)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


READS: Final = {
    "ps": (), "show": (), "explain": (), "timeline": (), "compare": (), "events": (), "polls": (), "poll": (),
    "verify": (), "costs": (), "changes": (), "incidents": (), "metrics": (), "workers": (), "config": (),
    "waste": (), "report": (), "cases": (), "whatif": (), "states": (), "audit": (), "sql": (), "export": (),
    "import": (), "rebuild": (), "token": (), "vms": ("stop", "gone", "keep"), "budget": (),
    "notify": ("test",), "kernel": ("submit",), "replay": ("--jobs", "--dask"), "db": ("restore", "upgrade"),
}  # fmt: skip
"""Commands that start, stop and await nothing; each with the words that make it do so."""
FOLLOWS: Final = {"-f", "--follow", "--wait", "--watch"}
TAKES_A_WORD: Final = ("--record",)


def reads(words: Sequence[str]) -> bool:
    """True if a command uses the record alone, and ends by itself."""
    rest = iter(words)
    for word in rest:
        if word in TAKES_A_WORD:
            next(rest, None)
        elif not word.startswith("-"):
            return word in READS and not {*words} & {*READS[word], *FOLLOWS}
    return False


def run(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], typed: str | None, timeout: float) -> Any:
    """As `steno_process.run`; a command that uses the record alone runs in this process, to its line and exit code.

    Any value of STENO_TEST_FORK gives each command a process, as `make test-long` does.
    """
    here = reads(words) and typed is None and threading.current_thread() is threading.main_thread()
    if not here or "PYTHONPATH" in env or "STENO_TEST_FORK" in os.environ:
        return steno_process.run(words, cwd=cwd, env=env, typed=typed, timeout=timeout)
    with _surroundings(cwd, env) as (out, err):
        code = run_command([*words])
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [io.TextIOWrapper(io.BytesIO(stream.getvalue()), "utf-8").read() for stream in (out, err)]
    return subprocess.CompletedProcess([*steno_process.PROGRAM, *words], code, *texts)


@contextmanager
def _surroundings(cwd: Path, env: Mapping[str, str]) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Streams, folder, variables, warnings and logs of a process; what was here before comes back."""
    before, main = (Path.cwd(), dict(os.environ), (sys.stdin, sys.stdout, sys.stderr)), sys.modules["__main__"]
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out, err = io.BytesIO(), io.BytesIO()
    try:
        os.chdir(cwd)
        _set_variables(env)
        sys.modules["__main__"] = import_module("steno.cli.main")  # DuckDB draws a bar where the main one has no file
        sys.stdin = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape")
        sys.stdout = io.TextIOWrapper(out, "utf-8", "surrogateescape")
        sys.stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", line_buffering=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield out, err
    finally:
        sys.modules["__main__"] = main
        sys.stdin, sys.stdout, sys.stderr = before[2]
        root.handlers[:] = handlers
        root.setLevel(level)
        os.chdir(before[0])
        _set_variables(before[1])


def _set_variables(variables: Mapping[str, str]) -> None:
    zone = os.environ.get("TZ")
    os.environ.clear()
    os.environ.update(variables)
    if zone != os.environ.get("TZ"):
        time.tzset()
