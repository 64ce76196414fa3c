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

from benchmarks.support import SIZE, Measured, measured, report, say

RUNS, SETTLED = SIZE.count(2, 30, 100), SIZE.pick(1, 8, 8)
"""SETTLED: seconds in which what a submission needs is imported."""
_READY = re.compile(r"serving (http://[\w.:]+) ")
_ENDED = {"succeeded", "failed", "stopped"}


@contextmanager
def steno(folder: Path, *words: str) -> Iterator[Path]:
    """A command that runs until it is left; where its log is."""
    log = folder / f"{words[0]}.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "steno.cli.main", *words, "--record", str(folder / "record.db")],
        cwd=Path(__file__).resolve().parents[1],
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
    """The address at which it serves."""
    for _ in range(600):
        ready = _READY.search(log.read_text())
        if ready is not None:
            return ready[1]
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
            answer = json.loads(line[6:])
            if answer["event"] not in ("RunObserved", "VmObserved"):
                continue
            late = (now - datetime.fromisoformat(answer["at"]).replace(tzinfo=UTC).timestamp()) * 1000
            self.all.append(late)
            run = answer.get("run")
            if run is not None and run["state"] in _ENDED:
                self.verdicts.setdefault(run["run_id"], late)


def followed(url: str) -> Listener:
    """Submit runs one after the other, each when the one before has its verdict."""
    listener = Listener(url)
    listener.start()
    time.sleep(SETTLED)
    for number in range(RUNS):
        body = json.dumps({"configuration": {"type": "task", "name": f"run-{number}", "commands": ["true"]}}).encode()
        request = Request(
            f"{url}/api/runs", body, {"Content-Type": "application/json", "Idempotency-Key": f"run-{number}"}
        )
        with urlopen(request) as answer:
            run_id = json.loads(answer.read())["run_id"]
        end = time.monotonic() + 60
        while run_id not in listener.verdicts:
            if time.monotonic() > end:
                raise SystemExit(f"{run_id} had no verdict within a minute")
            time.sleep(0.02)
    return listener


def row(name: str, listener: Listener) -> Measured:
    """The p99 of the verdicts; of all messages as a detail."""
    verdicts, every = sorted(listener.verdicts.values()), sorted(listener.all)
    say(f"{name}: verdicts p50 {part(verdicts, 50):.1f} ms; all p50 {part(every, 50):.1f}, p99 {part(every, 99):.1f}")
    return measured(name, f"{len(verdicts)} runs", verdicts, value=part(verdicts, 99))


def part(values: list[float], percent: int) -> float:
    """The value that this share of them does not exceed."""
    return values[min(len(values) - 1, len(values) * percent // 100)]


def main() -> Iterator[Measured]:
    """In a single process, then in two."""
    with tempfile.TemporaryDirectory() as folder, steno(Path(folder), "up") as log:
        yield row("verdict-up", followed(served(log)))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(steno(Path(folder), "record"))
        while not (Path(folder) / "record.db").exists():
            time.sleep(0.1)
        log = stack.enter_context(steno(Path(folder), "serve"))
        yield row("verdict-apart", followed(served(log)))


if __name__ == "__main__":
    report(main())
