"""How fast events go in, beside raw sqlite3 writing the same rows and `eventsourcing` writing as many.

    python benchmarks/record_append.py [EVENTS]

Each pair is measured in turns: only the ratios mean anything.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.support import SIZE, Measured, compared, report
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record

COUNT, ROUNDS = SIZE.count(1_000, 20_000, 100_000), SIZE.pick(1, 7, 7)
INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


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
    """The aggregate that `eventsourcing` saves."""

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
        for fact in given[start : start + batch - 1]:
            run.request(fact.configuration.decode(), fact.name)
        application.save(run)
    spent = time.perf_counter() - started
    application.close()
    return spent


def turns(count: int, *works: Callable[[Path], float]) -> list[list[float]]:
    """Events a second of each of the works, which are done in turns in a folder of their own."""
    rates: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            for series, work in zip(rates, works, strict=True):
                series.append(count / work(Path(folder)))
    return rates


def main() -> Iterator[Measured]:
    """Batches and single events beside raw sqlite3, batches beside `eventsourcing`."""
    many, few, some = (events_of(count) for count in (COUNT, max(COUNT // 100, 50), min(COUNT, 5000)))
    pair = turns(
        len(many),
        lambda folder: steno(folder, many, 1000, durable=False),
        lambda folder: raw(folder, many, 1000, durable=False),
    )
    yield compared("append-batch", f"{len(many):,} events of 400 bytes", *pair, "events/s")
    pair = turns(
        len(few),
        lambda folder: steno(folder, few, 1, durable=True),
        lambda folder: raw(folder, few, 1, durable=True),
    )
    yield compared("append-single", f"{len(few):,} events of 400 bytes", *pair, "events/s")
    pair = turns(
        len(some),
        lambda folder: steno(folder, some, 100, durable=False),
        lambda folder: eventsourcing_save(folder, some, 100),
    )
    yield compared("append-eventsourcing", f"{len(some):,} events of 400 bytes", *pair, "events/s")


if __name__ == "__main__":
    report(main())
