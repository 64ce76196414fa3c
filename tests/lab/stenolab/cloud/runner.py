"""dstack-runner's HTTP API: takes a job, its files, starts it, and hands out its news."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

from stenolab.cloud.behaviour import Manners
from stenolab.cloud.job import DEFAULT_WORKING_DIR, Job
from stenolab.cloud.upload import archive_of
from stenolab.cloud.wire import Reply, Request

LINGER_S = 0.2  # the runner's process leaves shortly after its last news was fetched


class Runner:
    """The runner of one container; `on_exit` is called once, when it leaves by itself."""

    def __init__(
        self,
        *,
        version: str,
        manners: Manners,
        state_folder: Path,
        origins: dict[str, str],
        on_exit: Callable[[], None],
    ) -> None:
        self._version = version
        self._manners = manners
        self._state_folder = state_folder
        self._origins = origins
        self._on_exit = on_exit
        self._job: Job | None = None
        self._started = False
        self._stopped = False
        self._leaving = False

    def kill(self) -> None:
        """The container is gone, and the job with it."""
        if self._job is not None:
            self._job.kill()

    def __call__(self, request: Request) -> Reply:
        match request.path:
            case "/api/healthcheck":
                return Reply(json={"service": "dstack-runner", "version": self._version})
            case "/api/metrics":
                return Reply(json=_metrics())
            case "/api/submit" if not self._started:
                self._job = Job(request.json, state_folder=self._state_folder, origins=self._origins)
                return Reply()
            case "/api/pull" if self._job is not None:
                return self._pull(self._job, request)
            case "/api/stop":
                self._stopped = True
                if self._job is not None:
                    self._job.stop()
                return Reply()
            case "/api/upload_archive" | "/api/upload_code" | "/api/run" if self._job is not None and not self._started:
                return self._prepare(self._job, request)
            case "/api/submit" | "/api/pull" | "/api/upload_archive" | "/api/upload_code" | "/api/run":
                return Reply(status=409, json={"error": "conflict"})
        return Reply(status=404, json={"error": "not found"})

    def _prepare(self, job: Job, request: Request) -> Reply:
        if request.path == "/api/upload_archive":
            job.add_archive(*archive_of(request.headers["content-type"], request.body))
            return Reply()
        if request.path == "/api/upload_code":
            job.add_code(request.body)
            return Reply()
        self._started = True
        job.start(broken=self._manners.towards(job.name).executor_error)
        return Reply(json={"working_dir": DEFAULT_WORKING_DIR, "username": "root"})

    def _pull(self, job: Job, request: Request) -> Reply:
        since = int(parse_qs(request.query).get("timestamp", ["0"])[0])
        news = job.news(since)
        over = job.finished or (self._stopped and not self._started)
        if over and not self._leaving:
            self._leaving = True
            timer = threading.Timer(LINGER_S, self._on_exit)
            timer.daemon = True
            timer.start()
        return Reply(json={**news, "has_more": not over})


def _metrics() -> dict[str, object]:
    return {
        "timestamp_micro": int(time.time() * 1e6),
        "cpu_usage_micro": int(time.process_time() * 1e6),
        "memory_usage_bytes": 2**30,
        "memory_working_set_bytes": 2**30,
        "gpus": [{"gpu_memory_usage_bytes": 8 * 2**30, "gpu_util_percent": 90}],
    }
