"""Steno's poll of many active runs beside dstack's own Python client reading the same pages.

    python benchmarks/dstack_client.py [RUNS]

Both ask `simulator.py`, in turns. A round of Steno also records, folds and decides; the client only decodes. CPU of
this process; `simulator.py` is another.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.simulator import PAGE, simulator
from benchmarks.support import SIZE, Measured, compared, report
from dstack.api.server import APIClient

from steno.engine.control.controller import Controller
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.engine.providers.registry import READINGS
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record

RUNS, ROUNDS = SIZE.count(200, 1_000, 1_000), SIZE.pick(1, 10, 20)


def read_all(client: APIClient) -> int:
    """Read every page by dstack's client. Returns the number of runs."""
    page = client.runs.list("main", None)
    count = len(page)
    while len(page) == PAGE:
        last = page[-1]
        page = client.runs.list("main", None, prev_submitted_at=last.submitted_at, prev_run_id=last.id)
        count += len(page)
    return count


def rate(work: Callable[[], object]) -> float:
    """Rounds a second of CPU."""
    began = time.process_time()
    work()
    return 1 / (time.process_time() - began)


def main() -> Iterator[Measured]:
    """Rounds in turns, after one of each."""
    clock = SystemClock()
    with simulator(RUNS) as url, tempfile.TemporaryDirectory() as folder:
        client = APIClient(url, "benchmark-token")
        provider = DstackProvider(address(url, "benchmark-token", "main"), clock=clock, ids=RandomIds())
        path = Path(folder) / "record.db"
        with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock) as record:
            controller = Controller(live=LiveWorld(READINGS, record), provider=provider, clock=clock)
            controller.round()
            assert read_all(client) == RUNS
            turns = [(rate(controller.round), rate(lambda: read_all(client))) for _ in range(ROUNDS)]
        provider.close()
    ours, theirs = zip(*turns, strict=True)
    yield compared("dstack-client", f"{RUNS:,} runs, {ROUNDS} rounds", ours, theirs, "rounds/cpu-s")


if __name__ == "__main__":
    report(main())
