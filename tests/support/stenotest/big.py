"""A long record, made quickly: weeks of a busy project, for what must stay fast on a million events."""

import json
from collections.abc import Iterator
from typing import Final

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.store.store import Where
from stenotest.dstack_history import START, Item, job, run_item, submission
from stenotest.machines import machine_item

_ROUND: Final = 5
"""Seconds between two looks; each is a list of runs and one of machines."""
_STEPS: Final = (
    ("submitted", "submitted", None, None, 2),
    ("provisioning", "provisioning", None, None, 6),
    ("running", "running", None, None, 10),
    ("running", "terminating", "done_by_runner", None, 1),
    ("done", "done", "done_by_runner", 0, 3),
)
"""(run, submission, why, exit status, rounds) of a run's life; every seventh fails at the end."""
_ROUNDS: Final = sum(step[4] for step in _STEPS)
_RUNS_EACH: Final = 4
"""Runs on one machine; the first of them is a cold start."""
_LISTED: Final = 3
"""Runs a list shows, the newest first."""
_EVENTS_A_RUN: Final = 51.4
"""As this makes them: polls, and what they changed."""


def big_record(where: Where, *, events: int = 1_000_000, until: int = START) -> int:
    """Make a record of at least so many events, the newest of them observed at about `until`; its last position.

    One run follows another, four on each machine, five seconds between two looks. It ends in the middle of a run.
    """
    start = until - round((events + 2000) / _EVENTS_A_RUN) * _ROUNDS * _ROUND * SECOND
    with Record.open(where, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        batch: list[Poll] = []
        for poll in polls(start):
            batch.append(poll)
            if len(batch) == min(2000, 1 + events // 10):
                record.append_polls(batch)
                batch.clear()
                if record.head().position >= events:
                    break
        return record.head().position


def polls(start: int, first: int = 0, source: str = "dstack/main") -> Iterator[Poll]:
    """The looks at such a project, without end; `start` is the first's moment (microseconds, UTC), `first` the number
    of its first run. Runs and machines of another number are others, whatever the source.
    """
    recent: list[Item] = []
    gone: list[Item] = []
    number, now = first, 0
    while True:
        submitted, machine = now, number // _RUNS_EACH
        cold, last = number % _RUNS_EACH == 0, number % _RUNS_EACH == _RUNS_EACH - 1
        created = submitted - number % _RUNS_EACH * _ROUNDS * _ROUND + 1
        for status, word, why, exit_status, rounds in _STEPS:
            failed = number % 7 == 0 and status == "done"
            there = not cold or status != "submitted"
            newest = submission(
                "failed" if failed else word,
                exit_status=1 if failed else exit_status,
                reason="container_exited_with_error" if failed else why,
                submitted=submitted,
                finished=now if status == "done" else None,
                hostname=_host(machine) if word not in ("submitted", "provisioning") else None,
                price=1.99 if word != "submitted" else None,
                start=start,
            )
            reason = None if status != "done" else "job_failed" if failed else "all_jobs_done"
            item = run_item(
                f"run-{number}",
                "failed" if failed else status,
                job(newest),
                label=f"run {number}",
                reason=reason,
                submitted=submitted,
                cost=_cost(number, now - submitted) if status == "done" else 0.0,
                start=start,
            )
            ends = last and status == "done"
            phase = "busy" if status == "running" else "provisioning" if cold and status == "provisioning" else "idle"
            row = _machine(machine, "terminating" if ends else phase, created, None, start)
            for _ in range(rounds):
                moment = start + now * SECOND
                yield _poll(source, "/api/runs/list", b'{"project_name":"main","limit":100}', moment, [item, *recent])
                yield _poll(
                    source,
                    "/api/instances/list",
                    b'{"project_names":["main"],"limit":100}',
                    moment,
                    [*([row] if there else []), *gone],
                )
                now += _ROUND
        recent = [item, *recent][: _LISTED - 1]
        if last:
            gone = [_machine(machine, "terminated", created, now, start)]
        number += 1


def _machine(number: int, status: str, created: float, finished: float | None, start: int) -> Item:
    return machine_item(
        f"lab-fleet-{number % 3}",
        status,
        label=f"{number}",
        hostname=_host(number),
        created=created,
        finished=finished,
        reason="terminated_by_user" if finished is not None else None,
        start=start,
    )


def _cost(number: int, seconds: int) -> float:
    """As dstack reckons it; of one run in 500 a figure that nothing explains."""
    return 7.0 if number % 500 == 250 else round(1.99 * seconds / 3600, 4)


def _host(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _poll(source: str, path: str, req: bytes, moment: int, items: list[Item]) -> Poll:
    return Poll(
        source=source,
        path=path,
        req=req,
        started_at=moment,
        observed_at=moment + 12_000,
        status=200,
        body=json.dumps(items, separators=(",", ":")).encode(),
        answered=True,
    )
