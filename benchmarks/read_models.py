"""Reading a record of a million events through its projections.

Targets, over the imports (measured in the same run): any read command ≤ 150 ms on a checkpointed record of 1M events;
opening any one run ≤ 2 ms. Give a smaller number of polls as the first argument for a quick look.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cli.catalogue import module_of
from engine.providers.readings import READINGS
from events.clock import SECOND, SystemClock
from events.poll import Poll
from events.store.record import Record
from projections.models.projector import caught_up, rebuilt
from projections.models.view import View

POLLS = int(sys.argv[1]) if len(sys.argv) > 1 else 950_000
LIFE = 200
"""Polls that show a run before it drops out of the newest ones."""
START = 1_763_600_000 * SECOND
READ_TARGET_MS, OPEN_TARGET_MS = 150.0, 2.0


def run_item(number: int, age: int) -> dict[str, object]:
    """A run as dstack shows it at that age."""
    steps = (("submitted", "submitted"), ("provisioning", "provisioning"), ("running", "running"), ("done", "done"))
    run, job = steps[min(3, age * 4 // LIFE)]
    submission = {
        "id": f"s{number}",
        "submission_num": 0,
        "status": job,
        "termination_reason": "done_by_runner" if job == "done" else None,
        "exit_status": 0 if job == "done" else None,
        "submitted_at": "2025-11-20T00:00:00+00:00",
    }
    return {
        "id": f"run-{number:08}",
        "project_name": "main",
        "user": "bench",
        "submitted_at": "2025-11-20T00:00:00+00:00",
        "last_processed_at": "2025-11-20T00:00:00+00:00",
        "status": run,
        "termination_reason": "all_jobs_done" if run == "done" else None,
        "cost": round(age * 0.0001, 4),
        "run_spec": {"run_name": f"bench-{number}", "configuration": {"type": "task"}},
        "jobs": [{"job_spec": {"replica_num": 0, "job_num": 0}, "job_submissions": [submission]}],
        "latest_job_submission": submission,
    }


def polls() -> Iterator[Poll]:
    """One list after the other, five seconds apart; a new run every LIFE / 2 polls, two listed at a time."""
    for number in range(POLLS):
        newest = number // (LIFE // 2)
        items = [run_item(one, number - one * (LIFE // 2)) for one in (newest, newest - 1) if one >= 0]
        at = START + number * 5 * SECOND
        yield Poll(
            source="dstack/main",
            path="/api/runs/list",
            req=b'{"project_name":"main","limit":100}',
            started_at=at,
            observed_at=at + 20_000,
            status=200,
            body=json.dumps(items).encode(),
            answered=True,
        )


def fill(path: Path) -> None:
    """A record of that many polls."""
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        batch: list[Poll] = []
        for poll in polls():
            batch.append(poll)
            if len(batch) == 2000:
                record.append_polls(batch)
                batch.clear()
        record.append_polls(batch)


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median of so many calls."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


IMPORTS = (
    "import cli.program, cli.commands.{0}, cli.wiring.view, cli.wiring.time_arguments, cli.render.runs, "
    "cli.render.timeline, cli.render.explain, projections.models.projector, projections.models.view, "
    "projections.models.explain, engine.providers.readings, engine.settings.settings, events.store.record, "
    "platformdirs, sqlalchemy.dialects.sqlite"
)


def command(path: Path, *words: str) -> tuple[float, float]:
    """(a read command, its imports alone), milliseconds, interleaved."""
    steno = [sys.executable, "-m", "cli.main", "--record", str(path), *words]
    imports = [sys.executable, "-c", IMPORTS.format(module_of(words[0]))]

    def process(line: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return (time.perf_counter() - start) * 1000

    pairs = [(process(steno), process(imports)) for _ in range(7)]
    return statistics.median(whole for whole, _ in pairs), statistics.median(alone for _, alone in pairs)


def main() -> None:
    """Print what each takes beside its target."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        start = time.perf_counter()
        fill(path)
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
            events = record.head().position
            print(f"{events:,} events written in {time.perf_counter() - start:.1f} s")
            start = time.perf_counter()
            runs = rebuilt(record)
            taken = time.perf_counter() - start
            print(f"rebuild of {runs:,} runs      {taken:8.2f} s   {events / taken:,.0f} events/s")
            with caught_up(record) as store:
                view = View(store)
                names = [f"bench-{number}" for number in range(0, runs, max(1, runs // 200))]
                each = iter(names * 2)
                opened = milliseconds(lambda: view.run(next(each)), len(names))
                print(
                    f"open one run             {opened:8.3f} ms  target ≤ {OPEN_TARGET_MS:.0f} ms  "
                    f"{'ok' if opened <= OPEN_TARGET_MS else 'MISSED'}"
                )
        for words in (["ps"], ["show", "bench-7"], ["timeline", "bench-7"], ["explain", "bench-7"]):
            whole, alone = command(path, *words)
            over = whole - alone
            told = "ok" if over <= READ_TARGET_MS else "MISSED"
            print(
                f"steno {words[0]:<9} {whole:6.0f} ms, {over:5.0f} over imports  target ≤ {READ_TARGET_MS:.0f}  {told}"
            )


if __name__ == "__main__":
    main()
