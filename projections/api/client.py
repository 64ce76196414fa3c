"""A client of the kernel endpoint for programs: it needs this module, httpx and httpx-sse, nothing else of Steno.

for status in submit_hip_kernel(source, "matmul", base_url="http://127.0.0.1:8642"):
    print(status["status"], status["message"])
"""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
from httpx_sse import SSEError, connect_sse

BASE_URL = "http://127.0.0.1:8642"
PATIENCE = 300.0  # seconds without an answer of the service after which a client gives up
_SILENCE = 45.0  # seconds; the service sends something every 15
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
_LATER = frozenset({502, 503, 504})  # a service that restarts, or its proxy


class Refused(Exception):
    """The service refuses the request, and says why."""

    def __init__(self, status: int, title: str, detail: str, field: str | None) -> None:
        super().__init__(f"{detail} ({field})" if field else detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field  # the part of the request that is wrong


class Unreachable(Exception):
    """The service has not answered for too long; the run, if there is one, goes on."""

    def __init__(self, why: str, run_id: str | None, position: int | None) -> None:
        super().__init__(f"{why}; run {run_id} goes on" if run_id else why)
        self.run_id = run_id
        self.position = position  # the last one heard of


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
    """Submit a kernel and yield each status once, up to the one whose `final` is true. Reconnects and resumes by
    itself; leaving the iterator does not stop the run. Raises `Refused`, or `Unreachable` after `patience` seconds
    without answer.

    Args:
        problem_def: the problem; None: the shipped one of that name.
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
    submission = {"json": body, "headers": {"Idempotency-Key": key}}
    return _followed(base_url, token, patience, submission=submission)


def follow_hip_kernel(
    run_id: str, after: int = 0, *, base_url: str = BASE_URL, token: str | None = None, patience: float = PATIENCE
) -> Iterator[dict[str, Any]]:
    """As `submit_hip_kernel`, for a submitted kernel: its statuses after position `after`."""
    return _followed(base_url, token, patience, submission={}, run_id=run_id, position=after)


def get_orchestrator_metrics(
    *, base_url: str = BASE_URL, token: str | None = None, timeout: float = 30.0
) -> dict[str, Any]:
    """Cost, credits left, tasks, cold starts and warm reuses, live machines; raises `Refused` or `Unreachable`."""
    try:
        with _client(base_url, token, timeout) as client:
            answer = client.get("/api/amd/metrics")
    except httpx.HTTPError as error:
        raise Unreachable(f"{base_url} does not answer: {error}", None, None) from None
    if not answer.is_success:
        raise refused(answer)
    found: dict[str, Any] = answer.json()
    return found


def _followed(
    base_url: str,
    token: str | None,
    patience: float,
    *,
    submission: dict[str, Any],
    run_id: str | None = None,
    position: int = 0,
) -> Iterator[dict[str, Any]]:
    """The statuses of one kernel, over any number of connections; without a run id, submits it first."""
    failures, heard, last = 0, time.monotonic(), str(position)
    with _client(base_url, token, _SILENCE) as client:
        while True:
            method, path, asked = "POST", "/api/amd/submit", submission
            if run_id is not None:
                method, path = "GET", f"/api/amd/runs/{run_id}/stream"
                asked = {"headers": {"Last-Event-ID": last} if position else {}}
            why = "the service ended the stream"
            try:
                with connect_sse(client, method, path, **asked) as source:
                    if source.response.status_code in _LATER:
                        raise httpx.HTTPError(f"status {source.response.status_code}")
                    if not source.response.is_success:
                        source.response.read()
                        raise refused(source.response)
                    try:
                        for event in source.iter_sse():
                            status: dict[str, Any] = event.json() if event.data else {}
                            if status.get("position", 0) <= position:
                                continue
                            run_id, position, last, failures = status["run_id"], status["position"], event.id, 0
                            yield status
                            if status.get("final"):
                                return
                    finally:
                        heard = time.monotonic()  # it was there until now, whether or not it had news
            except (httpx.HTTPError, SSEError) as error:
                why = f"{base_url} does not answer: {error}"
            pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
            if time.monotonic() + pause - heard > patience:
                raise Unreachable(why, run_id, position or None)
            failures += 1
            time.sleep(pause)


def _client(base_url: str, token: str | None, timeout: float) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=base_url, headers=headers, timeout=httpx.Timeout(timeout, connect=10.0))


def refused(answer: httpx.Response) -> Refused:
    """The error that a failed answer means."""
    try:
        said = dict(answer.json())
    except (ValueError, TypeError):
        said = {}
    return Refused(
        answer.status_code,
        str(said.get("title") or answer.reason_phrase),
        str(said.get("detail") or f"the service answers {answer.status_code}"),
        said.get("field"),
    )
