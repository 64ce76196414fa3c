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

from engine.policy import DAY
from engine.providers.readings import READINGS
from events.clock import SystemClock
from events.store.record import Record
from projections.models import charts
from projections.models.projector import caught_up, rebuilt

RUNS = SIZE.count(200, 20_000, 100_000)
DAYS, ROUNDS = SIZE.pick(30, 180, 180), SIZE.pick(1, 15, 15)


def taken(work: Callable[[], object]) -> list[float]:
    """Milliseconds of CPU of each call."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        found.append((time.process_time() - start) * 1000)
    return found


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
                    shown = charts.ChartRange(since=since, now=now)
                    found = {
                        "spend by user": taken(lambda shown=shown: charts.spend(store, "user", shown)),
                        "use by GPU": taken(lambda shown=shown: charts.utilisation(store, "gpu", shown)),
                        "use by machine": taken(lambda shown=shown: charts.utilisation(store, "vm", shown)),
                        "start-up times": taken(lambda shown=shown: charts.starts(store, shown)),
                    }
                    for what, times in found.items():
                        say(f"{what}, {name}: {statistics.median(times):.1f} ms")
                    yield measured(f"chart-{name}", of, max(found.values(), key=statistics.median))


if __name__ == "__main__":
    report(main())
