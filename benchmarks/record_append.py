"""How fast events go in, beside raw sqlite3 writing the same rows and `eventsourcing` writing as many.

    python benchmarks/record_append.py [EVENTS]

Each pair is measured in turn, several times, and the best of each counts: only the ratios mean anything.
"""

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from record_table import Measured, show

from events import types
from events.clock import SystemClock
from events.store.record import Batch, Record

ROUNDS = 5
INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def events_of(count: int) -> list[types.RunRequested]:
    """Events of about 400 bytes."""
    configuration = b'{"type":"task","commands":["python matmul.py --shape 4096"],"resources":{"gpu":"MI300X:1"}}'
    return [
        types.RunRequested(
            run_id=f"0b8f5d8e-8a52-5b5e-9a3e-{number:012x}",
            provider="dstack",
            project="main",
            name=f"matmul-{number}",
            configuration=configuration + b" " * 130,
            submitter="ada",
        )
        for number in range(count)
    ]


def steno(folder: Path, given: Sequence[types.RunRequested], batch: int, *, durable: bool) -> float:
    """Seconds to append through the record's public interface."""
    with Record.open(folder / "record.db", clock=SystemClock(), write=True, create=True) as record:
        record.append_many([Batch("run/warm", given[:1])], durable=durable)
        started = time.perf_counter()
        for start in range(0, len(given), batch):
            record.append_many([Batch("run/1", given[start : start + batch])], durable=durable)
        return time.perf_counter() - started


def raw(folder: Path, given: Sequence[types.RunRequested], batch: int, *, durable: bool) -> float:
    """Seconds for sqlite3 to write the very rows that `steno` wrote, into the same schema, head and stream included."""
    source = sqlite3.connect(folder / "record.db")
    rows = source.execute("SELECT * FROM events WHERE position > 1").fetchall()
    source.close()
    with Record.open(folder / "raw.db", clock=SystemClock(), write=True, create=True) as record:
        record.append_many([Batch("run/warm", given[:1]), Batch("run/1", given[:1])])
    target = sqlite3.connect(folder / "raw.db", isolation_level=None)
    target.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    moved = [(row[0] + 1, row[1], row[2] + 1, *row[3:]) for row in rows]
    started = time.perf_counter()
    for start in range(0, len(moved), batch):
        part = moved[start : start + batch]
        target.execute("BEGIN IMMEDIATE")
        target.execute("SELECT position, hash FROM head").fetchone()
        target.executemany(INSERT, part)
        target.execute("UPDATE streams SET version = ? WHERE id = 2", (part[-1][2],))
        target.execute("UPDATE head SET position = ?, hash = ? WHERE id = 1", (part[-1][0], part[-1][11]))
        target.execute("COMMIT")
    spent = time.perf_counter() - started
    target.close()
    return spent


class Run(Aggregate):
    """What `eventsourcing` saves."""

    @event("Requested")
    def request(self, configuration: str, name: str) -> None:
        self.configuration = configuration
        self.name = name


def eventsourcing_save(folder: Path, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds for `eventsourcing` to save as many events of the same size."""
    application = Application(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "eventsourcing.db")}
    )
    started = time.perf_counter()
    for start in range(0, len(given), batch):
        run = Run()
        for one in given[start : start + batch - 1]:
            run.request(one.configuration.decode(), one.name)
        application.save(run)
    spent = time.perf_counter() - started
    application.close()
    return spent


def best(work: Callable[[Path], tuple[float, ...]]) -> tuple[float, ...]:
    """The best time of each of the works that are measured in turn."""
    found: list[tuple[float, ...]] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            found.append(work(Path(folder)))
    return tuple(min(times) for times in zip(*found, strict=True))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    many, few = events_of(count), events_of(min(count, 1000))

    def bulk(folder: Path) -> tuple[float, float]:
        return steno(folder, many, 1000, durable=False), raw(folder, many, 1000, durable=False)

    def single(folder: Path) -> tuple[float, float]:
        return steno(folder, few, 1, durable=True), raw(folder, few, 1, durable=True)

    def hundred(folder: Path) -> tuple[float, float]:
        return steno(folder, many[:5000], 100, durable=False), eventsourcing_save(folder, many[:5000], 100)

    ours, theirs = best(bulk)
    one, one_raw = best(single)
    by_hundred, saved = best(hundred)
    show(
        f"{count} events of 400 bytes ({count / ours:,.0f} a second in batches of 1000; raw {count / theirs:,.0f})",
        [
            Measured("batches of 1000, of raw sqlite3", 100 * theirs / ours, "%", "≥ 80", theirs / ours >= 0.8),
            Measured("single, durable, of raw sqlite3", 100 * one_raw / one, "%", "≥ 75", one_raw / one >= 0.75),
            Measured("batches of 100, of eventsourcing", saved / by_hundred, "times", "≥ 3", saved / by_hundred >= 3),
        ],
    )


if __name__ == "__main__":
    main()
