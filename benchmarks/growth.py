"""What a long record costs: appending the first and the last tenth, size, folding, and what opens it again.

    python benchmarks/growth.py [EVENTS [STORE]]

A busy project's weeks (`stenotest.big`) on SQLite and on a PostgreSQL of its own, or on one of them; a million events
unless told otherwise. Times are of the CPU of this process but for opening, which is by the clock.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from record_table import Measured, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from stenotest.big import polls
from stenotest.postgres import new_server
from stenotest.story import START

from engine.fold.snapshot_store import SnapshotStore
from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from events.clock import SECOND, SystemClock
from events.poll import Poll
from events.store.record import Head, Record

EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
STORES = sys.argv[2:] or ["sqlite", "postgres"]
BATCH, TENTHS, TAIL = 1_000, 10, 10_000
OPEN_MS = 1_000.0


def opened(where: str | Path, *, write: bool = False) -> Record:
    return Record.open(where, write=write, create=write, shapes=READINGS.shape, clock=SystemClock())


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def wall_ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def filled(where: str | Path) -> tuple[list[float], Head]:
    """Microseconds of CPU an event of each tenth, without making the answers; a head before the last `TAIL` events."""
    source, spent, done, saved = polls(START - EVENTS * SECOND), [0.0] * TENTHS, [0] * TENTHS, None
    with opened(where, write=True) as record:
        position = 0
        while position < EVENTS:
            batch: list[Poll] = [next(source) for _ in range(BATCH)]
            part = position * TENTHS // EVENTS
            spent[part] += cpu(lambda batch=batch: record.append_polls(batch))
            head = record.head()
            done[part] += head.position - position
            position = head.position
            if saved is None and position >= EVENTS - TAIL:
                saved = head
    assert saved is not None
    return [1e6 * used / max(count, 1) for used, count in zip(spent, done, strict=True)], saved


def folded(where: str | Path) -> None:
    """Fold all of it and keep the engine's snapshot."""
    with opened(where, write=True) as record:
        live = LiveWorld(READINGS, record)
        live.catch_up()
        SnapshotStore(record).save(live.state, every=0)


def started(where: str | Path) -> None:
    """What a recorder does before its first poll."""
    with opened(where, write=True) as record:
        live = LiveWorld(READINGS, record, keep=True)
        live.catch_up()
        assert live.position >= EVENTS


def measured(title: str, where: str | Path, size: Callable[[], int]) -> None:
    tenths, saved = filled(where)
    fold = cpu(lambda: folded(where))
    opens = sorted(wall_ms(lambda: opened(where).close()) for _ in range(5))[2]
    starts = sorted(wall_ms(lambda: started(where)) for _ in range(5))[2]
    with opened(where) as record:
        tail = cpu(lambda: record.verify(after=saved))
    rows = [
        Measured("append, first tenth, CPU", tenths[0], "µs/event", "–", True),
        Measured(
            "append, last tenth, of the first", tenths[-1] / tenths[0], "×", "≤ 1.5 ×", tenths[-1] <= 1.5 * tenths[0]
        ),
        Measured("size", size() / EVENTS, "B/event", "–", True),
        Measured("fold of all of it, CPU", EVENTS / fold / 1000, "k/cpu-s", "–", True),
        Measured("opened to read", opens, "ms", f"≤ {OPEN_MS:.0f} ms", opens <= OPEN_MS),
        Measured("engine started, from its snapshot", starts, "ms", f"≤ {OPEN_MS:.0f} ms", starts <= OPEN_MS),
        Measured(f"verify of the last {TAIL:,} events, CPU", tail, "s", "–", True),
    ]
    show(f"{title}: {EVENTS:,} events", rows)


def main() -> None:
    if "sqlite" in STORES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "record.db"
            measured("SQLite", path, lambda: path.stat().st_size)
    if "postgres" in STORES:
        server = new_server()
        try:
            server.start()
            with psycopg.connect(server.url(), autocommit=True) as database:
                database.execute("CREATE DATABASE steno")
                asked = "SELECT pg_database_size('steno')"
                measured("PostgreSQL", server.url("steno"), lambda: int(database.execute(asked).fetchone()[0]))  # type: ignore[index]
        finally:
            server.remove()


if __name__ == "__main__":
    main()
