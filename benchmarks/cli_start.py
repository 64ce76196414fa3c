"""How long `steno --help` takes over bare Python, both measured in turns."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support import SIZE, Measured, measured, report, say

ROUNDS = SIZE.pick(1, 15, 15)


def milliseconds(*command: str) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def main() -> Iterator[Measured]:
    """The differences."""
    steno = str(Path(sys.executable).with_name("steno"))
    bare, help_ = [], []
    for _ in range(ROUNDS):
        bare.append(milliseconds(sys.executable, "-c", "pass"))
        help_.append(milliseconds(steno, "--help"))
    say(f"python -c pass {min(bare):.1f} ms, steno --help {min(help_):.1f} ms at best")
    over = [there - base for there, base in zip(help_, bare, strict=True)]
    yield measured("help-start", f"{ROUNDS} starts in turns", over)


if __name__ == "__main__":
    report(main())
