"""A keep-alive HTTP client of a dstack server, and the errors that its answers mean."""

from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import IO, Any, Final

import httpx
import msgspec

from steno.engine.deadline import Deadline
from steno.engine.errors import (
    ProjectNotFound,
    ProviderError,
    ProviderFailing,
    ProviderRefused,
    ProviderUnreachable,
    RunNotFound,
    TaskInvalid,
)
from steno.engine.providers.dstack.lenient import at, decoded
from steno.engine.providers.dstack.reading import MOST_ITEMS, says_not_exists
from steno.engine.providers.dstack.settings import Address
from steno.events.clock import SECOND, Clock, parse_time
from steno.events.errors import StenoError
from steno.events.poll import too_deep, too_wide

CONNECT_TIMEOUT = 5.0  # seconds to a connection
READ_TIMEOUT = 30.0  # seconds without a byte
POLL_TIMEOUT = 20.0  # seconds without a byte, twice that in all, so that other sources do not become stale
TOTAL_TIMEOUT = 120.0  # seconds for a question and its whole answer, a second try included
UPLOAD_TIMEOUT = 900.0  # as `TOTAL_TIMEOUT`, where a file is sent
LARGEST = 32 * 1024 * 1024  # bytes of an answer we are ready to hold; a page of 100 runs has 0.6 MB
KEEP_ALIVE = 4.0  # seconds an idle connection is trusted; dstack's HTTP server closes it after 5
PAGE = 100  # rows of a page; dstack's limit
MOST_PAGES = 1_000  # of one list: 100,000 rows; a list that never ends cannot hold us
FUTURE = 86_400 * SECOND  # a row's time further ahead is wrong: the next look would start there
FINISHED = ("terminated", "failed", "done")  # words of `run.status` after which nothing changes


class PagedList(msgspec.Struct, frozen=True):
    """A list endpoint of the server and how it is paged."""

    path: str
    project: str  # the key of its request that takes the project
    time_key: str  # the key of its rows by whose time they are sorted
    cursor: tuple[str, str]  # the keys of its request that take the last row's time and id

    def request(self, project: str) -> dict[str, object]:
        return {self.project: [project] if self.project == "project_names" else project, "limit": PAGE}


RUNS = PagedList("/api/runs/list", "project_name", "submitted_at", ("prev_submitted_at", "prev_run_id"))
MACHINES = PagedList("/api/instances/list", "project_names", "created", ("prev_created_at", "prev_id"))
EVENTS = PagedList("/api/events/list", "within_projects", "recorded_at", ("prev_recorded_at", "prev_id"))


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the server; if there is none, `status` is None and `error` says why."""

    started_at: int
    observed_at: int
    status: int | None
    body: bytes = b""
    error: str | None = None
    sent: bool = True  # False where no connection was made, so the server never got it
    server_time: int | None = None  # HTTP `Date`, microseconds

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    def json(self) -> object:
        """The body decoded; None if it is not JSON, or too deep or too wide."""
        return None if too_deep(self.body) or too_wide(self.body) else decoded(self.body)

    def rows(self) -> list[dict[str, object]] | None:
        """The items of a list; None if it is not a 2xx with at most `MOST_ITEMS` objects with an id."""
        items = self.json() if self.ok else None
        if not isinstance(items, list) or len(items) > MOST_ITEMS:
            return None
        return items if all(isinstance(at(item, "id"), str) for item in items) else None

    @property
    def complaint(self) -> str:
        """The messages of an error body in one line; dstack's `detail` is a string, an object or a list of objects."""
        detail = at(self.json(), "detail")
        parts = detail if isinstance(detail, list) else [detail]
        messages = "; ".join(_message(part) for part in parts if isinstance(part, str | dict)) or f"HTTP {self.status}"
        return " ".join(messages.split())[:400]

    @property
    def gone(self) -> bool:
        """The server says that the thing does not exist (not that it refuses to show it)."""
        return says_not_exists(self.status, self.body)


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    request: dict[str, object]
    answer: HttpAnswer
    rows: list[dict[str, object]] | None
    whole: bool  # the list ends here
    last: bool  # the list ends, is unreadable, repeats rows, or has `MOST_PAGES`

    def times(self, key: str) -> list[int]:
        """The readable times of its rows, without any far ahead of our clock."""
        moments = (time_of(row.get(key)) for row in self.rows or ())
        return [moment for moment in moments if moment is not None and moment < self.answer.observed_at + FUTURE]


_NOT_THE_USERS: Final = {"body", "plan", "run_spec", "configuration", "task", "TaskConfigurationRequest", "__root__"}
"""Steps of an error's path that are not in the task file."""


def _message(part: str | dict[str, object]) -> str:
    """A line for an error of pydantic or of dstack, the field's path first."""
    if isinstance(part, str):
        return part
    message, location = part.get("msg"), part.get("loc")
    text = message if isinstance(message, str) and message else "unknown error"
    steps = map(str, location) if isinstance(location, list) else ()
    where = ".".join(step for step in steps if step not in _NOT_THE_USERS)
    return f"{where}: {text}" if where else text


class Client:
    """Asks, with our token, without a version header: dstack checks versions only where a client names its own."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        *,
        read_timeout: float = READ_TIMEOUT,
        total_timeout: float | None = None,
    ) -> None:
        """`total_timeout`: seconds for a whole answer, at most `TOTAL_TIMEOUT`."""
        self.address = address
        self.clock = clock
        self._read_timeout = read_timeout
        self._total_timeout = total_timeout
        self._http: httpx.Client | None = None
        self._connection: Any = None

    def ask(self, path: str, body: object = None, *, again: bool = True, patience: float | None = None) -> HttpAnswer:
        """POST `body` (None: `{}`) as JSON. `again`: retry once if the connection is cut; with False, over a fresh
        connection, the server gets it at most once. `patience`: seconds without a byte where the server itself asks a
        cloud first.
        """
        content = msgspec.json.encode(body if body is not None else {})
        return self._send(path, content=content, again=again, patience=patience)

    def get(self, path: str, query: Mapping[str, str]) -> HttpAnswer:
        return self._send(path, params=query, again=True)

    def expect(self, path: str, body: object = None, *, what: str, gone: type[StenoError] = TaskInvalid) -> HttpAnswer:
        """As `ask`; raises `trouble` for any answer but a 2xx."""
        answer = self.ask(path, body)
        if not answer.ok:
            raise self.trouble(answer, what, gone=gone)
        return answer

    def pages(self, listing: PagedList, request: dict[str, object]) -> Iterator[ListPage]:
        known = set[object]()
        for number in range(1, MOST_PAGES + 1):
            answer = self.ask(listing.path, request)
            rows = answer.rows()
            ids = {row["id"] for row in rows or ()}
            whole = rows is not None and len(rows) < PAGE
            last = whole or ids <= known or number == MOST_PAGES
            yield ListPage(request=request, answer=answer, rows=rows, whole=whole, last=last)
            if not rows or last:
                return
            known |= ids
            after_time, after_id = listing.cursor
            request = {**request, after_time: rows[-1].get(listing.time_key), after_id: rows[-1]["id"]}

    def history(self, listing: PagedList, what: str) -> Iterator[tuple[HttpAnswer, list[dict[str, object]]]]:
        """Every page of a list, newest first. ProviderError if it does not end: "not found" would submit again."""
        for page in self.pages(listing, listing.request(self.address.project)):
            yield page.answer, self._listed(page.answer, page.rows, what)
            if page.last and not page.whole:
                raise ProviderError(f"cannot {what}: the list that {self.address.url} gives does not end")

    def rows(self, path: str, body: object = None, *, what: str) -> list[dict[str, object]]:
        answer = self.ask(path, body)
        return self._listed(answer, answer.rows(), what)

    def _listed(self, answer: HttpAnswer, rows: list[dict[str, object]] | None, what: str) -> list[dict[str, object]]:
        if rows is None:
            raise self.nonsense(what, "list") if answer.ok else self.trouble(answer, what)
        return rows

    def run(self, request: dict[str, object], what: str) -> dict[str, object]:
        """The run of an id, even if deleted, or of a name. Raises RunNotFound if dstack has no such run."""
        run = self.expect(self.address.path("runs/get"), request, what=what, gone=RunNotFound).json()
        if not isinstance(run, dict) or not isinstance(run.get("id"), str):
            raise self.nonsense(what, "run")
        return run

    def trouble(self, answer: HttpAnswer, what: str, *, gone: type[StenoError] = TaskInvalid) -> StenoError:
        """The error for a failed answer. `what`: the act (`submit the task`); `gone`: the error if it is missing."""
        url, project = self.address.url, self.address.project
        if answer.status is None:
            message = f"cannot {what}: no answer from {url} ({answer.error}); is the dstack server up?"
            return ProviderUnreachable(message, sent=answer.sent)
        complaint = answer.complaint
        if answer.status == 401 or (answer.status == 403 and "token" in complaint.lower()):
            message = f"cannot {what}: {url} refuses the token ({complaint}); check the token of project {project}"
            return ProviderRefused(message)
        if answer.status == 403:
            return ProviderRefused(f"cannot {what}: the token may not do that in project {project} ({complaint})")
        if answer.gone:
            return gone(f"cannot {what}: dstack says {complaint}")
        if answer.status == 404:
            message = f"cannot {what}: {url} shows us no project {project}; check its name and your membership"
            return ProjectNotFound(message)
        if answer.status in (400, 413, 422):
            return TaskInvalid(f"cannot {what}: dstack says {complaint}")
        message = f"cannot {what}: {url} answered {answer.status} ({complaint}); look at the dstack server's log"
        return (ProviderFailing if answer.status == 429 or answer.status >= 500 else ProviderError)(message)

    def nonsense(self, what: str, wanted: str) -> ProviderError:
        return ProviderError(f"cannot {what}: {self.address.url} answered no {wanted}; is it a dstack server?")

    def upload(self, path: str, file: IO[bytes], name: str, *, params: Mapping[str, str] | None = None) -> HttpAnswer:
        """POST one file as a form, as `dstack apply` sends code and archives; a retry is harmless."""
        return self._send(path, file=(name, file), params=params, again=True)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None
            self._connection = None

    def _send(
        self,
        path: str,
        *,
        content: bytes | None = None,
        file: tuple[str, IO[bytes]] | None = None,
        params: Mapping[str, str] | None = None,
        again: bool,
        patience: float | None = None,
    ) -> HttpAnswer:
        if not again:
            self.close()
        started = self.clock.now()
        total = UPLOAD_TIMEOUT if file is not None else min(TOTAL_TIMEOUT, self._total_timeout or TOTAL_TIMEOUT)
        form: dict[str, Any] = {"content": content, "headers": {"Content-Type": "application/json"}, "params": params}
        if file is not None:
            form = {"files": {"file": file}, "params": dict(params or {})}
        form["timeout"] = httpx.Timeout(patience or self._read_timeout, connect=CONNECT_TIMEOUT)
        with Deadline(total, self._connection) as deadline:
            for last in (False, True) if again else (True,):
                try:
                    url = self.address.url + path
                    method = "GET" if content is None and file is None else "POST"
                    request = self._client().build_request(method, url, extensions=deadline.extensions, **form)
                    return self._once(request, started, deadline)
                except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
                    self.close()
                    if deadline.passed:
                        return self._none(started, httpx.ReadTimeout(f"answer not whole after {total:g} s"))
                    if last or not isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
                        return self._none(started, error)
                    if file is not None:
                        file[1].seek(0)
                finally:
                    self._connection = deadline.connection
        raise AssertionError("unreachable")

    def _once(self, request: httpx.Request, started: int, deadline: Deadline) -> HttpAnswer:
        response = self._client().send(request, stream=True)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding.strip().lower() not in ("", "identity"):
                # 18 kB of zstd unpack to 600 MB in one piece; we ask for plain answers only
                raise httpx.DecodingError(f"answer packed as {coding[:40]!r}, which we did not accept")
            whole = bytearray()
            for piece in response.iter_raw():
                whole += piece
                if len(whole) > LARGEST:
                    raise httpx.DecodingError(f"answer larger than {LARGEST} bytes")
            if deadline.passed:  # without a length, the cut looks like the end
                raise httpx.ReadTimeout("answer cut")
        finally:
            response.close()
        if response.status_code >= 500:
            # after a 500 dstack resets the connection under the next request
            self.close()
        token, body = self.address.token.encode(), bytes(whole)
        if len(token) >= 8:  # a server (or a proxy's debug page) may repeat our token: keep it out of the record
            body = body.replace(token, b"***")
        return HttpAnswer(
            started_at=started,
            observed_at=self.clock.now(),
            status=response.status_code,
            body=body,
            server_time=_date(response.headers.get("date")),
        )

    def _none(self, started: int, error: Exception) -> HttpAnswer:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        reason = reason.replace(self.address.token, "***")[:300]
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)
        return HttpAnswer(started_at=started, observed_at=self.clock.now(), status=None, error=reason, sent=sent)

    def _client(self) -> httpx.Client:
        if self._http is None:
            self._http = httpx.Client(
                headers={
                    "Authorization": f"Bearer {self.address.token}",
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                },
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                limits=httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE),
                follow_redirects=False,
                trust_env=not self.address.loopback,
                # Reading the certificates of all authorities takes 70 ms; not needed without TLS.
                verify=not (self.address.loopback and self.address.url.startswith("http:")),
            )
        return self._http


def _date(header: str | None) -> int | None:
    try:
        return int(parsedate_to_datetime(header or "").timestamp()) * SECOND
    except (ValueError, TypeError, OverflowError):
        return None


def time_of(text: object) -> int | None:
    """A time of dstack's (microseconds, UTC); None if unreadable."""
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None
