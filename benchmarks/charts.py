"""The charts on a record of half a year, two runs on each machine: the slowest of 30 days, and of all days.

python benchmarks/charts.py [RUNS]
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.support import SIZE, Measured, measured, report, say
from stenotest.busy_weeks import busy_weeks

from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import DAY
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.answers import costs as charts
from steno.projections.read_models.projector import caught_up, rebuilt

RUNS = SIZE.count(200, 20_000, 100_000)
DAYS, ROUNDS = SIZE.pick(30, 180, 180), SIZE.pick(1, 15, 15)


def taken(work: Callable[[], object]) -> list[float]:
    """Milliseconds of CPU of each call."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1000)
    return times


def main() -> Iterator[Measured]:
    """The slowest chart of each range."""
    with tempfile.TemporaryDirectory() as folder:
        path = busy_weeks(Path(folder) / "record.db", days=DAYS, a_day=max(1, RUNS * 5 // (DAYS * 4 * 6)))
        with Record.open(path, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            rebuilt(record)
            with caught_up(record) as store:
                of = f"{store.runs.count():,} runs, {store.vms.count():,} machines"
                now = max(row.last_at for row in store.vms.all(newest_first=True)) + DAY
                for name, since in (("month", None), ("all", 0)):
                    period = charts.ChartRange(since=since, now=now)
                    calls = {
                        "spend by user": taken(lambda period=period: charts.spend(store, "user", period)),
                        "use by GPU": taken(lambda period=period: charts.utilisation(store, "gpu", period)),
                        "use by machine": taken(lambda period=period: charts.utilisation(store, "vm", period)),
                        "start-up times": taken(lambda period=period: charts.starts(store, period)),
                    }
                    for what, times in calls.items():
                        say(f"{what}, {name}: {statistics.median(times):.1f} ms")
                    yield measured(f"chart-{name}", of, max(calls.values(), key=statistics.median))


if __name__ == "__main__":
    report(main())
