"""Notices to the routes, and traces to the collector: news is recorded as an intent, once, then posted; each outcome is
an event. After a crash a notice without an outcome is posted again under the same id (`X-Steno-Notice`; a trace has the
run's), so the receiver can deduplicate it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import cast

import msgspec

from steno.engine.live.journal import Journal
from steno.engine.notify.collector import EVERY, HEADERS, Collector, metrics_of, traces_of
from steno.engine.notify.news import BUDGET, ORDER, TRACE, VANISHED, News, NewsItem, notice_id
from steno.engine.notify.routes import Route, deliver, quiet_left
from steno.engine.notify.webhook import (
    Fields,
    Outcome,
    budget_text,
    digest,
    envelope,
    headers_of,
    message_of,
    outcome_of,
    send,
)
from steno.engine.state.outbox import OpenNotice
from steno.engine.state.run import Run
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND, Clock, Ids, format_time
from steno.events.errors import IdConflict, VersionConflict
from steno.events.store.append import Batch
from steno.events.store.store import Lease
from steno.events.subjects import NoticeKind

ROOM = 10  # open notices of a receiver at most; further facts are combined into a digest (docs/adr/0024)
MOST = 200  # facts of one digest
PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)  # microseconds between attempts
PATIENT = (*PAUSES, 600 * SECOND, *(24 * (3600 * SECOND,)))  # of a route: a mail server may be down for a day
_PAUSES = {False: PAUSES, True: PATIENT}  # whether it is of a route
URGENT = frozenset({BUDGET, VANISHED, "test"})  # quiet hours do not hold it back
_COLLECTED = "/"  # in place of a route: the collector
_AT_ONCE = 4  # attempts under way at the same time
_TIMEOUT = 3.0
"""Seconds an ending process waits for an attempt under way: with its outcome recorded nothing is sent twice."""


Message = tuple[str, str, Fields]  # (text, path of its page, fields)


class _Traces(msgspec.Struct):
    """The content of an intent to send traces."""

    runs: tuple[str, ...]


class Notices:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *routes: Route | None,
        collector: Collector | None = None,
        source: str = "",
        made_again: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`routes`: without any, alerts are only recorded and logged. `collector`: None: no traces are sent. `source`:
        whose runs, anomalies and machines are reported. `made_again`: as in `News`.
        """
        self._journal = journal
        self._clock = clock
        self._routes = {route.name: route for route in routes if route is not None}
        self._collector = collector
        self._kinds = frozenset({TRACE} if collector is not None else ()).union(
            *(route.marks for route in self._routes.values())
        )
        self._source = source
        self._news = News(journal.record, source, made_again)
        self._adopted = False
        self._measured_at = clock.now()  # when the metrics were last sent
        self._leases: dict[str, Lease] = {}
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._attempts: dict[str, threading.Thread] = {}
        """By notice: attempts under way, or whose outcome is not recorded yet."""
        self._accepted: dict[str, int] = {}  # when a route last took a notice: what it refused before is due

    def adopt(self, *, stays: bool) -> None:
        """Record which kinds of news of the source are reported from now on. `stays`: this process runs until it is
        stopped, so its settings hold; a process that acts once keeps those of others.
        """
        if self._adopted:
            return
        self._adopted = True
        kinds = tuple(sorted(self._kinds))
        known = self._journal.outbox().told.get(self._source)
        if set(known or ()) == set(kinds) or (known is not None and not stays):
            return
        self._journal.write(f"source/{self._source}", types.AlertsAdopted(source=self._source, kinds=kinds))

    def alert(self, crossed: types.BudgetCrossed) -> None:
        """Record that a budget threshold was crossed and, in the same transaction, the intent to report it."""
        event_id = notice_id(self._journal.record.id, f"budget/{crossed.threshold}/{crossed.total}")
        batches = [Batch(stream="budget", events=(crossed,), ids=(event_id,))]
        for route in self._routes.values():
            if BUDGET in route.kinds:
                fields = msgspec.structs.asdict(crossed)
                name = notice_id(event_id, route.name) if route.name else event_id
                batches.append(self.batch(route, "budget", name, (budget_text(crossed), "/costs", fields)))
        try:
            self._journal.append(*batches)
        except (VersionConflict, IdConflict):
            return  # the recorder of another source of this record crossed it first

    def collect(self, state: World) -> None:
        """Record the intents to report the world's news: each fact once, many at once as a digest."""
        if not self._kinds:
            return
        outbox, now, traces = self._journal.outbox(), self._clock.now(), self._collector is not None
        facts = self._news.collect(state, outbox, tuple(self._routes.values()), now, traces=traces)
        outstanding = Counter(map(_receiver, outbox.notices.values()))
        for route in self._routes.values():
            new = [fact for fact in facts if fact.route == route.name and fact.kind != TRACE]
            self._notify(route, new, ROOM - outstanding[route.name], state, now)
        ended = [fact for fact in facts if fact.kind == TRACE]
        for start in range(0, len(ended), MOST)[: max(0, ROOM - outstanding[_COLLECTED])]:
            self._report(ended[start : start + MOST], state, now)

    def _notify(self, route: Route, facts: list[NewsItem], room: int, state: World, now: int) -> None:
        """Report facts to a route. What quiet hours held back is one digest, of all kinds."""
        held = [fact for fact in facts if fact.kind not in URGENT and quiet_left(route.quiet, fact.at)]
        if quiet_left(route.quiet, now):
            facts, held = [fact for fact in facts if fact.kind in URGENT], []
        elif len(held) > 1 and room > 0:
            self._report(held[:MOST], state, now, route)
            room -= 1
            facts = [fact for fact in facts if fact not in held]
        for kind in ORDER:
            new = [fact for fact in facts if fact.kind == kind]
            while new and room > 0:
                count = 1 if len(new) <= room else MOST
                self._report(new[:count], state, now, route)
                room, new = room - 1, new[count:]

    def _report(self, facts: Sequence[NewsItem], state: World, now: int, route: Route | None = None) -> None:
        """Record the intent to report facts. That of traces has the runs alone: the traces are made of the
        world when they are sent.
        """
        kind = cast("NoticeKind", facts[0].kind if len({fact.kind for fact in facts}) == 1 else "digest")
        about = () if len(facts) == 1 else tuple(fact.fact_id for fact in facts)
        what = "traces/" if kind == TRACE else "digest/"
        name = notice_id(self._journal.record.id, what + "/".join(about)) if about else facts[0].fact_id
        if kind == TRACE:
            runs = [fact.subject for fact in facts if isinstance(fact.subject, Run)]
            of = f"traces of {len(runs)} runs" if about else f"trace of {runs[0].name or runs[0].run_id}"
            body = msgspec.json.encode({"text": f"Steno: {of}", "runs": [run.run_id for run in runs]})
            batch = _intent(name, kind, body, about)
        else:
            message = digest(facts, state) if about else message_of(facts[0], state, now)
            batch = self.batch(route, kind, name, message, about)
        try:
            self._journal.append(batch)
        except VersionConflict:
            return  # another process did

    def batch(
        self, route: Route | None, kind: NoticeKind, name: str, message: Message, about: tuple[str, ...] = ()
    ) -> Batch:
        """The intent to report something."""
        text, page, fields = message
        ours: Fields = {"kind": kind, "notice_id": name, "record": self._journal.record.id}
        ours |= {"at": format_time(self._clock.now()), **fields}
        dashboard = None if route is None else route.dashboard
        link = None if dashboard is None else f"{dashboard.rstrip('/')}{page}"
        body = envelope(text, link, ours | ({} if link is None else {"link": link}))
        return _intent(name, kind, body, about, "" if route is None else route.name)

    def round(self) -> None:
        """Record the outcomes of earlier attempts and start those that are due; never waits for the webhook."""
        self._record_outcomes()
        self._measure()
        waiting = self._open()
        ours, now = set(filter(self._sends, set(map(_receiver, waiting.values())))), self._clock.now()
        for name, notice in tuple(waiting.items()):
            free = len(self._attempts) < _AT_ONCE and name not in self._attempts
            if free and _receiver(notice) in ours and self._wait(notice, now) == 0:
                # A daemon: an ending process does not wait for a server that hangs; the notice is sent again later.
                thread = threading.Thread(target=self._attempt, args=(notice, self._call(notice, now)), daemon=True)
                self._attempts[name] = thread
                thread.start()

    def _sends(self, receiver: str) -> bool:
        """True if this process alone sends to it: others may record sources of the record, also with other routes."""
        name = f"notices/{receiver}".rstrip("/")  # the webhook and the collector share theirs
        lease = self._leases.get(name) or self._journal.record.store.lease(name)
        if lease is not None:
            self._leases[name] = lease
        return lease is not None

    def _measure(self) -> None:
        """Send the metrics of the source if they are due: once, and not again, as the next say more."""
        now = self._clock.now()
        if self._collector is not None and not 0 <= now - self._measured_at < EVERY:
            self._measured_at = now
            body = metrics_of(self._source, self._journal.state(), self._journal.record, now)
            threading.Thread(target=send, args=(self._collector.metrics, body, HEADERS), daemon=True).start()

    def due_in(self, now: int) -> int | None:
        if self._attempts:
            return SECOND
        waits = [self._wait(notice, now) for notice in self._open().values()]
        return max(SECOND, min(waits)) if waits else None

    def _open(self) -> dict[str, OpenNotice]:
        """Notices without an outcome whose receiver this process knows, by id."""
        if not self._kinds:
            return {}
        known = {*self._routes, *((_COLLECTED,) if self._collector is not None else ())}
        notices = self._journal.outbox().notices
        return {name: notice for name, notice in notices.items() if _receiver(notice) in known}

    def _call(self, notice: OpenNotice, now: int) -> Callable[[], tuple[int | None, str | None]]:
        """An attempt, which gives (status, error)."""
        name, body = notice.intent.notice_id, notice.intent.body
        if notice.intent.kind == TRACE and self._collector is not None:
            runs = msgspec.json.decode(body, type=_Traces).runs
            message = traces_of(runs, self._journal.state(), self._journal.record.id)
            return partial(send, self._collector.url, message, HEADERS, "the collector")
        return call_of(self._routes[notice.intent.route], name, body, now)

    def _wait(self, notice: OpenNotice, now: int) -> int:
        """Microseconds until the next attempt; 0 if it is due, or if the clock was set back since the last."""
        route = self._routes.get(notice.intent.route)
        quiet = 0 if route is None or notice.intent.kind in {*URGENT, TRACE} else quiet_left(route.quiet, now)
        if notice.attempts == 0 or not self._accepted.get(notice.intent.route, 0) <= notice.failed_at <= now:
            return quiet
        return max(quiet, notice.failed_at + _PAUSES[bool(notice.intent.route)][notice.attempts - 1] - now)

    def wait(self, seconds: float) -> None:
        """Wait until no attempt is under way, at most `seconds` for each."""
        for thread in tuple(self._attempts.values()):
            thread.join(seconds)

    def close(self) -> None:
        """Wait a moment for an attempt under way, and let another process continue."""
        self._news.forget()
        self._adopted = False
        self.wait(_TIMEOUT)
        self._record_outcomes()
        while self._leases:
            self._leases.popitem()[1].release()

    def _attempt(self, notice: OpenNotice, call: Callable[[], tuple[int | None, str | None]]) -> None:
        status, error = call()
        if error is None and notice.intent.route:
            self._accepted[notice.intent.route] = self._clock.now()
        final = notice.attempts == len(_PAUSES[bool(notice.intent.route)])
        self._outcomes.put(outcome_of(notice.intent.notice_id, notice.attempts + 1, status, error, final=final))

    def _record_outcomes(self) -> None:
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            self._attempts.pop(outcome.notice_id).join()
            self._journal.write(f"notice/{outcome.notice_id}", outcome)


def _intent(name: str, kind: NoticeKind, body: bytes, about: tuple[str, ...], route: str = "") -> Batch:
    """The intent to send a notice, on its own stream, which can hold it only once."""
    intent = types.NoticeIntended(notice_id=name, kind=kind, body=body, about=about, route=route)
    return Batch(stream=f"notice/{name}", events=(intent,), expected_version=0)


def _receiver(notice: OpenNotice) -> str:
    return _COLLECTED if notice.intent.kind == TRACE else notice.intent.route


def call_of(route: Route, name: str, body: bytes, now: int) -> Callable[[], tuple[int | None, str | None]]:
    """An attempt to send a notice to a route."""
    if not route.posts:
        return partial(deliver, route, body)
    return partial(send, route.url, body, headers_of(route, name, body, now // SECOND), route.who)


def send_test_notice(journal: Journal, route: Route, clock: Clock, ids: Ids) -> tuple[str, int | None, str | None]:
    """Record a test notice, send it once and at once, and record the outcome; never retried. Its id, the HTTP status,
    and the error; None: the receiver accepted it.
    """
    name, kinds = ids.new(), ", ".join(sorted(route.kinds)) or "nothing"
    text = f"Steno: a test notice. {route.name or 'This webhook'} is notified of: {kinds}."
    journal.append(Notices(journal, clock, route).batch(route, "test", name, (text, "/", {})))
    (intent,) = journal.record.read(stream=f"notice/{name}", types={"NoticeIntended"})
    body: bytes = intent.data.body  # type: ignore[union-attr]
    status, error = call_of(route, name, body, clock.now())()
    journal.write(f"notice/{name}", outcome_of(name, 1, status, error, final=True))
    return name, status, error
