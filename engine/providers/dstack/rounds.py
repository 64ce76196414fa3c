"""One poll round of a project: which questions, in which order, how far back.

A round asks each endpoint once. It reads further pages only

- at first contact: the whole history, or back to `since`;
- after a gap: back to the newest row of the round before, so that what came and went unseen is seen;
- for machines that still live but are older than the first page.

An endpoint that does not answer ends the round, so that a server that is down costs one question; the next round begins
behind it, so that one endpoint that hangs does not silence the others.

A run we follow that is older than the first page is looked for in the list of active runs (one request for all of
them), and only one that is in neither is asked for by its id, four a round in turn. So a project with any history costs
one or two requests of `runs/list`. Only a sweep that read every page is `complete`: absence needs nothing less.
"""

from collections.abc import Callable, Collection, Generator, Iterator

import msgspec

from engine.providers.dstack.answer import FUTURE, MOST_PAGES, HttpAnswer, Question, poll_of, rows, told_one
from engine.providers.dstack.client import Client
from engine.providers.dstack.runs import time_of
from events.clock import SECOND, Ids, format_time, parse_time
from events.poll import Poll

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


PAGE = 100
"""Rows of a page; dstack's limit for runs and events."""
BY_ID = 4
"""Runs asked for by id in one round: a server that forgot a thousand runs is not asked a thousand times."""

_BEGINNING = -1


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A list endpoint and how it is paged, newest first."""

    ep: str
    path: str
    request: dict[str, object]
    time_key: str
    cursor: tuple[str, str]
    """Request keys that take the last row's time and id."""


class Rounds:
    """Polls one project; remembers how far it has looked and what it may stop asking."""

    def __init__(self, client: Client, ids: Ids, source: str) -> None:
        project = client.address.project
        self._client = client
        self._ids = ids
        self._source = source
        self._runs = _Listing(
            ep="runs_list",
            path="/api/runs/list",
            request={"project_name": project, "limit": PAGE},
            time_key="submitted_at",
            cursor=("prev_submitted_at", "prev_run_id"),
        )
        self._active = _Listing(
            ep="runs_list_active",
            path=self._runs.path,
            request={**self._runs.request, "only_active": True},
            time_key=self._runs.time_key,
            cursor=self._runs.cursor,
        )
        self._instances = _Listing(
            ep="instances_list",
            path="/api/instances/list",
            request={"project_names": [project], "limit": PAGE},
            time_key="created",
            cursor=("prev_created_at", "prev_id"),
        )
        self._reached: dict[str, int] = {}
        """Time of the newest row of the last whole look at a listing; absent before first contact is done."""
        self._living: dict[str, int] = {}
        """Machines not yet terminated when last seen, with the time they were created."""
        self._turn = 0
        self._first = 0
        """The endpoint the next round begins with."""
        self._events = EventsFeed(client)

    def round(self, follow: Collection[str], since: int | None) -> Iterator[Poll]:
        """The polls of one round; it ends early where the server does not answer or refuses us."""
        parts = (
            self._poll_runs(set(follow), since),
            self._poll_instances(since),
            self._poll_fleets(),
            self._poll_events(since),
        )
        first, self._first = self._first, 0
        for number in (*range(first, len(parts)), *range(first)):
            for poll in parts[number]:
                yield poll
                if poll.status is None or poll.status >= 500 or poll.status in (401, 403):
                    self._first = (number + 1) % len(parts)
                    return

    def _poll_runs(self, missing: set[str], since: int | None) -> Iterator[Poll]:
        def far_enough(oldest: int) -> bool:
            return oldest <= self._floor(self._runs, since)

        def seen(found: dict[str, object]) -> None:
            missing.discard(str(found["id"]))

        whole = yield from self._sweep(self._runs, seen, far_enough)
        if whole is None or not missing:
            return
        if not whole:
            yield from self._sweep(self._active, seen, lambda _: not missing)
        path = self._client.address.path("runs/get")
        for provider_id in self._in_turn(sorted(missing)):
            question = Question(ep="runs_get", path=path, request={"id": provider_id})
            answer = self._ask(question)
            yield poll_of(self._source, question, answer, told=told_one(answer), sweep=None, complete=False)

    def _poll_instances(self, since: int | None) -> Iterator[Poll]:
        living: dict[str, int] = {}
        unseen = dict(self._living)

        def far_enough(oldest: int) -> bool:
            return oldest <= min([self._floor(self._instances, since), *unseen.values()])

        def seen(found: dict[str, object]) -> None:
            unseen.pop(str(found["id"]), None)
            created = time_of(found.get("created"))
            if found.get("status") != "terminated" and created is not None:
                living[str(found["id"])] = created

        if (yield from self._sweep(self._instances, seen, far_enough)) is not None:
            # what the sweep went past without showing is gone without a word: a placeholder that got no machine
            self._living = living

    def _poll_fleets(self) -> Iterator[Poll]:
        question = Question(ep="fleets_list", path=self._client.address.path("fleets/list"), request={})
        answer = self._ask(question)
        told = rows(answer) is not None
        yield poll_of(self._source, question, answer, told=told, sweep=self._sweep_id(), complete=True)

    def _poll_events(self, since: int | None) -> Iterator[Poll]:
        sweep = self._sweep_id()
        for question, answer, told, last in self._events.further(since):
            yield poll_of(self._source, question, answer, told=told, sweep=sweep, complete=last)

    def _sweep(
        self, listing: _Listing, seen: Callable[[dict[str, object]], None], far_enough: Callable[[int], bool]
    ) -> Generator[Poll, None, bool | None]:
        """Pages of one listing, newest first. Returns True if that was all, False if it was enough, None if not."""
        sweep, request, newest = self._sweep_id(), dict(listing.request), None
        known: set[str] = set()
        for number in range(1, MOST_PAGES + 1):
            question = Question(ep=listing.ep, path=listing.path, request=dict(request))
            answer = self._ask(question)
            page = rows(answer)
            fresh = [found for found in page or () if found["id"] not in known]
            whole = page is not None and len(page) < PAGE
            yield poll_of(self._source, question, answer, told=page is not None, sweep=sweep, complete=whole)
            if page is None:
                return None
            known |= {str(found["id"]) for found in fresh}
            for found in fresh:
                seen(found)
            moments = (time_of(found.get(listing.time_key)) for found in fresh)
            times = [at for at in moments if at is not None and at < answer.observed_at + FUTURE]
            newest = max([*times, newest]) if newest is not None else max(times, default=None)
            # a server that gives the same page again would hold us for ever
            if whole or not times or number == MOST_PAGES or far_enough(min(times)):
                if newest is not None:
                    self._reached[listing.ep] = max(newest, self._reached.get(listing.ep, newest))
                return whole
            request |= {
                listing.cursor[0]: (page or fresh)[-1].get(listing.time_key),
                listing.cursor[1]: (page or fresh)[-1]["id"],
            }
        raise AssertionError("unreachable")

    def _floor(self, listing: _Listing, since: int | None) -> int:
        """How far back a sweep reads; at first contact to `since`, or to the beginning."""
        return self._reached.get(listing.ep, since if since is not None else _BEGINNING)

    def _in_turn(self, missing: list[str]) -> list[str]:
        if len(missing) <= BY_ID:
            return missing
        first = self._turn % len(missing)
        self._turn += BY_ID
        return (missing[first:] + missing[:first])[:BY_ID]

    def _ask(self, question: Question) -> HttpAnswer:
        return self._client.ask(question.path, question.request)

    def _sweep_id(self) -> str:
        return self._ids.new().replace("-", "")
