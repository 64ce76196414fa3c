"""The time that pieces of a record save in replay and verify on all cores, and the CPU that dividing costs.

    python benchmarks/cores.py [EVENTS]

Eight busy projects (`stenotest.big`) in turns. By the clock the two ways run in turns, with the processes started; by
CPU the pieces are worked on in this process, one after another.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.support import SIZE, Measured, compared, measured, report
from msgspec.structs import replace
from stenotest.big import polls
from stenotest.dstack_history import START
from stenotest.inline_pool import InlinePool

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record
from steno.engine.runtime.pools import pool
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.store.verify_pieces import WorkPool

EVENTS, ROUNDS = SIZE.count(3_000, 24_000, 1_000_000), SIZE.pick(1, 2, 3)
PROJECTS, BATCH = 8, 125


def of_project(poll: Poll, name: str) -> Poll:
    """The poll as one of that project."""
    body = None if poll.body is None else poll.body.replace(b'"main"', b'"%s"' % name.encode())
    return replace(poll, source=f"dstack/{name}", req=poll.req.replace(b'"main"', b'"%s"' % name.encode()), body=body)


def fill(path: Path) -> None:
    """The projects' polls, some of each at a time."""
    records = {f"p{number}": polls(START - EVENTS * SECOND, 1_000_000 * number) for number in range(PROJECTS)}
    with Record.open(path, clock=SystemClock(), write=True, create=True, shapes=READINGS.shape) as record:
        while record.head().position < EVENTS:
            record.append_polls([of_project(next(of), name) for name, of in records.items() for _ in range(BATCH)])


def replayed(record: Record, at_once: WorkPool | None) -> object:
    return replay_record(record, pool=at_once).to_json()


def verified(record: Record, at_once: WorkPool | None) -> object:
    return record.verify(pool=at_once)


def seconds(clock: Callable[[], float], work: Callable[[], object]) -> tuple[float, object]:
    began = clock()
    answer = work()
    return clock() - began, answer


def main() -> Iterator[Measured]:
    """Replay, then verify."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, pool(cores, None) as processes:  # as `--jobs`: however short it is
        fill(path := Path(folder) / "record.db")
        at_once = processes or InlinePool(2)
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
            events = record.head().position
            for name, work in (("replay", replayed), ("verify", verified)):
                work(record, at_once)  # starts the processes
                single, all_, cpu = list[float](), list[float](), list[float]()
                for _ in range(ROUNDS):
                    took, expected = seconds(time.perf_counter, lambda work=work: work(record, None))
                    single.append(events / took / 1000)
                    took, answer = seconds(time.perf_counter, lambda work=work: work(record, at_once))
                    all_.append(events / took / 1000)
                    assert answer == expected
                    whole, _ = seconds(time.process_time, lambda work=work: work(record, None))
                    parts, _ = seconds(time.process_time, lambda work=work: work(record, InlinePool(PROJECTS)))
                    cpu.append(parts / whole)
                yield compared(f"cores-{name}", f"{events:,} events", all_, single, "k/s")
                yield measured(f"cores-{name}-cpu", f"{events:,} events in {PROJECTS} pieces", cpu)


if __name__ == "__main__":
    report(main())
