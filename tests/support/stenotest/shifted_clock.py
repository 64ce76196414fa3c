"""The command on a machine whose wall clock a test sets while it runs."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stenotest.steno_process import Popen

_PROGRAM = """
import sys, time
from pathlib import Path
shift, real = Path(sys.argv.pop(1)), time.time_ns
time.time_ns = lambda: real() + int(shift.read_text())
time.time = lambda: time.time_ns() / 1e9
from steno.cli.main import main
main()
"""


class ShiftedClock(ExitStack):
    """The wall clock of the processes that it starts, and kills at the end; their boot time stays the machine's."""

    def __init__(self, file: Path, home: Path, environment: dict[str, str]) -> None:
        super().__init__()
        self._file, self._home, self._environment = file, home, environment
        self.set(0)

    def set(self, seconds: int) -> None:
        """From now on it is so many seconds ahead."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(seconds * 1_000_000_000))
        fresh.replace(self._file)

    def start(self, *words: str, log: Path) -> Any:
        """`steno WORDS` in the background, which adds its output to `log`."""
        options = {"cwd": self._home, "env": self._environment}
        with log.open("a") as out:
            process = Popen((str(self._file), *words), program=_PROGRAM, stdout=out, stderr=out, **options)
        self.callback(process.wait)
        self.callback(process.kill)
        return process
