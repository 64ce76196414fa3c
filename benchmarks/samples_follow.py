"""The cost of following the metrics of 1,000 runs: `Sampling` over a real record, every run with four GPUs.

    python benchmarks/samples_follow.py [RUNS]

The provider answers at once with ten minutes of samples of ten seconds: four GPUs whose use differs in each sample and
whose memory in each tenth, as frameworks keep their memory; the task's processes, whose CPU and memory always differ.
A line on stderr says what memory that differs in each sample costs. One question a run and ten minutes makes the share
of a core: CPU time of an answer, from the call to the folded event, × 1,000 / 600 s. The record's growth for each
answer makes the megabytes a day: × 144 answers × 1,000 runs. The questions a second are counted where all runs are due
at once and the loop keeps its own pace.
"""

import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from benchmarks.support import SIZE, Measured, measured, report, say

from steno.engine.control.sampling import GAP, Sampling
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.samples import TASK, Sample, pack
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record

RUNS, ROUNDS, PACED_S = SIZE.count(100, 1_000, 1_000), SIZE.pick(1, 5, 12), SIZE.pick(2, 10, 60)
START = 1_800_000_000 * SECOND
EVERY, GPUS, STEP = 600 * SECOND, 4, 10 * SECOND
OF, A_DAY = 1_000, 144


def answers(begin: int, restless: float = 0.1) -> list[Sample]:
    """Ten minutes of a training run. `restless`: the share of samples in which the memory of a GPU differs."""
    random.seed(begin)
    samples, memory = [], [61_000] * GPUS
    for at in range(begin, begin + EVERY, STEP):
        for gpu in range(GPUS):
            if random.random() < restless:
                memory[gpu] = 61_000 + random.randrange(-300, 300)
            use = random.randrange(85, 101)
            samples.append(Sample(at=at, device=str(gpu), use=use, memory=memory[gpu], memory_total=196_608))
        cores, resident = 700 + random.randrange(200), 41_000 + random.randrange(-500, 500)
        samples.append(Sample(at=at, device=TASK, use=cores, memory=resident, memory_total=2_000_000))
    return samples


class Bench:
    """A record and a world of runs, all due at once every ten minutes of a clock that is set by hand."""

    def __init__(self, folder: Path, clock: SystemClock) -> None:
        self.now = START
        self.answer, self.asked = answers(self.now), 0
        self.path = folder / "record.db"
        self.record = Record.open(self.path, write=True, create=True, shapes=READINGS.shape, clock=clock)
        self.live = LiveWorld(READINGS, self.record)
        self.live.catch_up()
        self.state = World(rules="current")
        self.provider = SimpleNamespace(name="dstack", project="main", samples=self._samples)
        where = {"first_position": 1, "first_at": self.now, "last_position": 1, "last_at": self.now}
        for number in range(RUNS):
            about = {"run_id": f"run-{number}", "provider_id": f"id-{number}", "name": f"train-{number}"}
            run = Run(**about, **where, provider="dstack", project="main", state=State.RUNNING)
            self.state.runs[run.run_id] = run
            self.state.runs.open_ids[run.run_id] = None

    def sampling(self, gap: int) -> Sampling:
        """A loop that has seen the runs."""
        loop = Sampling(Journal(self.record), self.provider, SimpleNamespace(now=lambda: self.now), EVERY, gap=gap)
        loop.look(self.state, stays=True)
        return loop

    def ask_all(self, loop: Sampling) -> None:
        """All runs once, until their samples are recorded and folded."""
        self.now += EVERY
        self.answer, before = answers(self.now - EVERY), self.asked
        while True:
            loop.look(self.state, stays=True)
            self.live.catch_up()
            threads = [thread for thread in threading.enumerate() if thread.name == "steno-samples"]
            if not threads and self.asked == before + RUNS:
                return
            for thread in threads:
                thread.join()

    def size(self) -> int:
        """Bytes of the record's pages; its log file is as long as it ever was."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as tables:
            (size,) = tables.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()
        return int(size)

    def _samples(self, _provider_id: str, _name: str, **_: object) -> tuple[str, list[Sample]]:
        self.asked += 1
        return "dstack", self.answer


def main() -> Iterator[Measured]:
    """CPU, growth, and the pace."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), SystemClock())
        loop = bench.sampling(0)
        bench.ask_all(loop)
        shares, growth = [], []
        for _ in range(ROUNDS):
            before, began = bench.size(), time.process_time()
            bench.ask_all(loop)
            shares.append(100 * (time.process_time() - began) / RUNS * OF / (EVERY / SECOND))
            growth.append((bench.size() - before) / RUNS * OF * A_DAY / 1e6)
        events = sum(1 for _ in bench.record.read(types={"SamplesRecorded"}))
        assert events == (ROUNDS + 1) * RUNS, events
        of = f"{RUNS:,} runs of {GPUS} GPUs, {ROUNDS * RUNS:,} answers of ten minutes"
        yield measured("samples-cpu", of, shares)
        yield measured("samples-growth", of, growth, value=sum(growth) / len(growth))
        blocks = [len(pack(answers(bench.now, restless))) for restless in (0.1, 1)]
        say(f"a block of ten minutes: {blocks[0]} bytes; {blocks[1]} if the memory of the GPUs differs in each sample")
        paced = bench.sampling(GAP)
        bench.now += EVERY
        before, until = bench.asked, time.monotonic() + PACED_S
        while time.monotonic() < until:
            paced.look(bench.state, stays=True)
            time.sleep(0.05)
        paced.close()
        rate = (bench.asked - before) / PACED_S
        yield measured("samples-requests", f"{RUNS:,} runs due at once, {PACED_S} s", [rate])
        bench.record.close()


if __name__ == "__main__":
    report(main())
