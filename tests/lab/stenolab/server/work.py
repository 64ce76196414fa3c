"""Whether a queue of the server has work: one query of its database instead of a fetch.

Fetching at the lab's pace takes an idle server a third of a core. A queue is fetched quickly only while it has work,
and at dstack's own pace in any case.
"""

from __future__ import annotations

import importlib
import sqlite3
import time
from collections.abc import Callable

_ACTIVE_FLEET = "SELECT 1 FROM instances WHERE instances.fleet_id = fleets.id AND instances.deleted = 0"

_WORK = {
    "jobs_submitted": "jobs WHERE status = 'SUBMITTED'",
    "jobs_running": "jobs WHERE status IN ('PROVISIONING', 'PULLING', 'RUNNING')",
    "jobs_terminating": "jobs WHERE status = 'TERMINATING'",
    "runs": "runs WHERE status NOT IN ('TERMINATED', 'FAILED', 'DONE')",
    "instances": "instances WHERE deleted = 0 AND status <> 'TERMINATED'",
    # A fleet that wants no machine and has none is left alone: nearly every test leaves one.
    "fleets": "fleets WHERE deleted = 0 AND (status <> 'ACTIVE' OR last_processed_at = created_at"
    " OR json_extract(spec, '$.autocreated') OR coalesce(json_extract(spec, '$.configuration.nodes.min'), 1) > 0"
    f" OR EXISTS ({_ACTIVE_FLEET}))",
}
"""What each queue works on, by the queue's name in 0.22.5."""

_NAMES_BEFORE_0_20 = {
    "process_submitted_jobs": "jobs_submitted",
    "process_running_jobs": "jobs_running",
    "process_terminating_jobs": "jobs_terminating",
    "process_runs": "runs",
    "process_instances": "instances",
    "process_fleets": "fleets",
}


def due(queue: str, pause_s: float) -> Callable[[], bool]:
    """Tells whether to fetch now: the queue has work, is not known here, or was not fetched for `pause_s` seconds."""
    work = _WORK.get(_NAMES_BEFORE_0_20.get(queue, queue))
    last = float("-inf")

    def is_due() -> bool:
        nonlocal last
        now = time.monotonic()
        if work is not None and now < last + pause_s and not _exists(work):
            return False
        last = now
        return True

    return is_due


_database: sqlite3.Connection | None = None


def _exists(work: str) -> bool:
    global _database  # noqa: PLW0603 - one server, one database, one thread
    if _database is None:
        file = importlib.import_module("dstack._internal.server.settings").SERVER_DIR_PATH / "data" / "sqlite.db"
        _database = sqlite3.connect(file, timeout=30, isolation_level=None)
    return bool(_database.execute(f"SELECT EXISTS (SELECT 1 FROM {work})").fetchall()[0][0])
