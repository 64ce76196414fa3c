"""How long `steno --help` takes over bare Python. Target: at most 80 ms, both measured in this run, interleaved."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
TARGET_MS = 80.0


def milliseconds(*command: str) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Print bare Python, `steno --help` and the median of the differences."""
    steno = str(Path(sys.executable).with_name("steno"))
    bare, help_ = [], []
    for _ in range(ROUNDS):
        bare.append(milliseconds(sys.executable, "-c", "pass"))
        help_.append(milliseconds(steno, "--help"))
    over = statistics.median(there - base for there, base in zip(help_, bare, strict=True))
    print(f"python -c pass {statistics.median(bare):6.1f} ms")
    print(f"steno --help   {statistics.median(help_):6.1f} ms")
    print(f"over           {over:6.1f} ms   target ≤ {TARGET_MS:.0f} ms   {'ok' if over <= TARGET_MS else 'MISSED'}")


if __name__ == "__main__":
    main()
