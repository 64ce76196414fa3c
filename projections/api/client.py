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
PATIENCE = 300.0
"""Seconds without a word of the service after which a client gives up."""
_SILENCE = 45.0
"""Seconds; the service sends something every 15."""
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
_LATER = frozenset({502, 503, 504})
"""Statuses that a service being restarted, or a proxy in front of it, answers for a while."""


class Refused(Exception):
    """The service refuses the request, and says why."""

    def __init__(self, status: int, title: str, detail: str, field: str | None) -> None:
        super().__init__(f"{detail} ({field})" if field else detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field
        """The part of the request that is wrong."""


class Unreachable(Exception):
    """The service has not answered for too long; the run, if there is one, goes on."""

    def __init__(self, why: str, run_id: str | None, position: int | None) -> None:
        super().__init__(f"{why}; run {run_id} goes on" if run_id else why)
        self.run_id = run_id
        self.position = position
        """The last one heard of."""


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
    """Submit a kernel and give its statuses as they come, each once, up to the one whose `final` is true.

    Where the connection breaks it comes back by itself to where it was. Leaving the iterator leaves the run alone.

    Args:
        problem_def: the problem; None: the shipped one of that name.
        endpoint: `benchmark`, or `checker` for the tests alone.
        idempotency_key: the same key with the same arguments is the same run; None: a new one.
        patience: seconds without a word of the service to bear.

    Raises:
        Refused: the request is not as it must be, or is not allowed.
        Unreachable: nobody answered for `patience` seconds.
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
    follower = _Follower(base_url, token, patience)
    return follower.statuses(body, key)


def follow_hip_kernel(
    run_id: str,
    after: int = 0,
    *,
    base_url: str = BASE_URL,
    token: str | None = None,
    patience: float = PATIENCE,
) -> Iterator[dict[str, Any]]:
    """As `submit_hip_kernel`, of a kernel that was submitted before: its statuses behind position `after`.

    Raises:
        Refused: there is no such kernel.
        Unreachable: nobody answered for `patience` seconds.
    """
    follower = _Follower(base_url, token, patience)
    follower.run_id, follower.position = run_id, after
    return follower.statuses({}, "")


def get_orchestrator_metrics(
    *, base_url: str = BASE_URL, token: str | None = None, timeout: float = 30.0
) -> dict[str, Any]:
    """Cost, credits left, tasks, cold starts and warm reuses, live machines.

    Raises:
        Refused: the service says no.
        Unreachable: it does not answer.
    """
    try:
        with _client(base_url, token, timeout) as client:
            answer = client.get("/api/amd/metrics")
    except httpx.HTTPError as error:
        raise Unreachable(f"{base_url} does not answer: {error}", None, None) from None
    if not answer.is_success:
        raise _refused(answer)
    found: dict[str, Any] = answer.json()
    return found


class _Follower:
    """One kernel, followed over as many connections as it takes."""

    def __init__(self, base_url: str, token: str | None, patience: float) -> None:
        self._base_url = base_url
        self._token = token
        self._patience = patience
        self._heard = time.monotonic()
        self.run_id: str | None = None
        self.position = 0

    def statuses(self, body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
        failures, self._heard = 0, time.monotonic()
        with _client(self._base_url, self._token, _SILENCE) as client:
            while True:
                why = "the service ended the stream"
                try:
                    for status in self._connection(client, body, key):
                        failures = 0
                        yield status
                        if status.get("final"):
                            return
                except _Later as error:
                    why = str(error)
                except (httpx.HTTPError, SSEError) as error:
                    why = f"{self._base_url} does not answer: {error}"
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                if time.monotonic() + pause - self._heard > self._patience:
                    raise Unreachable(why, self.run_id, self.position or None)
                failures += 1
                time.sleep(pause)

    def _connection(self, client: httpx.Client, body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
        if self.run_id is None:
            asked: dict[str, Any] = {"json": body, "headers": {"Idempotency-Key": key}}
            method, path = "POST", "/api/amd/submit"
        else:
            asked = {"headers": {"Last-Event-ID": str(self.position)} if self.position else {}}
            method, path = "GET", f"/api/amd/runs/{self.run_id}/stream"
        with connect_sse(client, method, path, **asked) as source:
            answer = source.response
            if not answer.is_success:
                answer.read()
                if answer.status_code in _LATER:
                    raise _Later(f"{self._base_url} answers {answer.status_code}")
                raise _refused(answer)
            try:
                for event in source.iter_sse():
                    if not event.data:
                        continue
                    status: dict[str, Any] = event.json()
                    if status["position"] <= self.position:
                        continue
                    self.run_id, self.position = status["run_id"], status["position"]
                    yield status
            finally:
                self._heard = time.monotonic()  # it was there until now, whether or not it had news


class _Later(Exception):
    """Not now."""


def _client(base_url: str, token: str | None, timeout: float) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=base_url, headers=headers, timeout=httpx.Timeout(timeout, connect=10.0))


def _refused(answer: httpx.Response) -> Refused:
    try:
        said = answer.json()
    except ValueError:
        said = None
    said = said if isinstance(said, dict) else {}
    return Refused(
        answer.status_code,
        str(said.get("title") or answer.reason_phrase),
        str(said.get("detail") or f"the service answers {answer.status_code}"),
        said.get("field"),
    )
