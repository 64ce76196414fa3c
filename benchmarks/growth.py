"""The cost of a long record: appending the first and the last tenth, size, folding, and what opens it again.

    python benchmarks/growth.py [EVENTS [STORE]]

A busy project's weeks (`stenotest.big`) on SQLite and on a PostgreSQL of its own, or on one of them; with --full ten
million events. Times are of the CPU of this process but for opening and starting, which are by the clock.
"""

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
from benchmarks.support import SIZE, Lacking, Measured, measured, report
from stenotest.big import polls
from stenotest.case_rules import NO_METADATA, with_judge
from stenotest.dstack_history import START
from stenotest.postgres import lacking, new_server
from stenotest.snapshots import save

from steno.engine.decide.decisions import decide
from steno.engine.fold.snapshot_store import SnapshotStore
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.rules.case_space import generated_cases
from steno.engine.rules.sets import CURRENT, judge
from steno.engine.state.policy import Policy
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Head, Record
from steno.projections.answers.rules_diff import diff_by_cases
from steno.projections.read_models.projector import caught_up, rebuilt
from steno.projections.read_models.view import View

EVENTS = SIZE.count(2_000, 100_000, 10_000_000)
STORES = SIZE.words[1:] or ["sqlite", "postgres"]
BATCH, TENTHS, TAIL = SIZE.pick(100, 1_000, 1_000), 10, SIZE.pick(200, 10_000, 10_000)
ROUNDS = SIZE.pick(1, 5, 5)


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
    """FoldContext all of it, as a first recorder does, which leaves its snapshot."""
    with opened(where, write=True) as record:
        live = LiveWorld(READINGS, record, keep=True)
        live.catch_up()
        decided(live)
        save(SnapshotStore(record), live.state, every=0)


def decided(live: LiveWorld) -> None:
    """A round's decisions under a budget that is not used up."""
    now = live.state.last_at or 0
    decide(live.state, "dstack/main", Policy(budget_total=EVENTS * DOLLAR), now)


def started(where: str | Path) -> None:
    """Start as a recorder does, up to its first poll."""
    with opened(where, write=True) as record:
        live = LiveWorld(READINGS, record, keep=True)
        live.catch_up()
        assert live.position >= EVENTS


def deciding(where: str | Path) -> Iterator[float]:
    """Milliseconds of CPU of each of a recorder's decisions after its start; the first makes a sum of the newest."""
    with opened(where, write=True) as record:
        live = LiveWorld(READINGS, record, keep=True)
        live.catch_up()
        for _ in range(ROUNDS + 1):
            yield 1000 * cpu(lambda: decided(live))


def compared(record: Record) -> None:
    """Compare two rule sets that mean the same, as a command does when the read models are there."""
    with caught_up(record) as models:
        generated_cases.cache_clear()  # a command has none yet
        same = with_judge(lambda case, *, of=judge: of(case), "same")
        assert diff_by_cases(record, View(models), CURRENT, same).changes == ()


def compared_in_the_middle(record: Record) -> None:
    """Compare two rule sets about the one run in the middle of the record that the second judges otherwise."""
    with caught_up(record) as models:
        places = [place for place, _ in models.cases.all()]
        run_id = models.cases.run_id(places[len(places) // 2])
        answer = diff_by_cases(record, View(models), CURRENT, NO_METADATA, only=run_id)
        assert [change.run_id for change in answer.changes] == [run_id]


def rows(store: str, where: str | Path, size: Callable[[], int]) -> Iterator[Measured]:
    """All that one store's record costs."""
    tenths, saved = filled(where)

    def row(name: str, *values: float) -> Measured:
        return measured(f"growth-{store}-{name}", f"{EVENTS:,} events", values)

    yield row("append", *tenths)
    yield row("append-last", tenths[-1] / tenths[0])
    yield row("size", size() / EVENTS)
    yield row("fold", EVENTS / cpu(lambda: folded(where)) / 1000)
    yield row("open", *(wall_ms(lambda: opened(where).close()) for _ in range(ROUNDS)))
    yield row("start", *(wall_ms(lambda: started(where)) for _ in range(ROUNDS)))
    yield row("decide", *list(deciding(where))[1:])
    with opened(where) as record:
        yield row("rebuild", EVENTS / cpu(lambda: rebuilt(record)) / 1000)
        gc.collect()
        gc.freeze()  # a command begins without this heap, which the collector would walk
        yield row("diff", *(1000 * cpu(lambda: compared(record)) for _ in range(ROUNDS)))
        yield row("diff-run", 1000 * cpu(lambda: compared_in_the_middle(record)))
        gc.unfreeze()
        yield row("verify", EVENTS / cpu(record.verify) / 1000)
        tail = record.head().position - saved.position
        yield row("verify-tail", tail / cpu(lambda: record.verify(after=saved)) / 1000)


def main() -> Iterator[Measured]:
    """SQLite, then PostgreSQL."""
    if "sqlite" in STORES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "record.db"
            yield from rows("sqlite", path, lambda: path.stat().st_size)
    if "postgres" in STORES:
        if (why := lacking()) is not None:
            raise Lacking(why)
        server = new_server()
        try:
            server.start()
            # A record on PostgreSQL keeps its snapshot and read models in the user's folders.
            os.environ |= {name: str(server.folder / "user") for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
            with psycopg.connect(server.url(), autocommit=True) as database:
                database.execute("CREATE DATABASE steno")
                size_query = "SELECT pg_database_size('steno')"
                yield from rows(
                    "postgres",
                    server.url("steno"),
                    lambda: int(database.execute(size_query).fetchone()[0]),  # type: ignore[index]
                )
        finally:
            server.remove()


if __name__ == "__main__":
    report(main())
