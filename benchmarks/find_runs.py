"""Finding runs on a record of 100,000: over HTTP, by `steno ps`, and at a past moment.

python benchmarks/find_runs.py [RUNS]
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from benchmarks.support import SIZE, Measured, measured, report, say

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock, format_time
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.projector import rebuilt

RUNS = SIZE.count(500, 20_000, 100_000)
PAGE, ROUNDS, STARTS = 100, SIZE.pick(2, 40, 40), SIZE.pick(1, 3, 7)
START = 1_763_600_000 * SECOND
LARGE, PAST = "500 runs", "a search half way back"
GPUS = ("MI300X", "H100", "A100", "MI250X")
QUERIES = {
    "the newest": "",
    "a state": "state=failed",
    "a state that none has": "state=lost",
    "a reason": "reason=exit_nonzero&sort=duration",
    "a user": "user=user-17",
    "a GPU, oldest first": "gpu=h100&order=oldest",
    "a day": f"since={format_time(START + 3600 * SECOND)}&until={format_time(START + 86_400 * SECOND)}",
    "search, many found": "search=train.py",
    "search, one found": "search=--seed+77777",
    "search, none found": "search=nothing+like+it",
    "search of 2,000 characters": f"search={'x' * 2000}",
    "search by name, A to Z": "search=TRAIN&sort=name",
    "search by cost, failed": "search=train&sort=cost&state=failed",
    "an unknown user (400)": "user=nobody",
}
PS = (
    (),
    ("--failed",),
    ("-s", "--seed 77777"),
    ("-s", "nothing like it"),
    ("--user", "user-17", "--gpu", "H100"),
    ("--sort", "cost", "-w", "-n", "50"),
    ("-q", "-n", "1", "--state", "failed"),
)
IMPORTS = (
    "import steno.cli.program, steno.cli.commands.ps, steno.cli.wiring.view, steno.cli.wiring.time_arguments, "
    "steno.cli.render.runs, steno.projections.read_models.projector, steno.projections.read_models.view, "
    "steno.engine.providers.registry, steno.engine.settings.settings, steno.events.store.record, platformdirs, "
    "sqlalchemy.dialects.sqlite, steno.projections.read_models.run_query"
)


def item(number: int, at: int) -> dict[str, object]:
    """An ended run, as a server shows it."""
    failed = number % 5 == 0
    done = {
        "id": f"s{number}",
        "submission_num": 0,
        "status": "failed" if failed else "done",
        "termination_reason": "container_exited_with_error" if failed else "done_by_runner",
        "exit_status": int(failed),
        "submitted_at": format_time(at),
        "finished_at": format_time(at + (number % 977) * SECOND),
    }
    command = (
        f"python train.py --model base --lr 0.{number % 100:03} --epochs 10 --seed {number} --data /set-{number % 31}"
    )
    configuration = {
        "type": "task",
        "commands": ["cd /workspace/project && pip install -r requirements.txt", command],
        "image": "rocm/pytorch:latest",
        "resources": {"gpu": f"{GPUS[number % 4]}:{1 + number % 2}"},
    }
    return {
        "id": f"run-{number:08}",
        "project_name": "main",
        "user": f"user-{number % 40}",
        "submitted_at": format_time(at),
        "status": str(done["status"]),
        "termination_reason": "job_failed" if failed else "all_jobs_done",
        "cost": number % 500 / 100,
        "run_spec": {"run_name": f"train-{number % 9000}", "configuration": configuration},
        "jobs": [{"job_spec": {"replica_num": 0, "job_num": 0}, "job_submissions": [done]}],
        "latest_job_submission": done,
    }


def polls() -> Iterator[Poll]:
    """Each shows the next page of runs."""
    for first in range(0, RUNS, PAGE):
        at = START + first * 60 * SECOND
        items = [item(number, START + number * 60 * SECOND) for number in range(first, min(RUNS, first + PAGE))]
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


def p95(taken: list[float]) -> float:
    """The 95th percentile."""
    return sorted(taken)[max(0, int(len(taken) * 0.95) - 1)]


def processor_ms(pid: int) -> float:
    """Milliseconds of CPU time of a process, which other work on the machine hardly changes; 0 where it is unknown."""
    used = Path("/proc", str(pid)).glob("task/*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in used) / 1e6


def over_http(path: Path, environ: dict[str, str]) -> dict[str, list[float]]:
    """Milliseconds of every query but its first, in turns, so that a busy machine slows all of them."""
    line = [sys.executable, "-m", "steno.cli.main", "--record", str(path), "serve", "--port", "0"]
    server = subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = next(match[0] for text in server.stdout or () if (match := re.search(r"http://127\S+:\d+", text)))
        with httpx.Client(base_url=url, trust_env=False, timeout=600) as client:
            while client.get("/api/runs?limit=1").status_code == 503:
                time.sleep(0.5)
            head = client.get("/api/record").json()["position"]
            queries = QUERIES | {PAST: f"search=--seed+111&at={head // 2}"}
            taken: dict[str, list[float]] = {name: [] for name in (*queries, "known values", LARGE)}
            worked: dict[str, list[float]] = {name: [] for name in taken}
            paths = {name: f"/api/runs?{query}" for name, query in queries.items()}
            paths |= {"known values": "/api/filters", LARGE: "/api/runs?order=oldest&limit=500"}
            for _ in range(1 + ROUNDS):
                for name, address in paths.items():
                    start, before = time.perf_counter(), processor_ms(server.pid)
                    client.get(address)
                    taken[name].append((time.perf_counter() - start) * 1000)
                    worked[name].append(processor_ms(server.pid) - before)
            for name, times in taken.items():
                summary = (
                    f"p50 {statistics.median(times):6.1f} ms  p95 {p95(times[1:]):6.1f} ms  first {times[0]:6.0f} ms"
                )
                say(f"HTTP {name:<28} {summary}  CPU {statistics.median(worked[name]):5.1f} ms")
            return {name: times[1:] for name, times in taken.items()}
    finally:
        server.terminate()
        server.wait()


def by_ps(path: Path, environ: dict[str, str]) -> dict[str, list[float]]:
    """Milliseconds of each command over its imports alone, in turns."""

    def process(line: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(line, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return (time.perf_counter() - start) * 1000

    steno = [sys.executable, "-m", "steno.cli.main", "--record", str(path), "ps"]
    imports = [sys.executable, "-c", IMPORTS]
    times = {}
    for words in PS[: SIZE.pick(1, len(PS), len(PS))]:
        over = [process([*steno, *words]) - process(imports) for _ in range(STARTS)]
        say(f"steno ps {' '.join(words):<32} {statistics.median(over):5.0f} ms over imports")
        times[" ".join(words)] = over
    return times


def main() -> Iterator[Measured]:
    """The slowest of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        path, environ = Path(folder) / "record.db", os.environ | {"HOME": folder, "COLUMNS": "200"}
        with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            batch: list[Poll] = []
            for poll in polls():
                batch.append(poll)
                if len(batch) == 20:
                    record.append_polls(batch)
                    batch.clear()
            record.append_polls(batch)
            start = time.perf_counter()
            of = f"{rebuilt(record):,} runs"
            say(f"read models of {of} built in {time.perf_counter() - start:.1f} s")
        by_query = over_http(path, environ)
        large = by_query.pop(LARGE)
        searches = [times for name, times in by_query.items() if "search" in name]
        pages = [times for name, times in by_query.items() if "search" not in name]
        for name, worst in (
            ("find-page", max(pages, key=p95)),
            ("find-search", max(searches, key=p95)),
            ("find-500", large),
        ):
            yield measured(name, of, worst, value=p95(worst))
        yield measured("find-ps", of, max(by_ps(path, environ).values(), key=statistics.median))


if __name__ == "__main__":
    report(main())
