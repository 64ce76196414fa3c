"""The charts on a record of 100,000 runs on 50,000 machines of half a year: target ≤ 100 ms each, all days shown.

Give a smaller number of runs as the first argument for a quick look.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from stenotest.busy_weeks import busy_weeks

from engine.policy import DAY
from engine.providers.readings import READINGS
from events.clock import SystemClock
from events.store.record import Record
from projections.models import charts
from projections.models.projector import caught_up, rebuilt

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
DAYS, ROUNDS, TARGET_MS = 180, 15, 100.0


def main() -> None:
    """Print what each takes beside its target."""
    with tempfile.TemporaryDirectory() as folder:
        path = busy_weeks(Path(folder) / "record.db", days=DAYS, a_day=max(1, RUNS * 5 // (DAYS * 4 * 6)))
        with Record.open(path, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            rebuilt(record)
            with caught_up(record) as store:
                print(f"{store.runs.count():,} runs, {store.vms.count():,} machines")
                now = max(row.last_at for row in store.vms.all(newest_first=True)) + DAY
                for name, since in (("30 days", None), ("all", 0)):
                    shown = charts.ChartRange(since=since, now=now)
                    for what, made in (
                        ("spend by user", lambda shown=shown: charts.spend(store, "user", shown)),
                        ("use by GPU", lambda shown=shown: charts.utilisation(store, "gpu", shown)),
                        ("use by machine", lambda shown=shown: charts.utilisation(store, "vm", shown)),
                        ("start-up times", lambda shown=shown: charts.starts(store, shown)),
                    ):
                        taken = []
                        for _ in range(ROUNDS):
                            start = time.process_time()
                            made()
                            taken.append((time.process_time() - start) * 1000)
                        median = statistics.median(taken)
                        said = "ok" if median <= TARGET_MS else "MISSED"
                        shown = f"{median:7.1f} ms of CPU  target ≤ {TARGET_MS:.0f}"
                        print(f"{what:<16} {name:<8} {shown}  {said}", flush=True)


if __name__ == "__main__":
    main()
