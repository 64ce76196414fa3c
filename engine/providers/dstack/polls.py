"""An answer as a poll: what was asked, what came, and whether the source told us something."""

import msgspec

from engine.providers.dstack.answer import HttpAnswer
from engine.providers.dstack.endpoints import MOST_ITEMS
from events.clock import SECOND
from events.poll import Poll
from events.shape.depth import too_deep, too_wide

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
