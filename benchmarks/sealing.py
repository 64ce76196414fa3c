"""What sealing saves and costs: bytes before and after, and the same questions of the same record.

    python benchmarks/sealing.py [EVENTS]

A busy project's weeks (`stenotest.big`); all of it is sealed, in ten files.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

from benchmarks.support import SIZE, Measured, measured, report, say
from stenotest.big import big_record

from engine.providers.readings import READINGS
from events.clock import SystemClock
from events.store.record import Record
from events.store.sealing import seal
from events.store.store import store_at

CLOCK = SystemClock()
EVENTS, ASKED = SIZE.count(3_000, 100_000, 300_000), SIZE.pick(5, 200, 200)


def sizes(path: Path) -> dict[str, int]:
    """Bytes of tables with their indexes."""
    with closing(sqlite3.connect(path)) as database:
        names = dict(database.execute("SELECT name, tbl_name FROM sqlite_schema"))
        found: dict[str, int] = {}
        for name, size in database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
            table = names.get(name, "other")
            found[table] = found.get(table, 0) + size
        found["file"] = path.stat().st_size
    return found


def timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def questions(path: Path, events: int) -> dict[str, float]:
    """Seconds of CPU of each."""
    rng = Random(7)
    with Record.open(path, clock=CLOCK, shapes=READINGS.shape) as record:
        streams = [name for name, _ in record.streams() if name.startswith("run/")]
        old = rng.sample(streams[: len(streams) * 8 // 10], ASKED)
        polls = [row[0] for row in record.scan(until=events * 8 // 10)]
        record.poll(polls[0])
        return {
            "open": timed(lambda: Record.open(path, clock=CLOCK).close()),
            "an old poll, anywhere": timed(lambda: [record.poll(one) for one in rng.sample(polls, ASKED)]) / ASKED,
            "all of an old run": timed(lambda: [list(record.read(stream=name)) for name in old]) / ASKED,
            "scan, 1M events": timed(lambda: sum(1 for _ in record.scan())) * 1e6 / events,
            "read, 1M events": timed(lambda: sum(1 for _ in record.read(until=100_000))) * 10,
            "verify, 1M events": timed(record.verify) * 1e6 / events,
        }


def main() -> Iterator[Measured]:
    """Sizes and the cost of sealing; what each table takes and each question costs, before and after, as details."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.db"
        events = big_record(path, events=EVENTS)
        before, asked = sizes(path), questions(path, events)
        cost = timed(
            lambda: seal(
                store_at(path),
                before=CLOCK.now() + 1,
                size=events // 10,
                place=None,
                clock=CLOCK,
                progress=lambda *_: None,
            )
        )
        after, again = sizes(path), questions(path, events)
        files = sum(one.stat().st_size for one in Path(folder).rglob("*.parquet"))
    of = f"{events:,} events"
    yield measured("sealed-size", of, [files / events])
    yield measured("sealed-share", of, [100 * (files + after["file"]) / before["file"]])
    yield measured("seal-cpu", of, [cost / events * 1e6])
    for name in sorted(before, key=before.__getitem__, reverse=True):
        say(f"{name:20} {before[name] / events:8.1f} bytes an event, then {after.get(name, 0) / events:8.1f}")
    for name, seconds in asked.items():
        say(f"{name:24} {seconds * 1e3:10.3f} ms, then {again[name] * 1e3:10.3f} ms")


if __name__ == "__main__":
    report(main())
