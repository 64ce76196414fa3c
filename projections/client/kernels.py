"""A client of the kernel endpoint for programs.

for status in submit_hip_kernel(source, "matmul", base_url="http://127.0.0.1:8642"):
    print(status["status"], status["message"])
"""

import uuid
from collections.abc import Iterator
from typing import Any

from steno.projections.client.attempts import BASE_URL, PATIENCE, Attempts
from steno.projections.client.connection import StenoClient
from steno.projections.client.requests import Ask


def submit_hip_kernel(
    solution_code: str,
    problem: str,
    problem_def: dict[str, Any] | str | None = None,
    *,
    gpu_type: str = "MI300X",
    dtype: str = "float32",
    endpoint: str = "benchmark",
    base_url: str = BASE_URL,
    token: str | None = None,
    idempotency_key: str | None = None,
    patience: float = PATIENCE,
) -> Iterator[dict[str, Any]]:
    """Submit a kernel and yield each status once, up to that with a true `final`. Reconnects and resumes by
    itself; leaving the iterator does not stop the run. Raises `Refused`, or `Unreachable` after `patience` seconds
    without answer.

    Args:
        problem_def: the problem; None: the shipped problem of that name.
        endpoint: `benchmark`, or `checker` for the tests alone.
        idempotency_key: the same key with the same arguments means the same run; None: a new key.
    """
    body = {
        "solution_code": solution_code,
        "problem": problem,
        "problem_def": problem_def,
        "gpu_type": gpu_type,
        "dtype": dtype,
        "language": "hip",
        "endpoint": endpoint,
    }
    key = idempotency_key if idempotency_key is not None else str(uuid.uuid4())
    request = {"method": "POST", "url": "/api/amd/submit", "json": body, "headers": {"Idempotency-Key": key}}
    return _followed(base_url, token, Attempts(patience, request))


def follow_hip_kernel(
    run_id: str, after: int = 0, *, base_url: str = BASE_URL, token: str | None = None, patience: float = PATIENCE
) -> Iterator[dict[str, Any]]:
    """As `submit_hip_kernel`, for a submitted kernel: its statuses after position `after`."""
    return _followed(base_url, token, Attempts(patience, _stream_of(run_id), after or None), run_id)


def get_orchestrator_metrics(
    *, base_url: str = BASE_URL, token: str | None = None, timeout: float = 30.0
) -> dict[str, Any]:
    """Cost, credits left, tasks, cold starts and warm reuses, live machines; raises `Refused`, or `Unreachable` after
    `timeout` seconds.
    """
    with StenoClient(base_url, token, patience=timeout) as client:
        return client.ask(Ask(dict[str, Any], "/api/amd/metrics"))


def _followed(
    base_url: str, token: str | None, attempts: Attempts, run_id: str | None = None
) -> Iterator[dict[str, Any]]:
    """The statuses of one kernel, over any number of connections; the first may submit it."""
    attempts.run_id = run_id
    with StenoClient(base_url, token) as client:
        for event in client.events(attempts):
            status: dict[str, Any] = event.json() if event.data else {}
            if status and attempts.is_new(event, status["position"]):
                attempts.run_id = status["run_id"]
                attempts.sent = _stream_of(status["run_id"])
                yield status
                if status.get("final"):
                    return


def _stream_of(run_id: str) -> dict[str, Any]:
    return {"method": "GET", "url": f"/api/amd/runs/{run_id}/stream"}
