"""The read models under a service, on a record of a million events: kept caught up, read now, read at a past position.

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
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec
from benchmarks.support import SIZE, Measured, measured, report, say
from stenotest.big import big_record, polls

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import world_of
from steno.engine.state.policy import Policy
from steno.engine.wire import wire
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.answers import record_pages as browse
from steno.projections.answers.costs import costs
from steno.projections.answers.incidents import incidents, record_object
from steno.projections.answers.overview import overview
from steno.projections.read_models.past_worlds import opened
from steno.projections.read_models.projector import Lag, Projector, rebuilt
from steno.projections.read_models.reader_pool import Look, Pool
from steno.projections.read_models.run_query import RunQuery, find

EVENTS = SIZE.count(3_000, 100_000, 1_000_000)
GIVEN = Path(SIZE.words[0]) if SIZE.words and not SIZE.words[0].isdecimal() else None
CLOCK = SystemClock()
POLICY = Policy()
MOMENTS, READS, POLLS, LAGS = (
    SIZE.pick(3, 60, 60),
    SIZE.pick(2, 40, 40),
    SIZE.pick(10, 400, 400),
    SIZE.pick(6, 300, 300),
)

MODELS: dict[str, Callable[[Look], object]] = {
    "overview": lambda look: wire(overview(look, POLICY)),
    "50 newest runs": lambda look: [msgspec.Raw(row) for _, row in look.view.store.runs.page(limit=50)],
    "50 newest failed runs": lambda look: look.view.store.runs.objects_of(
        run_id for run_id, _ in find(look.view.store, RunQuery(state="failed"), 50)
    ),
    "one run": lambda look: msgspec.Raw(look.view.row("run-7").object),
    "costs by run": lambda look: wire(costs(look.view.store, "run").report),
    "incidents": lambda look: [wire(anomaly) for anomaly in incidents(look).anomalies],
    "marks of the slider": lambda look: wire(record_object(look, Lag(positions=0, seconds=0.0))),
    "50 newest events": lambda look: browse.events(look, backwards=True).rows,
    "events of a type there is none of": lambda look: browse.events(look, types={"TokenCreated"}, backwards=True).rows,
    "50 newest polls": lambda look: browse.polls(look, backwards=True).rows,
}
ROWS = {"overview": "models-overview", "one run": "models-run"}
"""The models that have a target."""


def milliseconds(work: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """The times of so many calls: (by the clock, of the CPU), each ascending."""
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


def p95(name: str, of: str, values: list[float]) -> Measured:
    """The row of the 95th percentile."""
    return measured(name, of, values, value=part(sorted(values), 0.95))


def built(path: Path, of: str) -> Iterator[Measured]:
    """A build beside the fold alone, in turns: the first work of a process costs a tenth less than the same later."""
    shares = []
    with Record.open(path, clock=CLOCK, shapes=READINGS.shape) as record:
        events = record.head().position
        for _ in range(SIZE.pick(1, 5, 3)):
            began = time.process_time()
            world_of(record)
            folded = time.process_time() - began
            began = time.process_time()
            rebuilt(record)
            taken = time.process_time() - began
            shares.append(taken / folded)
    file = path.with_name(path.name + ".projections").resolve().stat().st_size
    say(f"build: {events / taken / 1000:.1f} k events a CPU-second; file: {file / events:.1f} B an event")
    yield measured("models-build", of, shares)


def live(path: Path, of: str) -> Iterator[Measured]:
    """The cost of a poll more, and how far behind the read models are while polls keep coming."""
    coming = islice(polls(CLOCK.now(), first=1_000_000), 3000)
    with Record.open(path, clock=CLOCK, write=True, shapes=READINGS.shape) as record:
        quiet = Projector(path, clock=CLOCK)
        quiet.catch_up()
        costs = []
        for _ in range(POLLS):
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
        for number in range(LAGS):
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
    say(f"recorder and projector together: {share * 100:.1f} % of a core")
    yield p95("models-poll", of, costs)
    yield p95("models-lag", of, lags)


def reads(path: Path, of: str) -> Iterator[Measured]:
    """Models as they are now, and as they were in the middle."""
    with closing(Pool(path, clock=CLOCK, wake=lambda: None)) as pool:
        for name, model in MODELS.items():

            def now(model: Callable[[Look], object] = model) -> None:
                with pool.now() as look:
                    msgspec.json.encode(model(look))

            taken, used = milliseconds(now, READS)
            say(f"{name}, p95: {part(used, 0.95):.2f} ms of CPU, {part(taken, 0.95):.2f} by the clock")
            if name in ROWS:
                yield p95(ROWS[name], of, used)
        with pool.now() as look:
            middle = look.position // 2

        def then() -> None:
            with pool.at(middle) as look:
                msgspec.json.encode(wire(overview(look, POLICY)))

        then()
        _, used = milliseconds(then, READS // 2)
        yield p95("moment-held", of, used)


def past(path: Path, of: str) -> Iterator[Measured]:
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
                from steno.engine.fold.poll_reader import Until

                world_of(record, until=Until(position=position))
                whole.append((time.process_time() - began) * 1000 / cpu[-1])
    say(f"a moment opened, by the clock p95: {part(sorted(taken), 0.95):.1f} ms")
    say(f"fold from the start ÷ that: {statistics.median(whole):.1f} ×")
    yield p95("moment-opened", of, cpu)


def memory(path: Path) -> None:
    """Say what serving takes over the imports: reads now, and eight moments held."""
    program = [sys.executable, __file__, "serve", str(path)]
    used = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    say(f"serving reads, over the imports: {float(used[0]):.1f} MB; with eight moments held: {float(used[1]):.1f} MB")


def serve(path: Path) -> None:
    """Read for a while and say how much memory that took."""

    def used() -> float:
        most = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
        return int(most) / 1024

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


def main() -> Iterator[Measured]:
    """Built and kept, read now, read as it was, and memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = GIVEN if GIVEN is not None else Path(folder) / "record.db"
        if GIVEN is None:
            big_record(path, events=EVENTS, until=CLOCK.now())
        with Record.open(path, clock=CLOCK) as record:
            of = f"{record.head().position:,} events"
        for part_of in (built, live, reads, past):
            yield from part_of(path, of)
        memory(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
    else:
        report(main())
