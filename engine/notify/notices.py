"""Notices to the webhook: news is recorded as an intent, once, and then delivered."""

from collections.abc import Callable, Sequence
from typing import Literal, cast

import msgspec

from engine.act.journal import Journal
from engine.fold.world_codec import WorldState
from engine.notify.messages import Fields, budget_text, digest, envelope, one
from engine.notify.news import ANOMALY, BUDGET, ORPHAN, RUN_END, News, NewsItem, notice_id
from engine.notify.webhook import Delivery, Webhook, headers_of, outcome_of, send
from events import types
from events.clock import SECOND, Clock, Ids, format_time
from events.errors import IdConflict, VersionConflict
from events.store.append import Batch

Kind = Literal["budget", "orphan", "run_end", "anomaly", "test"]

ROOM = 10
"""Notices that may be open at once; further facts are combined into a digest (docs/adr/0024)."""
MOST = 200
"""Facts of one digest."""


class Notices:
    """Reports the news of one source to one webhook."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        webhook: Webhook | None = None,
        *,
        source: str = "",
        made_again: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """
        Args:
            webhook: None: alerts are only recorded and logged.
            source: whose ends, anomalies and machines are reported.
            made_again: as in `News`.
        """
        self._journal = journal
        self._clock = clock
        self._webhook = webhook
        self._source = source
        self._delivery = None if webhook is None else Delivery(journal, clock, webhook)
        self._news = News(journal.record, source, made_again)
        self._adopted = False

    # -- what is reported

    def adopt(self, *, stays: bool) -> None:
        """Record which kinds of news of the source are reported from now on.

        Args:
            stays: this process runs until it is stopped, so its settings hold. One that acts once changes nothing that
                another process set.
        """
        if self._adopted:
            return
        self._adopted = True
        kinds = () if self._webhook is None else tuple(sorted(self._webhook.kinds))
        known = self._journal.ledger().told.get(self._source)
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

    def collect(self, state: WorldState) -> None:
        """Record the intents to report the world's news: each fact once, many at once as a digest."""
        if self._webhook is None:
            return
        ledger, now = self._journal.ledger(), self._clock.now()
        facts = self._news.collect(state, ledger, self._webhook.kinds, now)
        room = ROOM - len(ledger.notices)
        for kind in (ORPHAN, RUN_END, ANOMALY):
            new = [fact for fact in facts if fact.kind == kind]
            while new and room > 0:
                told = 1 if len(new) <= room else MOST
                self._report(new[:told], state, now)
                room, new = room - 1, new[told:]

    def _report(self, facts: Sequence[NewsItem], state: WorldState, now: int) -> None:
        about: tuple[str, ...] = ()
        if len(facts) == 1:
            name = facts[0].fact_id
            text, page, fields = one(facts[0], state, now)
        else:
            about = tuple(fact.fact_id for fact in facts)
            name = notice_id(self._journal.record.id, "digest/" + "/".join(about))
            text, page, fields = digest(facts, state)
        try:
            self._journal.append(self.batch(cast("Kind", facts[0].kind), name, text, page, fields, about))
        except VersionConflict:
            return  # another process did

    def batch(self, kind: Kind, name: str, text: str, page: str, fields: Fields, about: tuple[str, ...] = ()) -> Batch:
        """The intent to report something, on the notice's own stream, which can hold it only once."""
        ours: Fields = {"kind": kind, "notice_id": name, "record": self._journal.record.id}
        ours |= {"at": format_time(self._clock.now()), **fields}
        dashboard = None if self._webhook is None else self._webhook.dashboard
        link = None if dashboard is None else f"{dashboard.rstrip('/')}{page}"
        body = envelope(text, link, ours | ({} if link is None else {"link": link}))
        intent = types.NoticeIntended(notice_id=name, kind=kind, body=body, about=about)
        return Batch(stream=f"notice/{name}", events=(intent,), expected_version=0)

    # -- delivery

    def round(self) -> None:
        """Record the outcomes of earlier attempts and start those that are due; never waits for the webhook."""
        if self._delivery is not None:
            self._delivery.round()

    def due_in(self, now: int) -> int | None:
        """Microseconds until the next attempt is due; None: none is."""
        return None if self._delivery is None else self._delivery.due_in(now)

    def close(self) -> None:
        """Wait a moment for an attempt under way, and let another process continue."""
        self._news.forget()
        self._adopted = False
        if self._delivery is not None:
            self._delivery.close()


def send_test_notice(journal: Journal, webhook: Webhook, clock: Clock, ids: Ids) -> tuple[str, int | None, str | None]:
    """Record a test notice, send it once and at once, and record the outcome; it is never retried.

    Returns:
        Its id, the HTTP status, and the error; None: the webhook accepted it.
    """
    name, kinds = ids.new(), ", ".join(sorted(webhook.kinds)) or "nothing"
    text = f"Steno: a test notice. This webhook is notified of: {kinds}."
    journal.append(Notices(journal, clock, webhook).batch("test", name, text, "/", {}))
    (intent,) = journal.record.read(stream=f"notice/{name}", types={"NoticeIntended"})
    body: bytes = intent.data.body  # type: ignore[union-attr]
    status, error = send(webhook.url, body, headers_of(webhook, name, body, clock.now() // SECOND))
    journal.write(f"notice/{name}", outcome_of(name, 1, status, error, final=True))
    return name, status, error
