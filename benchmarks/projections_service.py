"""The read models under a service, on a record of a million events: kept caught up, read now, read as it was.

    python benchmarks/projections_service.py [EVENTS | RECORD]

The record is weeks of a busy project: one run after the other, two looks every five seconds, half of which are news
(`stenotest.big`); to one made before, polls are appended. What a poll costs is CPU of the projector's thread; lag
is from the append to the moment the read models show it, beside a recorder that appends all the time. Reads are whole
models as JSON bytes. A moment is opened at random positions; beside it the fold from the start that it stands for.
Memory is a process of its own that serves reads, over its imports. A busy machine moves what the clock says, so targets
are of the CPU; nothing here waits for anything else.
"""

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec
import support  # noqa: F401 — makes stenotest importable
from record_table import Measured, show
from stenotest.big import big_record, polls

from engine.policy import Policy
from engine.providers.readings import READINGS
from engine.replay.record import world_of
from engine.wire import wire
from events.clock import SystemClock
from events.store.record import Record
from projections.models import record_pages as browse
from projections.models.costs import costs
from projections.models.incidents import incidents, record_object
from projections.models.overview import overview
from projections.models.past_worlds import opened
from projections.models.projector import Lag, Projector, rebuilt
from projections.models.reader_pool import Look, Pool
from projections.store.run_query import RunQuery, find

EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdecimal() else 1_000_000
GIVEN = Path(sys.argv[1]) if len(sys.argv) == 2 and not sys.argv[1].isdecimal() else None
CLOCK = SystemClock()
POLICY = Policy()
MOMENTS = 60
READS = 40

MODELS: dict[str, Callable[[Look], object]] = {
    "overview": lambda look: wire(overview(look, POLICY)),
    "50 newest runs": lambda look: [msgspec.Raw(one) for _, one in look.view.store.runs.page(limit=50)],
    "50 newest failed runs": lambda look: look.view.store.runs.objects_of(
        run_id for run_id, _ in find(look.view.store, RunQuery(state="failed"), 50)
    ),
    "one run": lambda look: msgspec.Raw(look.view.row("run-77").object),
    "costs by run": lambda look: wire(costs(look.view.store, "run").report),
    "incidents": lambda look: [wire(one) for one in incidents(look).anomalies],
    "marks of the slider": lambda look: wire(record_object(look, Lag(positions=0, seconds=0.0))),
    "50 newest events": lambda look: browse.events(look, backwards=True).rows,
    "events of a type there is none of": lambda look: browse.events(look, types={"TokenCreated"}, backwards=True).rows,
    "50 newest polls": lambda look: browse.polls(look, backwards=True).rows,
}
TARGETS = {"overview": 200.0, "one run": 2.0}


def milliseconds(work: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """What so many calls took: (by the clock, of the CPU), each ascending."""
    taken, used = [], []
    for _ in range(rounds):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    return sorted(taken), sorted(used)


def part(taken: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return taken[min(len(taken) - 1, round(share * len(taken)))]


def row(what: str, value: float, unit: str, most: float | None = None) -> Measured:
    """One row; without a target it is only told."""
    if most is None:
        return Measured(what, value, unit, "no target", True)
    return Measured(what, value, unit, f"≤ {most:g} {unit}", value <= most)


def built(path: Path) -> list[Measured]:
    """A build beside the fold alone."""
    with Record.open(path, clock=CLOCK, shapes=READINGS.shape) as record:
        events = record.head().position
        began = time.process_time()
        world_of(record)
        folded = time.process_time() - began
        began = time.process_time()
        rebuilt(record)
        taken = time.process_time() - began
    file = path.with_name(path.name + ".projections").resolve().stat().st_size
    return [
        row("build", events / taken / 1000, "k ev/cpu-s"),
        row("build ÷ fold alone", taken / folded, "×", 2.0),
        row("file", file / events, "B/event"),
    ]


def live(path: Path) -> list[Measured]:
    """What one poll more costs, and how far behind the read models are while polls keep coming."""
    coming = islice(polls(CLOCK.now(), first=1_000_000), 3000)
    with Record.open(path, clock=CLOCK, write=True, shapes=READINGS.shape) as record:
        quiet = Projector(path, clock=CLOCK)
        quiet.catch_up()
        costs = []
        for _ in range(400):
            record.append_polls([next(coming)])
            began = time.thread_time()
            quiet.catch_up()
            costs.append((time.thread_time() - began) * 1000)
        quiet.stop()
        projector = Projector(path, clock=CLOCK)
        projector.catch_up()
        projector.start()
        lags = []
        began, cpu = time.perf_counter(), time.process_time()
        for number in range(300):
            record.append_polls([next(coming)])
            head = record.head().position
            projector.hurry()
            if number % 3 == 0:
                since = time.perf_counter()
                while projector.position < head:
                    time.sleep(0.001)
                lags.append((time.perf_counter() - since) * 1000)
            time.sleep(0.02)
        share = (time.process_time() - cpu) / (time.perf_counter() - began)
        projector.stop()
    costs.sort()
    lags.sort()
    return [
        row("one poll more, CPU p50", part(costs, 0.5), "ms"),
        row("one poll more, CPU p95", part(costs, 0.95), "ms"),
        row("lag p50", part(lags, 0.5), "ms"),
        row("lag p95", part(lags, 0.95), "ms", 200.0),
        row("recorder and projector together", share * 100, "% of a core"),
    ]


def reads(path: Path) -> list[Measured]:
    """Models as they are now, and as they were in the middle."""
    found = []
    with closing(Pool(path, clock=CLOCK, wake=lambda: None)) as pool:
        for name, model in MODELS.items():

            def now(model: Callable[[Look], object] = model) -> None:
                with pool.now() as look:
                    msgspec.json.encode(model(look))

            taken, used = milliseconds(now, READS)
            found += [
                row(f"{name}, CPU p95", part(used, 0.95), "ms", TARGETS.get(name)),
                row(f"{name}, by the clock p95", part(taken, 0.95), "ms"),
            ]
        with pool.now() as look:
            middle = look.position // 2

        def then() -> None:
            with pool.at(middle) as look:
                msgspec.json.encode(wire(overview(look, POLICY)))

        then()
        _, used = milliseconds(then, READS // 2)
        found.append(row("overview of a moment held, CPU p95", part(used, 0.95), "ms", 200.0))
    return found


def past(path: Path) -> list[Measured]:
    """Opening moments at random, beside the fold from the start."""
    draw, taken, whole, cpu = random.Random(4), [], [], []
    with Record.open(path, clock=CLOCK, shapes=READINGS.shape) as record:
        head = record.head().position
        for number in range(MOMENTS):
            position = draw.randrange(1, head)
            began, used = time.perf_counter(), time.process_time()
            opened(record, position).close()
            taken.append((time.perf_counter() - began) * 1000)
            cpu.append((time.process_time() - used) * 1000)
            if number % 20 == 0:
                began = time.process_time()
                from engine.fold.tick import Until

                world_of(record, until=Until(position=position))
                whole.append((time.process_time() - began) * 1000 / cpu[-1])
    taken.sort()
    cpu.sort()
    return [
        row("a moment opened, CPU p50", part(cpu, 0.5), "ms"),
        row("a moment opened, CPU p95", part(cpu, 0.95), "ms", 1000.0),
        row("a moment opened, by the clock p95", part(taken, 0.95), "ms"),
        row("fold from the start ÷ that", statistics.median(whole), "×"),
    ]


def memory(path: Path) -> list[Measured]:
    """What serving takes over the imports: reads now, and eight moments held."""
    program = [sys.executable, __file__, "serve", str(path)]
    over, with_moments = (
        float(one) for one in subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    )
    return [row("serving reads, over the imports", over, "MB"), row("with eight moments held", with_moments, "MB")]


def serve(path: Path) -> None:
    """Read for a while and say how much memory that took."""

    def used() -> float:
        said = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
        return int(said) / 1024

    before = used()
    with closing(Pool(path, clock=CLOCK, wake=lambda: None)) as pool:
        for _ in range(5):
            for model in MODELS.values():
                with pool.now() as look:
                    msgspec.json.encode(model(look))
        after, head = used() - before, look.position
        for number in range(1, 9):
            with pool.at(head * number // 9) as look:
                msgspec.json.encode(wire(overview(look, POLICY)))
        print(after, used() - before)


def main() -> None:
    """Make the record and print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = GIVEN if GIVEN is not None else Path(folder) / "record.db"
        if GIVEN is None:
            big_record(path, events=EVENTS, until=CLOCK.now())
        with Record.open(path, clock=CLOCK) as record:
            print(f"{record.head().position:,} events")
        show("Built and kept", [*built(path), *live(path)])
        show("Read now", reads(path))
        show("Read as it was", past(path))
        show("Memory", memory(path))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
    else:
        main()
