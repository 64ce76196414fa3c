"""The parts of both clients: requests as httpx takes them, answers as values, and when to try again."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self, TypeVar

import httpx
import msgspec
from httpx_sse import ServerSentEvent, SSEError

from steno.projections.client.objects import ChangeInfo
from steno.projections.client.requests import Ask

T = TypeVar("T")
BASE_URL = "http://127.0.0.1:8642"
PATIENCE = 300.0  # seconds without an answer of the service after which a client gives up
ERRORS = (httpx.TransportError, SSEError)
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
_LATER = frozenset({502, 503, 504})  # a service that restarts, or its proxy
_PAGE = 200


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
        self.position = position  # of the last message


class Attempts:
    """A request, sent again until the service has been silent for `patience` seconds. A stream resumes behind its
    last message.
    """

    def __init__(self, patience: float, request: dict[str, Any], after: int | None = None) -> None:
        self.sent = request
        self.run_id: str | None = None  # the run of a kernel's stream
        self.after = after  # the position of the stream's last message
        self.why: object = "the service ended the stream"
        self._id = None if after is None else str(after)  # of that message
        self._patience, self._failures, self._heard_at = patience, 0, time.monotonic()

    @classmethod
    def of_stream(cls, patience: float, word: str | None, after: int | None) -> Self:
        """The stream of all changes, or of those of a run."""
        path = "/api/stream" if word is None else f"/api/runs/{word}/stream"
        return cls(patience, {"method": "GET", "url": path}, after)

    def request(self) -> dict[str, Any]:
        return self.sent if self._id is None else {**self.sent, "headers": {"Last-Event-ID": self._id}}

    def pause(self) -> float:
        """Seconds before the next attempt; raises `Unreachable`."""
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        if time.monotonic() + pause - self._heard_at > self._patience:
            raise Unreachable(f"the service does not answer: {self.why}", self.run_id, self.after)
        self._failures += 1
        return pause

    def is_answered(self, answer: httpx.Response) -> bool:
        """False for an answer after which the same request is sent again."""
        self.why = "the service ended the stream" if answer.is_success else f"status {answer.status_code}"
        return answer.status_code not in _LATER

    def heard(self) -> None:
        """The service was there until now, with or without a message."""
        self._heard_at = time.monotonic()

    def is_new(self, event: ServerSentEvent, position: int) -> bool:
        """True for a message behind the last, from which the stream resumes then."""
        self._failures = 0
        if self.after is not None and position <= self.after:
            return False
        self.after, self._id = position, event.id
        return True


def change_in(event: ServerSentEvent, attempts: Attempts) -> ChangeInfo | None:
    """The change of a message; None if there is none, or an earlier message had it."""
    change = msgspec.json.decode(event.data, type=ChangeInfo) if event.data else None
    return change if change is not None and attempts.is_new(event, change.position) else None


def params_of(values: Mapping[str, Any]) -> dict[str, str]:
    def text(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return {name: text(value) for name, value in values.items() if value is not None}


def request_of(ask: Ask[Any], cursor: str | None) -> dict[str, Any]:
    """`cursor`: of a page, empty for the first; None: not a list."""
    if ask.body is not None:
        return {"method": ask.method or "POST", "url": ask.path, "json": ask.body, "headers": ask.headers}
    paged = {} if cursor is None else {"limit": _PAGE, "cursor": cursor or None}
    return {"method": "GET", "url": ask.path, "params": params_of({**ask.params, **paged})}


def refused(answer: httpx.Response) -> Refused:
    """The error that a failed answer means."""
    try:
        problem = dict(answer.json())
    except (ValueError, TypeError):
        problem = {}
    return Refused(
        answer.status_code,
        str(problem.get("title") or answer.reason_phrase),
        str(problem.get("detail") or f"the service answers {answer.status_code}"),
        problem.get("field"),
    )


def read(answer: httpx.Response, kind: type[T]) -> T:
    if not answer.is_success:
        raise refused(answer)
    return msgspec.json.decode(answer.content, type=kind)


def page_in(answer: httpx.Response, ask: Ask[T]) -> tuple[list[T], str | None]:
    """The rows of a page, and the cursor of the next."""
    page = read(answer, dict[str, msgspec.Raw])
    rows: list[T] = msgspec.json.decode(page[ask.items], type=list[ask.kind])  # type: ignore[name-defined]
    return rows, msgspec.json.decode(page["next"])
