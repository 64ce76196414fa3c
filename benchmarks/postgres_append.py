"""How fast events go into a record on PostgreSQL, beside COPY of the same rows and `eventsourcing` writing as many.

    python benchmarks/postgres_append.py [EVENTS]

A server of its own in a temporary folder, with its defaults (fsync on); each pair is measured in turn, several times,
and the best of each counts: only the ratios mean anything.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from eventsourcing.application import Application
from record_append import Run, events_of
from record_table import Measured, show

from events import types
from events.clock import SystemClock
from events.store.record import Batch, Record

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from stenotest.postgres import Server, new_server

ROUNDS = 3
TYPES = ("int8", "int8", "int8", "int2", "bytea", "int8", "int8", "int8", "int8", "int8", "bytea", "bytea")
PACE = (1, 1_000)


def steno(url: str, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds to append through the record's public interface."""
    with Record.open(url, clock=SystemClock(), write=True, create=True) as record:
        record.append_many([Batch("run/warm", given[:1])])
        started = time.perf_counter()
        for start in range(0, len(given), batch):
            record.append_many([Batch("run/1", given[start : start + batch])])
        return time.perf_counter() - started


def raw(url: str, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds to COPY the very rows that `steno` wrote last, as binary, into the same table, a commit a batch."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET search_path = steno")
        rows = database.execute(
            "SELECT * FROM events ORDER BY position DESC LIMIT %s", (len(given),), binary=True
        ).fetchall()
        last = rows[0][0]
        moved = [(last + number, row[1], last + row[2], *row[3:]) for number, row in enumerate(reversed(rows), 1)]
        spent = 0.0
        for start in range(0, len(moved), batch):
            started = time.perf_counter()
            with database.transaction(), database.cursor().copy("COPY events FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(TYPES)
                for row in moved[start : start + batch]:
                    copy.write_row(row)
            spent += time.perf_counter() - started
    return spent


def eventsourcing(server: Server, database: str, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds to save as many events of the same content."""
    environment = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": database,
        "POSTGRES_HOST": str(server.folder),
        "POSTGRES_PORT": str(server.port),
        "POSTGRES_USER": "postgres",
        "POSTGRES_PASSWORD": "none",
    }
    application = Application[object](env=environment)
    try:
        started = time.perf_counter()
        for start in range(0, len(given), batch):
            run = Run()
            for one in given[start : start + max(batch - 1, 1)]:
                run.request(one.configuration.decode(), one.name)
            application.save(run)
        return time.perf_counter() - started
    finally:
        application.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    server = new_server()
    try:
        server.start()
        rows = []
        for batch in PACE:
            given = events_of(count if batch > 1 else max(count // 20, 1))
            best: dict[str, float] = {}
            for turn in range(ROUNDS):
                name = f"bench_{batch}_{turn}"
                with psycopg.connect(server.url(), autocommit=True) as database:
                    database.execute(f"CREATE DATABASE {name}")
                    database.execute(f"CREATE DATABASE {name}_es")
                spent = (
                    steno(server.url(name), given, batch),
                    raw(server.url(name), given, batch),
                    eventsourcing(server, f"{name}_es", given, batch),
                )
                for who, seconds in zip(("steno", "raw", "es"), spent, strict=True):
                    best[who] = min(best.get(who, 1e9), seconds)
            rows.append((batch, len(given), best))
        for batch, size, spent in rows:
            ours, copied, saved = spent["steno"], spent["raw"], spent["es"]
            show(
                f"{size} events of 400 bytes, {batch} a batch ({size / ours:,.0f} a second; COPY {size / copied:,.0f})",
                [
                    Measured("of COPY", 100 * copied / ours, "%", "≥ 40", copied / ours >= 0.4),
                    Measured("of eventsourcing", saved / ours, "times", "≥ 3", saved / ours >= 3),
                ],
            )
    finally:
        server.remove()


if __name__ == "__main__":
    main()
