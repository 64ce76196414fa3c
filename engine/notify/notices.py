"""Notices to the webhook, and traces to the collector: news is recorded as an intent, once, then posted; each outcome
is an event. After a crash a notice without an outcome is posted again under the same id (`X-Steno-Notice`; a trace has
the run's), so the receiver can deduplicate it.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Literal, cast

import msgspec

from steno.engine.live.journal import Journal
from steno.engine.notify.collector import HEADERS, Collector, traces_of
from steno.engine.notify.news import ANOMALY, BUDGET, ORPHAN, RUN_END, TRACE, News, NewsItem, notice_id
from steno.engine.notify.webhook import (
    Fields,
    Outcome,
    Webhook,
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

Kind = Literal["budget", "orphan", "run_end", "anomaly", "test", "trace"]

ROOM = 10  # open notices of a receiver at most; further facts are combined into a digest (docs/adr/0024)
MOST = 200  # facts of one digest
PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)  # microseconds between attempts
_AT_ONCE = 4  # attempts under way at the same time
_TIMEOUT = 3.0
"""Seconds an ending process waits for an attempt under way: with its outcome recorded nothing is sent twice."""


class _Traces(msgspec.Struct):
    """The content of an intent to send traces."""

    runs: tuple[str, ...]


class Notices:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        webhook: Webhook | None = None,
        *,
        collector: Collector | None = None,
        source: str = "",
        made_again: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`webhook`: None: alerts are only recorded and logged. `collector`: None: no traces are sent. `source`: whose
        ends, anomalies and machines are reported. `made_again`: as in `News`.
        """
        self._journal = journal
        self._clock = clock
        self._webhook = webhook
        self._collector = collector
        self._kinds = (frozenset() if webhook is None else webhook.kinds) | (
            {TRACE} if collector is not None else set()
        )
        self._source = source
        self._news = News(journal.record, source, made_again)
        self._adopted = False
        self._lease: Lease | None = None
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._attempts: dict[str, threading.Thread] = {}
        """By notice: attempts under way, or whose outcome is not recorded yet."""

    # -- what is reported

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
        if self._webhook is not None and BUDGET in self._webhook.kinds:
            fields = msgspec.structs.asdict(crossed)
            batches.append(self.batch("budget", event_id, budget_text(crossed), "/costs", fields))
        try:
            self._journal.append(*batches)
        except (VersionConflict, IdConflict):
            return  # the recorder of another source of this record crossed it first

    def collect(self, state: World) -> None:
        """Record the intents to report the world's news: each fact once, many at once as a digest."""
        if not self._kinds:
            return
        outbox, now = self._journal.outbox(), self._clock.now()
        facts = self._news.collect(state, outbox, self._kinds, now)
        traces = sum(notice.intent.kind == TRACE for notice in outbox.notices.values())
        room = ROOM - (len(outbox.notices) - traces)
        for kind in (ORPHAN, RUN_END, ANOMALY):
            new = [fact for fact in facts if fact.kind == kind]
            while new and room > 0:
                count = 1 if len(new) <= room else MOST
                self._report(new[:count], state, now)
                room, new = room - 1, new[count:]
        ended = [fact for fact in facts if fact.kind == TRACE]
        for start in range(0, len(ended), MOST)[: max(0, ROOM - traces)]:
            self._report(ended[start : start + MOST], state, now)

    def _report(self, facts: Sequence[NewsItem], state: World, now: int) -> None:
        """Record the intent to report facts of one kind. That of traces has the runs alone: the traces are made of the
        world when they are sent.
        """
        kind, about = cast("Kind", facts[0].kind), () if len(facts) == 1 else tuple(fact.fact_id for fact in facts)
        what = "traces/" if kind == TRACE else "digest/"
        name = notice_id(self._journal.record.id, what + "/".join(about)) if about else facts[0].fact_id
        if kind == TRACE:
            runs = [fact.subject for fact in facts if isinstance(fact.subject, Run)]
            of = f"traces of {len(runs)} runs" if about else f"trace of {runs[0].name or runs[0].run_id}"
            body = msgspec.json.encode({"text": f"Steno: {of}", "runs": [run.run_id for run in runs]})
            batch = _intent(name, kind, body, about)
        else:
            message = digest(facts, state) if about else message_of(facts[0], state, now)
            batch = self.batch(kind, name, *message, about)
        try:
            self._journal.append(batch)
        except VersionConflict:
            return  # another process did

    def batch(self, kind: Kind, name: str, text: str, page: str, fields: Fields, about: tuple[str, ...] = ()) -> Batch:
        """The intent to report something."""
        ours: Fields = {"kind": kind, "notice_id": name, "record": self._journal.record.id}
        ours |= {"at": format_time(self._clock.now()), **fields}
        dashboard = None if self._webhook is None else self._webhook.dashboard
        link = None if dashboard is None else f"{dashboard.rstrip('/')}{page}"
        body = envelope(text, link, ours | ({} if link is None else {"link": link}))
        return _intent(name, kind, body, about)

    # -- delivery

    def round(self) -> None:
        """Record the outcomes of earlier attempts and start those that are due; never waits for the webhook."""
        self._record_outcomes()
        waiting = self._open()
        if waiting and self._lease is None:  # at most one process sends: several may record the sources of one record
            self._lease = self._journal.record.store.lease("notices")
        if self._lease is None:
            return
        now = self._clock.now()
        for name, notice in tuple(waiting.items()):
            if len(self._attempts) < _AT_ONCE and name not in self._attempts and _wait(notice, now) == 0:
                message = self._message(notice, now)
                # A daemon: an ending process does not wait for a server that hangs; the notice is sent again later.
                thread = threading.Thread(target=self._attempt, args=(notice, *message), daemon=True)
                self._attempts[name] = thread
                thread.start()

    def due_in(self, now: int) -> int | None:
        if self._attempts:
            return SECOND
        waits = [_wait(notice, now) for notice in self._open().values()]
        return max(SECOND, min(waits)) if waits else None

    def _open(self) -> dict[str, OpenNotice]:
        """Notices without an outcome whose receiver this process knows, by id."""
        if not self._kinds:
            return {}
        unknown = {kind for kind, to in ((True, self._collector), (False, self._webhook)) if to is None}
        notices = self._journal.outbox().notices
        return {name: notice for name, notice in notices.items() if (notice.intent.kind == TRACE) not in unknown}

    def _message(self, notice: OpenNotice, now: int) -> tuple[str, bytes, dict[str, str]]:
        """(address, body, headers) of an attempt."""
        name, body = notice.intent.notice_id, notice.intent.body
        if notice.intent.kind == TRACE and self._collector is not None:
            runs = msgspec.json.decode(body, type=_Traces).runs
            return self._collector.url, traces_of(runs, self._journal.state(), self._journal.record.id), HEADERS
        assert self._webhook is not None  # noqa: S101 - `_open` has no other
        return self._webhook.url, body, headers_of(self._webhook, name, body, now // SECOND)

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
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _attempt(self, notice: OpenNotice, url: str, body: bytes, headers: dict[str, str]) -> None:
        who = "the collector" if notice.intent.kind == TRACE else "the webhook"
        status, error = send(url, body, headers, who)
        final = notice.attempts == len(PAUSES)
        self._outcomes.put(outcome_of(notice.intent.notice_id, notice.attempts + 1, status, error, final=final))

    def _record_outcomes(self) -> None:
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            self._attempts.pop(outcome.notice_id).join()
            self._journal.write(f"notice/{outcome.notice_id}", outcome)


def _intent(name: str, kind: Kind, body: bytes, about: tuple[str, ...]) -> Batch:
    """The intent to send a notice, on its own stream, which can hold it only once."""
    intent = types.NoticeIntended(notice_id=name, kind=kind, body=body, about=about)
    return Batch(stream=f"notice/{name}", events=(intent,), expected_version=0)


def _wait(notice: OpenNotice, now: int) -> int:
    """Microseconds until the next attempt; 0 if it is due, or if the clock was set back since the last."""
    if notice.attempts == 0 or now < notice.failed_at:
        return 0
    return max(0, notice.failed_at + PAUSES[notice.attempts - 1] - now)


def send_test_notice(journal: Journal, webhook: Webhook, clock: Clock, ids: Ids) -> tuple[str, int | None, str | None]:
    """Record a test notice, send it once and at once, and record the outcome; never retried. Its id, the HTTP status,
    and the error; None: the webhook accepted it.
    """
    name, kinds = ids.new(), ", ".join(sorted(webhook.kinds)) or "nothing"
    text = f"Steno: a test notice. This webhook is notified of: {kinds}."
    journal.append(Notices(journal, clock, webhook).batch("test", name, text, "/", {}))
    (intent,) = journal.record.read(stream=f"notice/{name}", types={"NoticeIntended"})
    body: bytes = intent.data.body  # type: ignore[union-attr]
    status, error = send(webhook.url, body, headers_of(webhook, name, body, clock.now() // SECOND))
    journal.write(f"notice/{name}", outcome_of(name, 1, status, error, final=True))
    return name, status, error
