"""How long it takes from a provider's answer to the event stream, in one process and in two.

    python benchmarks/verdict_latency.py [RUNS]

Runs of the local provider, one after the other, through the real commands: `steno up`, then `steno record` beside
`steno serve`. A message carries when its answer had come (`at`); the listener takes down when the message came.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

from record_table import Measured, show

_READY = re.compile(r"serving (http://[\w.:]+) ")
_ENDED = {"succeeded", "failed", "stopped"}


@contextmanager
def steno(folder: Path, *words: str) -> Iterator[Path]:
    """A command that runs until it is left; where its log is."""
    log = folder / f"{words[0]}.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words, "--record", str(folder / "record.db")],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "HOME": str(folder), "STENO_API_PORT": "0", "STENO_PROVIDER": "local"},
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def served(log: Path) -> str:
    """Where it serves, once it does."""
    for _ in range(600):
        found = _READY.search(log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(log.read_text())


class Listener(threading.Thread):
    """Takes down how late each message came, and of those which ended a run."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.response = urlopen(f"{url}/api/stream")
        self.all: list[float] = []
        self.verdicts: dict[str, float] = {}

    def run(self) -> None:
        for line in self.response:
            now = time.time()
            if not line.startswith(b"data: "):
                continue
            told = json.loads(line[6:])
            if told["event"] not in ("RunObserved", "VmObserved"):
                continue
            late = (now - datetime.fromisoformat(told["at"]).replace(tzinfo=UTC).timestamp()) * 1000
            self.all.append(late)
            run = told.get("run")
            if run is not None and run["state"] in _ENDED:
                self.verdicts.setdefault(run["run_id"], late)


def measured(url: str, runs: int) -> Listener:
    """Submit runs one after the other, each when the one before has its verdict."""
    listener = Listener(url)
    listener.start()
    time.sleep(8)  # what a submission needs is being imported
    for number in range(runs):
        body = json.dumps({"configuration": {"type": "task", "name": f"run-{number}", "commands": ["true"]}}).encode()
        asked = Request(
            f"{url}/api/runs", body, {"Content-Type": "application/json", "Idempotency-Key": f"run-{number}"}
        )
        with urlopen(asked) as answer:
            run_id = json.loads(answer.read())["run_id"]
        end = time.monotonic() + 60
        while run_id not in listener.verdicts:
            if time.monotonic() > end:
                raise SystemExit(f"{run_id} had no verdict within a minute")
            time.sleep(0.02)
    return listener


def rows(what: str, found: Listener, most: float) -> list[Measured]:
    """p50 and the worst of the verdicts and of all messages."""
    target = f"<= {most:.0f} ms"
    told = []
    for name, values in (("verdicts", sorted(found.verdicts.values())), ("all messages", sorted(found.all))):
        median, worst = values[len(values) // 2], values[len(values) * 99 // 100]
        told.append(Measured(f"{what}: {name} ({len(values)}), p50", median, "ms", target, median <= most))
        told.append(Measured(f"{what}: {name}, p99", worst, "ms", target, worst <= most))
    return told


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    table: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder, steno(Path(folder), "up") as log:
        table += rows("steno up", measured(served(log), runs), 50)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(steno(Path(folder), "record"))
        while not (Path(folder) / "record.db").exists():
            time.sleep(0.1)
        log = stack.enter_context(steno(Path(folder), "serve"))
        table += rows("recorder and API apart", measured(served(log), runs), 250)
    show("From a provider's answer to the event stream", table)


if __name__ == "__main__":
    main()
