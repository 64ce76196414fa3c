"""The server's own events, where it has them (0.22; 0.19 answers 405): read forward from where we were."""

from collections.abc import Iterator

from engine.providers.dstack.answer import HttpAnswer
from engine.providers.dstack.client import Client
from engine.providers.dstack.polls import FUTURE, MOST_PAGES, Question, rows
from events.clock import SECOND, format_time, parse_time

PAGE = 100
"""Events of a page; dstack's limit."""
OVERLAP = 30 * SECOND
"""Read again each time: an event is stamped before it is committed, so a late one can lie before the newest we saw."""


class EventsFeed:
    """Pages `events/list` of one project, oldest first; the same event may come again, its id tells."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._absent = False
        """The server has no such endpoint, or one that takes other questions; asked again only by a new process."""
        self._project_id: str | None = None
        self._newest: int | None = None

    def further(self, since: int | None) -> Iterator[tuple[Question, HttpAnswer, bool, bool]]:
        """Each question with its answer, whether that has the expected shape, and whether it is the last page."""
        if self._absent or not self._know_project():
            return
        request: dict[str, object] = {"within_projects": [self._project_id], "limit": PAGE, "ascending": True}
        start = self._newest - OVERLAP if self._newest is not None else since
        if start is not None:
            request["prev_recorded_at"] = format_time(start)
        known: set[str] = set()
        for number in range(1, MOST_PAGES + 1):
            question = Question(ep="events_list", path="/api/events/list", request=dict(request))
            answer = self._client.ask(question.path, question.request)
            page = rows(answer)
            last = page is None or len(page) < PAGE or known >= {str(event["id"]) for event in page}
            last = last or number == MOST_PAGES
            yield question, answer, page is not None, last
            if answer.status in (404, 405, 422):
                self._absent = True
            if page is None:
                return
            known |= {str(event["id"]) for event in page}
            for event in page:
                self._note(event.get("recorded_at"), answer.observed_at)
            if last:
                return
            request |= {"prev_recorded_at": page[-1].get("recorded_at"), "prev_id": page[-1]["id"]}

    def _note(self, recorded_at: object, now: int) -> None:
        if isinstance(recorded_at, str):
            try:
                at = parse_time(recorded_at)
            except ValueError:
                return
            if at >= now + FUTURE:
                return
            self._newest = at if self._newest is None else max(self._newest, at)

    def _know_project(self) -> bool:
        """The project's id, which `events/list` wants; the answer names people and keys, so it is not recorded."""
        if self._project_id is None:
            path = f"/api/projects/{self._client.address.project}/get"
            found = self._client.ask(path).json()
            identity = found.get("project_id") if isinstance(found, dict) else None
            self._project_id = identity if isinstance(identity, str) else None
        return self._project_id is not None
