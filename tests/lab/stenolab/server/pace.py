"""How fast the server works through its queues, and how long it waits before it gives up.

The order of its steps, what it decides and what it says stay genuine; only the pauses between them shrink, and only
while something is on its way (`stenolab.server.work`): idle, a server keeps dstack's own.
"""

from __future__ import annotations

import importlib
import importlib.util
from datetime import timedelta
from typing import Any

from stenolab.server import work

SHORTEST_PAUSE_S = 0.1

_SERVER = "dstack._internal.server."
_PIPELINES = _SERVER + "background.pipeline_tasks."
_TASKS = _SERVER + "background.tasks."
_INTERVAL = "MIN_PROCESSING_INTERVAL"

# Waits before giving up or trying again: module and name of a timedelta, or of a list of them.
_PATIENCE_OF_PIPELINES = (
    (_PIPELINES + "jobs_running", "JOB_DISCONNECTED_RETRY_TIMEOUT"),
    (_PIPELINES + "jobs_terminating", "JOB_TERMINATION_DEADLINE"),
    (_PIPELINES + "runs.pending", "_PENDING_RETRY_DELAYS"),
    (_PIPELINES + "fleets", "_CONSOLIDATION_RETRY_DELAYS"),
    (_PIPELINES + "instances.common", "TERMINATION_RETRY_TIMEOUT"),
)
_PATIENCE_OF_TASKS = (
    (_TASKS + "process_running_jobs", "JOB_DISCONNECTED_RETRY_TIMEOUT"),
    (_TASKS + "process_runs", "_PENDING_RETRY_DELAYS"),
    (_TASKS + "process_fleets", "_CONSOLIDATION_RETRY_DELAYS"),
    (_TASKS + "process_instances", "TERMINATION_RETRY_TIMEOUT"),
)
_QUEUES_OF_TASKS = {
    "process_submitted_jobs": "jobs_submitted",
    "process_running_jobs": "jobs_running",
    "process_terminating_jobs": "jobs_terminating",
    "process_runs": "runs",
    "process_instances": "instances",
    "process_fleets": "fleets",
}


FORGET_S = 10  # between two looks for old samples of jobs, in place of five minutes


# Seconds that a request to an agent may take: an absent agent refuses at once, and only a crowded machine is slow.
_CLIENT = _SERVER + "services.runner.client"
_LONGEST_REQUEST_S = 60


def install(*, pace: float, patience: float) -> None:
    """Multiplies the pauses between steps by `pace`, the waits before giving up by `patience`; 1 is dstack's own.

    Before the server's application is imported.
    """
    importlib.import_module(_CLIENT).REQUEST_TIMEOUT = _LONGEST_REQUEST_S  # type: ignore[attr-defined]
    if pace < 1:
        _forget_soon()
    if importlib.util.find_spec(_PIPELINES.rstrip(".")):
        _quicken_pipelines(pace)
        _scale(_PATIENCE_OF_PIPELINES, patience)
    else:  # before 0.20
        _quicken_tasks(pace)
        _scale(_PATIENCE_OF_TASKS, patience)
        # The 15 s a runner gets to end a stopped job are written into a function that reads this name.
        importlib.import_module(_SERVER + "services.jobs").timedelta = (  # type: ignore[attr-defined]
            lambda seconds: timedelta(seconds=seconds * patience)
        )


def _quicken_pipelines(pace: float) -> None:
    base: Any = importlib.import_module(_PIPELINES + "base")
    make_pipeline, make_fetcher = base.Pipeline.__init__, base.Fetcher.__init__

    delays = base.Fetcher._DEFAULT_FETCH_DELAYS

    def queue(thing: object) -> str:
        return type(thing).__module__.removeprefix(_PIPELINES).partition(".")[0]

    def pipeline(self: Any, *arguments: Any, min_processing_interval: timedelta, **others: Any) -> None:
        interval: Any = min_processing_interval
        if pace < 1 and queue(self) in work.QUEUES:
            interval = work.Interval(work.QUEUES[queue(self)], interval * pace, locks=True)
        make_pipeline(self, *arguments, min_processing_interval=interval, **others)

    def fetcher(self: Any, *arguments: Any, **others: Any) -> None:
        interval = others["min_processing_interval"]
        if not isinstance(interval, work.Interval):
            make_fetcher(self, *arguments, **{"fetch_delays": delays, **others})
            return
        make_fetcher(self, *arguments, **{"queue_check_delay": pace, **others})
        fetch, due = self.fetch, interval.due(max(delays))

        async def fetch_if_due(limit: int) -> list[Any]:
            return await fetch(limit) if due() else []

        self.fetch = fetch_if_due

    base.Pipeline.__init__, base.Fetcher.__init__ = pipeline, fetcher
    base.Fetcher._DEFAULT_FETCH_DELAYS = [max(SHORTEST_PAUSE_S, delay * pace) for delay in delays]


def _quicken_tasks(pace: float) -> None:
    background: Any = importlib.import_module(_SERVER + "background")
    genuine = background.AsyncIOScheduler.add_job

    def add_job(self: Any, task: Any, trigger: Any, *, kwargs: Any = None, **others: Any) -> Any:
        seconds, queue = trigger.interval_length, work.QUEUES.get(_QUEUES_OF_TASKS.get(task.__name__, ""))
        if pace == 1 or queue is None:
            return genuine(self, task, trigger, kwargs=kwargs, **others)
        jitter = trigger.jitter and trigger.jitter * pace
        quick = background.IntervalTrigger(seconds=max(3 * SHORTEST_PAUSE_S, seconds * pace), jitter=jitter)
        module: Any = importlib.import_module(_TASKS + task.__name__)
        interval = work.Interval(queue, getattr(module, _INTERVAL, timedelta()) * pace, locks=False)
        due = interval.due(seconds)
        if hasattr(module, _INTERVAL):
            setattr(module, _INTERVAL, interval)

        async def task_if_due(batch_size: int = 1) -> None:
            if rows := due():
                # A batch is as many queries, each for the next row.
                await (task(min(rows, batch_size)) if kwargs else task())

        return genuine(self, task_if_due, quick, kwargs=kwargs, name=task.__name__, **others)

    background.AsyncIOScheduler.add_job = add_job


def _forget_soon() -> None:
    scheduler: Any = importlib.import_module("apscheduler.schedulers.asyncio").AsyncIOScheduler
    genuine = scheduler.add_job

    def add_job(self: Any, task: Any, trigger: Any, **others: Any) -> Any:
        quick = task.__name__ == "delete_metrics"
        return genuine(self, task, type(trigger)(seconds=FORGET_S) if quick else trigger, **others)

    scheduler.add_job = add_job


def _scale(names: tuple[tuple[str, str], ...], factor: float) -> None:
    for module_name, name in names:
        module = importlib.import_module(module_name)
        value = getattr(module, name)
        setattr(module, name, [wait * factor for wait in value] if isinstance(value, list) else value * factor)
