"""What a server answered, and what an answer that is none of the good ones means for the caller."""

import msgspec

from engine.errors import (
    ProjectNotFound,
    ProviderError,
    ProviderRefused,
    ProviderUnreachable,
    TaskInvalid,
)
from engine.providers.dstack.endpoints import MOST_ITEMS
from events.clock import SECOND
from events.errors import StenoError
from events.poll import Poll, too_deep, too_wide

GONE = "resource_not_exists"
"""dstack's code for a thing it does not have."""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, or none: then `status` is None and `error` says why."""

    started_at: int
    observed_at: int
    status: int | None
    body: bytes = b""
    error: str | None = None
    sent: bool = True
    """False where the question certainly never left: no connection was made."""
    server_time: int | None = None
    """HTTP `Date`, microseconds."""

    @property
    def ok(self) -> bool:
        """A 2xx."""
        return self.status is not None and 200 <= self.status < 300

    def json(self) -> object:
        """The body decoded; None if it is not JSON, or nested too deeply or too wide to be anything a server means."""
        if too_deep(self.body) or too_wide(self.body):
            return None
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def details(self) -> tuple[tuple[str, str | None], ...]:
        """(message, code) pairs of an error body; dstack's `detail` is a string, an object or a list of objects."""
        body = self.json()
        detail = body.get("detail") if isinstance(body, dict) else None
        found = []
        for part in detail if isinstance(detail, list) else [detail]:
            if isinstance(part, str):
                found.append((part, None))
            elif isinstance(part, dict):
                found.append((_message(part), part.get("code") if isinstance(part.get("code"), str) else None))
        return tuple(found)

    @property
    def gone(self) -> bool:
        """The server says that the thing asked for does not exist (not: that it refuses to show it)."""
        return self.status is not None and 400 <= self.status < 500 and any(code == GONE for _, code in self.details())


def trouble(
    answer: HttpAnswer, url: str, project: str, what: str, *, gone: type[StenoError] = TaskInvalid
) -> StenoError:
    """The error for an answer that is not a 2xx.

    Args:
        what: the deed in three words (`submit the task`).
        gone: what it means here that dstack does not have a thing: by default one the task names.
    """
    if answer.status is None:
        message = f"cannot {what}: no answer from {url} ({answer.error}); is the dstack server up?"
        return ProviderUnreachable(message, sent=answer.sent)
    said = "; ".join(message for message, _ in answer.details()) or f"HTTP {answer.status}"
    said = " ".join(said.split())[:400]
    if answer.status == 401 or (answer.status == 403 and "token" in said.lower()):
        return ProviderRefused(f"cannot {what}: {url} refuses the token ({said}); check the token of project {project}")
    if answer.status == 403:
        return ProviderRefused(f"cannot {what}: the token may not do that in project {project} ({said})")
    if answer.gone:
        return gone(f"cannot {what}: dstack says {said}")
    if answer.status == 404:
        return ProjectNotFound(f"cannot {what}: {url} shows us no project {project}; check its name and our membership")
    if answer.status in (400, 413, 422):
        return TaskInvalid(f"cannot {what}: dstack says {said}")
    return ProviderError(f"cannot {what}: {url} answered {answer.status} ({said}); look at the dstack server's log")


def _message(part: dict[str, object]) -> str:
    """One line of a pydantic error or of dstack's own: the field's path first, where there is one."""
    message = part.get("msg")
    text = message if isinstance(message, str) and message else "unknown error"
    location = part.get("loc")
    if isinstance(location, list):
        skip = {"body", "plan", "run_spec", "configuration", "task", "TaskConfigurationRequest", "__root__"}
        where = ".".join(str(step) for step in location if str(step) not in skip)
        return f"{where}: {text}" if where else text
    return text


MOST_PAGES = 1_000
"""Pages of one list read in a row: 100,000 rows. A server whose pages never end does not hold us."""

FUTURE = 86_400 * SECOND
"""No server's clock is a day ahead. A row of the year 9999 is not where a look has got to: the next would end there."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a round."""

    ep: str
    path: str
    request: dict[str, object]


def rows(answer: HttpAnswer) -> list[dict[str, object]] | None:
    """The items of a list answer; None where it is not a 2xx with a list of at most `MOST_ITEMS` objects with an id."""
    found = answer.json() if answer.ok else None
    if not isinstance(found, list) or len(found) > MOST_ITEMS:
        return None
    return found if all(isinstance(item, dict) and isinstance(item.get("id"), str) for item in found) else None


def told_one(answer: HttpAnswer) -> bool:
    """One thing by its id: a 2xx with an object that has an id, or `resource_not_exists`."""
    if answer.gone:
        return True
    found = answer.json() if answer.ok else None
    return isinstance(found, dict) and isinstance(found.get("id"), str)


def poll_of(
    source: str, question: Question, answer: HttpAnswer, *, told: bool, sweep: str | None, complete: bool
) -> Poll:
    """The poll; a body that is not JSON is kept as a JSON string of its text.

    Args:
        told: the answer has the expected shape; so its body is known to be JSON and is not decoded again.
    """
    body, text = (answer.body, False) if told else _body(answer)
    return Poll(
        source=source,
        path=question.path,
        req=msgspec.json.encode(question.request),
        started_at=answer.started_at,
        observed_at=answer.observed_at,
        status=answer.status,
        error=answer.error,
        body=body,
        text=text,
        ep=question.ep,
        answered=told,
        sweep=sweep,
        complete=complete and told,
        server_time=answer.server_time,
    )


def _body(answer: HttpAnswer) -> tuple[bytes | None, bool]:
    if answer.status is None:
        return None, False
    try:
        readable = not too_deep(answer.body) and not too_wide(answer.body)
        if readable:
            msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        readable = False
    if not readable:
        return msgspec.json.encode(answer.body.decode("utf-8", "replace")), True
    return answer.body, False
