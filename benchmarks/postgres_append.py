"""How fast events go into a record on PostgreSQL, beside COPY of the same rows and `eventsourcing` writing as many.

    python benchmarks/postgres_append.py [EVENTS]

A server of its own in a temporary folder, with its defaults (fsync on), in turns: only the ratios mean anything.
"""

import time
from collections.abc import Iterator, Sequence

import psycopg
from benchmarks.record_append import Run, events_of
from benchmarks.support import SIZE, Lacking, Measured, compared, report
from eventsourcing.application import Application
from stenotest.postgres import Server, lacking, new_server

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record

COUNT, ROUNDS = SIZE.count(1_000, 20_000, 100_000), SIZE.pick(1, 5, 5)
TYPES = ("int8", "int8", "int8", "int2", "bytea", "int8", "int8", "int8", "int8", "int8", "bytea", "bytea", "bytea")


def steno(url: str, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds to append through the record's public interface."""
    with Record.open(url, clock=SystemClock(), write=True, create=True) as record:
        record.append_many([Batch("run/warm", given[:1])])
        started = time.perf_counter()
        for start in range(0, len(given), batch):
            record.append_many([Batch("run/1", given[start : start + batch])])
        return time.perf_counter() - started


def raw(url: str, given: Sequence[types.RunRequested], batch: int) -> float:
    """Seconds to COPY the very rows that `steno` wrote last, as binary, into the same table, a commit a batch.

    Without its triggers, which take rows in an append alone.
    """
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET search_path = steno; SET session_replication_role = replica")
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
            for fact in given[start : start + max(batch - 1, 1)]:
                run.request(fact.configuration.decode(), fact.name)
            application.save(run)
        return time.perf_counter() - started
    finally:
        application.close()


def rates(server: Server, given: Sequence[types.RunRequested], batch: int) -> Iterator[tuple[float, float, float]]:
    """Events a second of the record, of COPY and of `eventsourcing`, each round in databases of its own."""
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
        yield tuple(len(given) / seconds for seconds in spent)  # type: ignore[misc]


def main() -> Iterator[Measured]:
    """Batches of 1,000, then one event a commit."""
    if (why := lacking()) is not None:
        raise Lacking(why)
    server = new_server()
    try:
        server.start()
        for batch, count, name in ((1000, COUNT, "postgres"), (1, max(COUNT // 100, 20), "postgres-single")):
            ours, copied, saved = zip(*rates(server, events_of(count), batch), strict=True)
            of = f"{count:,} events of 400 bytes"
            yield compared(f"{name}-copy", of, ours, copied, "events/s")
            yield compared(f"{name}-eventsourcing", of, ours, saved, "events/s")
    finally:
        server.remove()


if __name__ == "__main__":
    report(main())
