"""How fast a history folds: a trace through the command, a record through the Run machine, beside `eventsourcing`.

    python benchmarks/replay.py [POLLS]

The busy record is four endpoints a round, five seconds apart, one run behind the other; a run takes 60 rounds, shows
itself otherwise in six of them, and has a machine of its own, which is listed until it is gone. The long record is
typical days: for two thirds of the time nothing is active, some hundred runs a day. Rates are per second of process
CPU; only ratios mean anything. Memory is measured in a process of its own, over what the imports take.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.support import ROOT, SIZE, Measured, compared, measured, report
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from stenotest.dstack_history import START, job, run_item, submission
from stenotest.machines import machine_item

from steno.engine.fold.poll_reader import Until
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, world_of
from steno.engine.state.state_machines import RUN, TRIGGER_TO, Step, Trigger
from steno.engine.state.states import PROGRESS, State
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.traces.trace import numbered_lines

ROUNDS = SIZE.pick(1, 3, 3)
POLLS = SIZE.count(2_000, 100_000, 1_000_000)
BUSY = 100_000
"""Polls of the busy record, at most."""
IDLE = 120
"""Rounds without a run, behind each run of the long record."""
PHASES = (
    ("submitted", "submitted", None, None, None, 3),
    ("provisioning", "provisioning", None, None, None, 20),
    ("provisioning", "pulling", None, None, None, 8),
    ("running", "running", None, None, None, 20),
    ("running", "terminating", None, "done_by_runner", 0, 3),
    ("terminating", "done", "all_jobs_done", "done_by_runner", 0, 6),
)
MACHINE = ("provisioning", "provisioning", "busy", "busy", "busy", "idle")
"""The machine's row in each phase of its run; then it is terminating for a round, and terminated."""
INSTANCES = ("/api/instances/list", b'{"project_names":["main"],"limit":100}')
OTHERS = (
    ("/api/project/main/fleets/list", b"{}"),
    ("/api/events/list", b'{"limit":100}'),
)
RUNS_LIST = "/api/runs/list"
RUNS = b'{"project_name":"main","limit":100,"only_active":true}'


def history(count: int, idle: int) -> Iterator[Poll]:
    """`count` polls and a few more: the last run is finished. After each run `idle` rounds show nothing."""
    moment, made, number, before = START, 0, 0, b"[]"
    while made < count:
        number += 1
        submitted = (moment - START) / SECOND
        for phase, (run, status, reason, why, exit_status, rounds) in enumerate(PHASES):
            machines = listed(number, MACHINE[phase], submitted, None)
            attempt = submission(
                status, exit_status=exit_status, reason=why, submitted=submitted, hostname="10.0.0.1", price=1.99
            )
            item = run_item(f"run-{number}", run, job(attempt), reason=reason, submitted=submitted)
            head, tail = json.dumps([item], separators=(",", ":")).split('"cost":0.0', 1)
            for turn in range(rounds):
                body = f'{head}"cost":{turn * 0.0028:.4f}{tail}'.encode()
                yield poll(RUNS_LIST, RUNS, moment, body)
                yield poll(*INSTANCES, moment, before if phase == 0 else machines)
                for path, req in OTHERS:
                    yield poll(path, req, moment, b"[]")
                moment += 5 * SECOND
                made += 4
        going = listed(number, "terminating", submitted, None)
        before = listed(number, "terminated", submitted, (moment - START) / SECOND)
        for turn in range(idle):
            yield poll(*INSTANCES, moment, before if turn else going)
            for path, req in ((RUNS_LIST, RUNS), *OTHERS):
                yield poll(path, req, moment, b"[]")
            moment += 5 * SECOND
            made += 4


def listed(number: int, status: str, created: float, finished: float | None) -> bytes:
    """The answer that lists the machine of one run."""
    row = machine_item(f"machine-{number}", status, created=created, finished=finished)
    return json.dumps([row], separators=(",", ":")).encode()


def poll(path: str, req: bytes, moment: int, body: bytes) -> Poll:
    """One answered poll of 12 ms."""
    return Poll(
        source="dstack/main",
        path=path,
        req=req,
        started_at=moment,
        observed_at=moment + 12_000,
        status=200,
        body=body,
        answered=True,
    )


def make(path: Path, count: int, idle: int) -> None:
    """Write the record."""
    with Record.open(path, clock=SystemClock(), write=True, create=True, shapes=READINGS.shape) as record:
        batch: list[Poll] = []
        for poll in history(count, idle):
            batch.append(poll)
            if len(batch) == 2000:
                record.append_polls(batch)
                batch.clear()
        record.append_polls(batch)


def rates(work: Callable[[], int]) -> list[float]:
    """Thousands of events a second of CPU, of several rounds; `work` returns its number of events."""
    figures = []
    for _ in range(ROUNDS):
        began = time.process_time()
        done = work()
        figures.append(done / (time.process_time() - began) / 1000)
    return figures


class Followed(Aggregate):
    """A run as an `eventsourcing` aggregate, one event a status."""

    @event("Started")
    def __init__(self) -> None:
        self.status = "requested"

    @event("Shown")
    def show(self, status: str) -> None:
        """The provider showed this status."""
        self.status = status


def rebuilt() -> list[float]:
    """Thousands of events a second of CPU at which `eventsourcing` rebuilds an aggregate of 2,000."""
    application: Application = Application()
    run = Followed()
    for number in range(1999):
        run.show("running" if number % 2 else "pulling")
    application.save(run)

    def work() -> int:
        for _ in range(5):
            application.repository.get(run.id)
        return 10_000

    return rates(work)


def scanned(path: Path) -> list[float]:
    """Thousands of rows a second of the bare cursor."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        return rates(lambda: sum(1 for _ in record.scan()))


def folded(path: Path) -> list[float]:
    """Thousands of polls a second of the fold."""

    def fold() -> int:
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
            return world_of(record).state.events

    return rates(fold)


def stepped(step: Step[State, Trigger]) -> list[float]:
    """Thousands of steps a second of CPU through the Run machine, forward and back by a retry."""
    way = [(PROGRESS[place], TRIGGER_TO[PROGRESS[place + 1]]) for place in range(5)] + [(PROGRESS[5], Trigger.RETRY)]

    def work() -> int:
        for _ in range(2000):
            for state, trigger in way:
                step(state, trigger)
        return 2000 * len(way)

    return rates(work)


def billed(path: Path) -> list[float]:
    """Microseconds of CPU for the bill of one machine."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        state = world_of(record).state

    def work() -> int:
        return len(Costs(state).bills())

    return [1e3 / rate for rate in rates(work)]


def memory(path: Path) -> float:
    """Megabytes a fold of the record takes over its imports, in a process of its own."""
    process = subprocess.run(
        [sys.executable, __file__, "--memory", str(path)], capture_output=True, check=True, text=True
    )
    return float(process.stdout)


def resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def measure_memory(path: Path) -> None:
    """Print what `memory` reads."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        next(iter(record.scan()))
        world_of(record, until=Until(position=1))  # imports what a fold needs
        before = resident()
        world = world_of(record)
        print((resident() - before) / 1e6)
        assert world.state.events


def replayed(folder: Path) -> list[float]:
    """Seconds of `steno replay` over a recording of 10 MB."""
    whole = folder / "ten.jsonl"
    recording = ROOT / "tests/traces/dstack-0.22.5/several.jsonl.zst"
    lines = [line.rstrip(b"\n") + b"\n" for _, line in numbered_lines(recording)]
    with whole.open("wb") as file:
        while file.tell() < 10_000_000:
            file.writelines(lines)
    assert sum(1 for _ in open_trace(whole)) > 1000
    command = [sys.executable, "-m", "steno.cli.main", "replay", str(whole), "--json"]
    figures = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        figures.append(time.perf_counter() - began)
    return figures


def main() -> Iterator[Measured]:
    """The trace, both records, the Run machine, the bill, and memory."""
    with tempfile.TemporaryDirectory() as folder:
        path, weeks = Path(folder) / "record.db", Path(folder) / "long.db"
        make(path, min(POLLS, BUSY), 0)
        make(weeks, POLLS, IDLE)
        yield measured("replay-trace", "10 MB", replayed(Path(folder)))
        baseline = rebuilt()
        for name, record, count in (("day", weeks, POLLS), ("busy", path, min(POLLS, BUSY))):
            of, state = f"{count:,} polls", folded(record)
            yield measured(f"fold-{name}", of, state)
            yield compared(f"fold-{name}-eventsourcing", of, state, baseline, "k/cpu-s")
        yield measured("fold-busy-cursor", of, scanned(path))
        table, live = stepped(RUN.table), stepped(RUN.live())
        yield measured("steps", "12,000 steps", table)
        yield compared("steps-transitions", "12,000 steps", table, live, "k/cpu-s")
        yield measured("bill", f"{min(POLLS, BUSY):,} polls", billed(path))
        yield measured("replay-memory", f"{POLLS:,} polls", [memory(weeks)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        measure_memory(Path(sys.argv[2]))
    else:
        report(main())
