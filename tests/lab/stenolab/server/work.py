"""When rows of the server's queues are due: soon while they are on their way, more rarely at rest.

Looking at everything at the lab's pace takes an idle server a third of a core. One query of its database, a
hundredth of a fetch, tells how many rows are due; a queue that has none is fetched at dstack's own pace.
"""

from __future__ import annotations

import importlib
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

MANY = 1000
_HURRIED = "skip_min_processing_interval"
_RUNNING = "NOT EXISTS (SELECT 1 FROM jobs AS any_job WHERE any_job.run_id = {run} AND any_job.status <> 'RUNNING')"
_MACHINES = "(SELECT count(*) FROM instances WHERE instances.fleet_id = fleets.id AND instances.deleted = 0)"
_LEAST = "coalesce(json_extract(fleets.spec, '$.configuration.nodes.min'), 1)"
_FLEET_RESTS = (
    "fleets.status = 'ACTIVE' AND NOT coalesce(json_extract(fleets.spec, '$.autocreated'), 0)"
    f" AND {_MACHINES} >= {_LEAST}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The rows that a queue works on, in SQL.

    `rest`: those of its rows that wait for nothing but what happens outside, which are due every `rest_s` seconds.
    `first`: those that dstack 0.22.5 takes at once.
    """

    table: str
    work: str
    rest: str = "0"
    rest_s: float = 0.0
    first: str = "0"


QUEUES = {
    "jobs_submitted": Queue(
        table="jobs", work="status = 'SUBMITTED'", first=_HURRIED + " OR last_processed_at = submitted_at"
    ),
    "jobs_running": Queue(
        table="jobs",
        work="status IN ('PROVISIONING', 'PULLING', 'RUNNING')",
        # The end of a job is waited for, and most are short. Its run has to be at rest too: whenever dstack processes
        # a run, it counts the jobs of the run as processed.
        rest="jobs.submitted_at < datetime('now', '-10 seconds')"
        " AND EXISTS (SELECT 1 FROM runs AS its WHERE its.id = jobs.run_id AND its.status = 'RUNNING')"
        f" AND {_RUNNING.format(run='jobs.run_id')}",
        rest_s=1.5,
        first=_HURRIED,
    ),
    "jobs_terminating": Queue(table="jobs", work="status = 'TERMINATING'", first=_HURRIED),
    "runs": Queue(
        table="runs",
        work="status NOT IN ('TERMINATED', 'FAILED', 'DONE')",
        rest="runs.status = 'RUNNING' AND " + _RUNNING.format(run="runs.id"),
        rest_s=5.0,
        first=_HURRIED + " OR last_processed_at = submitted_at",
    ),
    "instances": Queue(
        table="instances",
        work="deleted = 0 AND status <> 'TERMINATED'",
        # As jobs with their run, machines count as processed whenever their fleet is.
        rest="(instances.status = 'BUSY' OR instances.status = 'IDLE' AND instances.termination_idle_time > 5)"
        f" AND EXISTS (SELECT 1 FROM fleets WHERE fleets.id = instances.fleet_id AND {_FLEET_RESTS})",
        rest_s=2.0,
        first=_HURRIED + " OR last_processed_at = created_at",
    ),
    "fleets": Queue(
        table="fleets", work="deleted = 0", rest=_FLEET_RESTS, rest_s=10.0, first="last_processed_at = created_at"
    ),
}
"""By their names in 0.22.5."""


class Interval:
    """The time that dstack's queries subtract from now, for the newest time of processing that makes a row due.

    Args:
        soon: for a row that is on its way.
        locks: the rows have the locks and marks of 0.20 and later.
    """

    def __init__(self, queue: Queue, soon: timedelta, *, locks: bool) -> None:
        self._queue, self._locks = queue, locks
        self._soon = soon
        # Who keeps the mark of a lock keeps others waiting.
        self._at_rest = f"{queue.rest} AND {queue.table}.lock_owner IS NULL" if locks else queue.rest
        self._rest = max(soon, timedelta(seconds=queue.rest_s))

    def __mul__(self, times: float) -> Interval:
        return Interval(self._queue, self._soon * times, locks=self._locks)

    def __rsub__(self, now: datetime) -> Any:
        sql: Any = importlib.import_module("sqlalchemy")
        at_rest = sql.literal_column(f"({self._at_rest})", sql.Boolean)
        return sql.case((at_rest, now - self._rest), else_=now - self._soon)

    def due(self, pause_s: float) -> Callable[[], int]:
        """Tells how many rows are due; `MANY` if it did not for `pause_s` seconds: the queue is the judge."""
        queue, last = self._queue, float("-inf")
        query = f"SELECT count(*) FROM {queue.table} WHERE {queue.work} AND ("
        query += f"last_processed_at <= CASE WHEN {self._at_rest} THEN :rest ELSE :soon END"
        if self._locks:
            query += f" OR {queue.first}"
        query += ")"
        if self._locks:
            query += " AND (lock_expires_at IS NULL OR lock_expires_at < :now)"

        def count() -> int:
            nonlocal last
            now = datetime.now(UTC).replace(tzinfo=None)
            moments = {"now": now, "rest": now - self._rest, "soon": now - self._soon}
            rows = MANY if time.monotonic() > last + pause_s else _ask(query, {k: str(v) for k, v in moments.items()})
            if rows:
                last = time.monotonic()
            return rows

        return count


_database: sqlite3.Connection | None = None


def _ask(query: str, values: dict[str, str]) -> int:
    global _database  # noqa: PLW0603 - one server, one database, one thread
    if _database is None:
        file = importlib.import_module("dstack._internal.server.settings").SERVER_DIR_PATH / "data" / "sqlite.db"
        _database = sqlite3.connect(file, timeout=30, isolation_level=None)
    return int(_database.execute(query, values).fetchall()[0][0])
