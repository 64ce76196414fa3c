"""The cost of a recorder: active runs polled every 5 s, and the time from an answer to the changed state.

    python benchmarks/recorder.py [RUNS]

The real recorder over a real record, against `simulator.py`. 1,000 runs; with --full also 10,000.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.simulator import simulator
from benchmarks.support import SIZE, Measured, measured, report

from steno.engine.control.controller import Controller
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.engine.providers.registry import READINGS
from steno.engine.state.changes import Moved
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record

RUNS, ROUNDS, EVERY = SIZE.count(200, 1_000, 1_000), SIZE.pick(3, 20, 20), 5.0


def measure(url: str, folder: Path) -> tuple[list[float], float, list[float]]:
    """(seconds of CPU of each round, requests a round, milliseconds from an answer to each state that it changed)."""
    clock = SystemClock()
    provider = DstackProvider(address(url, "benchmark-token", "main"), clock=clock, ids=RandomIds())
    latencies = []

    def time_moves(batch):
        """The time from the end of an answer to each state it changed."""
        moves = [
            change.transition for change in batch.changes if isinstance(change, Moved) and change.transition is not None
        ]
        latencies.extend((clock.now() - move.at) / 1000 for move in moves)

    with Record.open(folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=clock) as record:
        live = LiveWorld(READINGS, record)
        live.subscribe(time_moves)
        controller = Controller(live=live, provider=provider, clock=clock)
        controller.round()
        latencies.clear()
        cpu, requests = [], 0
        for _ in range(ROUNDS):
            began = time.process_time()
            requests += controller.round().polls
            cpu.append(time.process_time() - began)
    provider.close()
    return cpu, requests / ROUNDS, latencies


def rows(runs: int, suffix: str = "") -> Iterator[Measured]:
    """The rows for so many runs."""
    with simulator(runs) as url, tempfile.TemporaryDirectory() as folder:
        cpu, requests, latencies = measure(url, Path(folder))
    of = f"{runs:,} runs, {ROUNDS} rounds"
    yield measured(f"recorder-cpu{suffix}", of, [100 * seconds / EVERY for seconds in cpu])
    yield measured(f"recorder-state{suffix}", of, latencies)
    if not suffix:
        yield measured("recorder-state-worst", of, latencies, value=max(latencies))
        yield measured("recorder-requests", of, [requests])


def main() -> Iterator[Measured]:
    """1,000 runs, and 10,000."""
    yield from rows(RUNS, "-10000" if RUNS == 10_000 else "")
    if SIZE.name == "full":
        yield from rows(10_000, "-10000")


if __name__ == "__main__":
    report(main())
