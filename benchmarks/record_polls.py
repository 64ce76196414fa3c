"""The cost of a poll of one run: CPU to take in, bytes to keep.

    python benchmarks/record_polls.py [POLLS]

The polls are made from a run that a genuine server described, filled up to 8.8 KB: `cost` and `last_processed_at` move
at every poll, 8 % of the polls show a change, every 60th begins another run with ids and environment of its own.
"""

import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
from benchmarks.support import ROOT, SIZE, Measured, measured, report, say

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock, format_time
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.traces.trace import TraceReading, read_trace

BYTES = 8800
COUNT, ROUNDS = SIZE.count(120, 6_000, 60_000), SIZE.pick(1, 5, 5)
REQ = b'{"project_name":"main","limit":100}'
PHASES = ("submitted", "provisioning", "pulling", "running", "terminating", "done")


def a_run() -> dict:
    """A run as a genuine 0.22.5 server showed it while it was running."""
    reading = TraceReading(source_of=READINGS.source, answered=READINGS.answered)
    row = None
    for _, poll in read_trace(ROOT / "tests/traces/dstack-0.22.5/success.jsonl.zst", reading):
        if poll is not None and poll.path == "/api/runs/list" and poll.body is not None and len(poll.body) > 5000:
            row = json.loads(poll.body)[0]
    assert row is not None
    return row


def polls(count: int, *, quiet: bool = False) -> Iterator[Poll]:
    """`count` polls of one run at a time, five seconds apart; while `quiet` nothing moves but the volatile values."""
    run, rng, moment = a_run(), random.Random(7), 1_795_000_000 * SECOND
    submission = run["jobs"][0]["job_submissions"][-1]
    for number in range(count):
        moment += 5 * SECOND + rng.randrange(200_000)
        in_run = number % 60
        if in_run == 0:
            begin(run, rng, moment)
        if not quiet and in_run in (0, 2, 5, 9, 58):
            phase = PHASES[(0, 2, 5, 9, 58).index(in_run)]
            run["status"], submission["status"], submission["status_message"] = phase, phase, phase
        run["last_processed_at"] = format_time(moment - rng.randrange(4 * SECOND))
        submission["last_processed_at"] = format_time(moment - rng.randrange(4 * SECOND))
        run["cost"] = round(in_run * 5 * 1.99 / 3600, 4)
        run["latest_job_submission"] = submission
        yield Poll(
            source="dstack/main",
            path="/api/runs/list",
            req=REQ,
            started_at=moment - 20_000 - rng.randrange(9000),
            observed_at=moment,
            status=200,
            body=msgspec.json.encode([run]),
            answered=True,
            complete=True,
            server_time=moment // SECOND * SECOND,
        )


def begin(run: dict, rng: random.Random, moment: int) -> None:
    """Make it another run: new ids and names, its own environment."""
    submission = run["jobs"][0]["job_submissions"][-1]
    run["id"], submission["id"] = (str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(2))
    run["submitted_at"] = submission["submitted_at"] = format_time(moment)
    name = f"run-{rng.randrange(10**6)}"
    run["run_spec"]["run_name"] = run["run_spec"]["configuration"]["name"] = name
    environment = {"TOKEN": f"secret-{rng.getrandbits(64):x}", "SEED": str(rng.randrange(1000))}
    run["run_spec"]["configuration"]["env"] = run["jobs"][0]["job_spec"]["env"] = environment
    run["run_spec"]["configuration"]["commands"] = [f"python kernel.py --shape {name}"]
    missing = BYTES - len(msgspec.json.encode([run]))
    if missing > 0:
        run["run_spec"]["configuration"]["commands"].append("# " + "".join(rng.choices("abcdef 0123", k=missing)))


def day() -> Iterator[Poll]:
    """A day of one project, scaled down tenfold: a third of the time a run is polled, the rest nothing is active."""
    yield from polls(600)
    moment, rng = 1_796_000_000 * SECOND, random.Random(9)
    for _ in range(1128):
        moment += 5 * SECOND
        yield Poll(
            source="dstack/main",
            path="/api/runs/list",
            req=REQ,
            started_at=moment - 9000 - rng.randrange(3000),
            observed_at=moment,
            status=200,
            body=b"[]",
            answered=True,
            complete=True,
            server_time=moment // SECOND * SECOND,
        )


def measure(given: list[Poll], batch: int) -> tuple[float, float]:
    """Microseconds of CPU and bytes of file, a poll."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        with Record.open(path, clock=SystemClock(), write=True, create=True, shapes=READINGS.shape) as record:
            empty = path.stat().st_size
            record.vault.commitment(b"")
            started = time.process_time()
            for start in range(0, len(given), batch):
                record.append_polls(given[start : start + batch])
            spent = time.process_time() - started
            assert record.poll(len(given) // 2 + 1).path == "/api/runs/list"
        return spent / len(given) * 1e6, (path.stat().st_size - empty) / len(given)


def decode_alone(given: list[Poll]) -> float:
    """Microseconds to decode one answer into Python values: what a reader that keeps nothing would pay."""
    started = time.process_time()
    for poll in given:
        msgspec.json.decode(poll.body or b"")
    return (time.process_time() - started) / len(given) * 1e6


def rows(name: str, size: str, of: str, given: list[Poll]) -> Iterator[Measured]:
    """CPU to take in and bytes to keep, of batches."""
    figures = [measure(given, 500) for _ in range(ROUNDS)]
    yield measured(name, of, [cost for cost, _ in figures])
    yield measured(size, of, [kept for _, kept in figures])


def main() -> Iterator[Measured]:
    """Answers that only tick, answers with changes, and a typical day."""
    changing, still = list(polls(COUNT)), list(polls(60, quiet=True)) * (COUNT // 60)
    of = f"{COUNT:,} polls of {len(changing[-1].body or b''):,} bytes"
    say(f"decoding one alone: {min(decode_alone(changing) for _ in range(ROUNDS)):.1f} µs")
    yield from rows("ingest-still", "poll-size-still", of, still)
    yield from rows("ingest", "poll-size", of, changing)
    yield measured("ingest-single", of, [measure(changing, 1)[0]])
    yield measured("poll-size-day", "a day of one project, a tenth of it", [measure(list(day()), 500)[1]])


if __name__ == "__main__":
    report(main())
