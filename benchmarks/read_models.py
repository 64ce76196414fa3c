"""Reading a record of a million events through its projections.

    python benchmarks/read_models.py [POLLS]

Commands are timed over their imports, in turns with them.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.support import SIZE, Measured, measured, report, say

from steno.cli.catalogue import module_of
from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up, rebuilt
from steno.projections.read_models.view import View

POLLS, ROUNDS = SIZE.count(2_000, 100_000, 950_000), SIZE.pick(1, 7, 7)
LIFE = 200
"""Polls that show a run before it drops out of the newest runs."""
START = 1_763_600_000 * SECOND


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
    """Lists, one after the other, five seconds apart; a new run every LIFE / 2 polls, two listed at a time."""
    for number in range(POLLS):
        newest = number // (LIFE // 2)
        items = [run_item(run, number - run * (LIFE // 2)) for run in (newest, newest - 1) if run >= 0]
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


def milliseconds(work: Callable[[], object], rounds: int) -> list[float]:
    """The times of so many calls."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


IMPORTS = (
    "import steno.cli.program, steno.cli.commands.{0}, steno.cli.wiring.view, steno.cli.wiring.time_arguments, "
    "steno.cli.render.runs, steno.cli.render.pictures, steno.cli.render.explain, "
    "steno.projections.read_models.projector, steno.projections.read_models.view, steno.projections.answers.explain, "
    "steno.engine.providers.registry, steno.engine.settings.settings, steno.events.store.record, platformdirs, "
    "sqlalchemy.dialects.sqlite"
)


def command(path: Path, *words: str) -> list[float]:
    """Milliseconds of a read command over those of its imports alone, in turns."""
    steno = [sys.executable, "-m", "steno.cli.main", "--record", str(path), *words]
    imports = [sys.executable, "-c", IMPORTS.format(module_of(words[0]))]

    def process(line: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return (time.perf_counter() - start) * 1000

    return [process(steno) - process(imports) for _ in range(ROUNDS)]


def main() -> Iterator[Measured]:
    """A run opened, and four commands."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        fill(path)
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
            of = f"{record.head().position:,} events"
            start = time.perf_counter()
            runs = rebuilt(record)
            say(f"rebuild of {runs:,} runs: {time.perf_counter() - start:.2f} s")
            with caught_up(record) as store:
                view = View(store)
                names = [f"bench-{number}" for number in range(0, runs, max(1, runs // 200))]
                each = iter(names * 2)
                yield measured("open-run", of, milliseconds(lambda: view.run(next(each)), len(names)))
        for words in (["ps"], ["show", "bench-7"], ["timeline", "bench-7"], ["explain", "bench-7"]):
            yield measured(f"read-{words[0]}", of, command(path, *words))


if __name__ == "__main__":
    report(main())
