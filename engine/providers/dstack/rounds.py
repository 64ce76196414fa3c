"""A poll round of a project: which questions, in which order, how far back.

A round asks each endpoint once. It reads further pages only

- at first contact: the whole history, or back to `since`;
- after a gap: back to the newest row of the round before, so that what came and went is seen;
- for living machines older than the first page.

An endpoint that does not answer ends the round: a server that is down costs one question. The next round begins after
it, so that one endpoint that hangs does not silence the others.

A followed run older than the first page is looked for in the list of active runs, and only if absent there asked for by
id, four a round in turn. Only a sweep that read every page is `complete` and proves absence.
"""

from collections.abc import Callable, Collection, Generator, Iterator

import msgspec

from steno.engine.providers.dstack.client import (
    EVENTS,
    MACHINES,
    PAGE,
    RUNS,
    Client,
    HttpAnswer,
    ListPage,
    PagedList,
    time_of,
)
from steno.engine.providers.dstack.lenient import at
from steno.events.clock import SECOND, Ids, format_time
from steno.events.poll import Poll

OVERLAP = 30 * SECOND  # events read again: one is stamped before it is committed, so it may come late
BY_ID = 4  # runs asked for by id in one round, in case the server forgot a thousand
_BEGINNING = -1


class Rounds:
    """Polls one project; remembers how far it has read."""

    def __init__(self, client: Client, ids: Ids, source: str) -> None:
        self._client = client
        self._project = client.address.project
        self._ids = ids
        self._source = source
        self._reached: dict[str, int] = {}  # time of the newest row of the last whole sweep
        self._living: dict[str, int] = {}  # machines that lived when last seen → time of creation
        self._turn = 0
        self._first = 0  # the endpoint the next round begins with
        self._no_events = False  # the server has no usable list of events; asked again only by a new process
        self._project_id: str | None = None
        self._newest_event: int | None = None

    def round(self, follow: Collection[str], since: int | None) -> Iterator[Poll]:
        """The polls of one round; it ends early if the server does not answer or refuses us."""
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
        def seen(row: dict[str, object]) -> None:
            missing.discard(str(row["id"]))

        request, floor = RUNS.request(self._project), self._floor("runs_list", since)
        whole = yield from self._sweep("runs_list", RUNS, request, seen, lambda oldest: oldest <= floor)
        if whole is None or not missing:
            return
        if not whole:
            request["only_active"] = True
            yield from self._sweep("runs_list_active", RUNS, request, seen, lambda _: not missing)
        path = self._client.address.path("runs/get")
        for provider_id in self._in_turn(sorted(missing)):
            by_id: dict[str, object] = {"id": provider_id}
            answer = self._client.ask(path, by_id)
            answered = answer.gone or (answer.ok and isinstance(at(answer.json(), "id"), str))
            yield self._poll("runs_get", path, by_id, answer, answered=answered)

    def _poll_instances(self, since: int | None) -> Iterator[Poll]:
        living: dict[str, int] = {}
        unseen = dict(self._living)
        floor = self._floor("instances_list", since)

        def seen(row: dict[str, object]) -> None:
            unseen.pop(str(row["id"]), None)
            created = time_of(row.get("created"))
            if row.get("status") != "terminated" and created is not None:
                living[str(row["id"])] = created

        def far_enough(oldest: int) -> bool:
            return oldest <= min([floor, *unseen.values()])

        request = MACHINES.request(self._project)
        if (yield from self._sweep("instances_list", MACHINES, request, seen, far_enough)) is not None:
            # a row the sweep passed without showing is gone: a placeholder without a machine
            self._living = living

    def _poll_fleets(self) -> Iterator[Poll]:
        path = self._client.address.path("fleets/list")
        answer = self._client.ask(path, {})
        answered, sweep = answer.rows() is not None, self._sweep_id()
        yield self._poll("fleets_list", path, {}, answer, answered=answered, sweep=sweep, complete=True)

    def _poll_events(self, since: int | None) -> Iterator[Poll]:
        """Pages of the project's events, oldest first; an event may come again with the same id."""
        if self._no_events or not self._know_project():
            return
        sweep = self._sweep_id()
        request: dict[str, object] = {EVENTS.project: [self._project_id], "limit": PAGE, "ascending": True}
        start = self._newest_event - OVERLAP if self._newest_event is not None else since
        if start is not None:
            request[EVENTS.cursor[0]] = format_time(start)
        for page in self._client.pages(EVENTS, request):
            yield self._page("events_list", EVENTS, page, sweep, complete=page.last)
            self._no_events = page.answer.status in (404, 405, 422)
            known = () if self._newest_event is None else (self._newest_event,)
            self._newest_event = max((*page.times(EVENTS.time_key), *known), default=None)

    def _know_project(self) -> bool:
        """The project's id, for `events/list`; the answer names people and keys, so it is not recorded."""
        if self._project_id is None:
            identity = at(self._client.ask(f"/api/projects/{self._project}/get").json(), "project_id")
            self._project_id = identity if isinstance(identity, str) else None
        return self._project_id is not None

    def _sweep(
        self,
        ep: str,
        listing: PagedList,
        request: dict[str, object],
        seen: Callable[[dict[str, object]], None],
        far_enough: Callable[[int], bool],
    ) -> Generator[Poll, None, bool | None]:
        """Pages of one listing, newest first. Returns True if that was all, False if it was enough, None if not."""
        sweep, newest = self._sweep_id(), None
        for page in self._client.pages(listing, request):
            yield self._page(ep, listing, page, sweep, complete=page.whole)
            if page.rows is None:
                return None
            for row in page.rows:
                seen(row)
            times = page.times(listing.time_key)
            newest = max([*times, newest]) if newest is not None else max(times, default=None)
            if page.last or not times or far_enough(min(times)):
                if newest is not None:
                    self._reached[ep] = max(newest, self._reached.get(ep, newest))
                return page.whole
        raise AssertionError("unreachable")

    def _floor(self, ep: str, since: int | None) -> int:
        """How far back a sweep reads; at first contact to `since`, or to the beginning."""
        return self._reached.get(ep, since if since is not None else _BEGINNING)

    def _in_turn(self, missing: list[str]) -> list[str]:
        if len(missing) <= BY_ID:
            return missing
        first = self._turn % len(missing)
        self._turn += BY_ID
        return (missing[first:] + missing[:first])[:BY_ID]

    def _page(self, ep: str, listing: PagedList, page: ListPage, sweep: str, *, complete: bool) -> Poll:
        answered = page.rows is not None
        return self._poll(
            ep, listing.path, page.request, page.answer, answered=answered, sweep=sweep, complete=complete
        )

    def _poll(
        self,
        ep: str,
        path: str,
        request: dict[str, object],
        answer: HttpAnswer,
        *,
        answered: bool,
        sweep: str | None = None,
        complete: bool = False,
    ) -> Poll:
        """The poll; a body that is not JSON is kept as a JSON string. `answered`: the body is JSON of its own shape."""
        text = not answered and answer.status is not None and answer.json() is None and answer.body.strip() != b"null"
        body = msgspec.json.encode(answer.body.decode("utf-8", "replace")) if text else answer.body
        return Poll(
            source=self._source,
            path=path,
            req=msgspec.json.encode(request),
            started_at=answer.started_at,
            observed_at=answer.observed_at,
            status=answer.status,
            error=answer.error,
            body=None if answer.status is None else body,
            text=text,
            ep=ep,
            answered=answered,
            sweep=sweep,
            complete=complete and answered,
            server_time=answer.server_time,
        )

    def _sweep_id(self) -> str:
        return self._ids.new().replace("-", "")
