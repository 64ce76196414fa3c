"""Notices to the webhook: what is news is written down as an intent, once, and then delivered."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from engine.act.journal import Journal
from engine.decide.decisions import Alert
from engine.fold.world_codec import WorldState
from engine.notify.delivery import Delivery
from engine.notify.messages import Fields, budget_text, digest, envelope, one
from engine.notify.news import ANOMALY, BUDGET, ORPHAN, RUN_END, Fact, News, notice_id
from engine.notify.webhook import Webhook
from events import types
from events.clock import Clock, format_time
from events.errors import IdConflict, VersionConflict

if TYPE_CHECKING:
    from events.store.record import Batch

Kind = Literal["budget", "orphan", "run_end", "anomaly", "test"]

ROOM = 10
"""Notices that may be open at once; what does not fit beside them is told together, in one (docs/adr/0024)."""
MOST = 200
"""Facts of one digest."""


class Notices:
    """What one source gives to tell, told to one webhook."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        webhook: Webhook | None = None,
        *,
        source: str = "",
        made_again: Callable[[str], bool] | None = None,
    ) -> None:
        """
        Args:
            webhook: where they are posted, and what it is told of; None: alerts are only recorded and logged.
            source: whose ends, anomalies and machines are told of.
            made_again: as in `News`.
        """
        self._journal = journal
        self._clock = clock
        self._webhook = webhook
        self._source = source
        self._delivery = None if webhook is None else Delivery(journal, clock, webhook)
        self._news = News(journal.record, source, made_again)
        self._took_up = False

    # -- what is to be told

    def take_up(self, *, stays: bool) -> None:
        """Write down what is told of the source from now on, before anything is looked at.

        Args:
            stays: this process watches until it is stopped, so what it is set to is what holds. One that acts once
                changes nothing that another set.
        """
        if self._took_up:
            return
        self._took_up = True
        kinds = () if self._webhook is None else tuple(sorted(self._webhook.kinds))
        known = self._journal.ledger().told.get(self._source)
        if set(known or ()) == set(kinds) or (known is not None and not stays):
            return
        self._journal.source(self._source, types.AlertsAdopted(source=self._source, kinds=kinds))

    def alert(self, alert: Alert) -> None:
        """Write down that a threshold of the budget was reached, and in the same transaction that it is to be told."""
        from events.store.record import Batch

        crossed = types.BudgetCrossed(threshold=alert.threshold, spent=alert.spent, total=alert.total)
        event_id = notice_id(self._journal.record.id, f"budget/{alert.threshold}/{alert.total}")
        batches = [Batch(stream="budget", events=(crossed,), ids=(event_id,))]
        if self._webhook is not None and BUDGET in self._webhook.kinds:
            fields = msgspec.structs.asdict(crossed)
            batches.append(self.batch("budget", event_id, budget_text(alert), "/costs", fields))
        try:
            self._journal.append(*batches)
        except (VersionConflict, IdConflict):
            return  # the recorder of another source of this record crossed it first

    def look(self, state: WorldState) -> None:
        """Write down what is to be told of the world: each fact once, many at once together."""
        if self._webhook is None:
            return
        ledger, now = self._journal.ledger(), self._clock.now()
        facts = self._news.look(state, ledger, self._webhook.kinds, now)
        room = ROOM - len(ledger.notices)
        for kind in (ORPHAN, RUN_END, ANOMALY):
            told = [fact for fact in facts if fact.kind == kind]
            while told and room > 0:
                if len(told) <= room:
                    for fact in told:
                        self._tell((fact,), state, now)
                    room -= len(told)
                    break
                self._tell(told[:MOST], state, now)
                room, told = room - 1, told[MOST:]

    def _tell(self, facts: Sequence[Fact], state: WorldState, now: int) -> None:
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

    def batch(
        self, kind: Kind, name: str, text: str, page: str, fields: Fields, about: tuple[str, ...] = ()
    ) -> "Batch":
        """The intent to tell something, on the notice's own stream, where it can only stand once."""
        from events.store.record import Batch

        ours: Fields = {"kind": kind, "notice_id": name, "record": self._journal.record.id}
        ours |= {"at": format_time(self._clock.now()), **fields}
        dashboard = None if self._webhook is None else self._webhook.dashboard
        link = None if dashboard is None else f"{dashboard.rstrip('/')}{page}"
        body = envelope(text, link, ours | ({} if link is None else {"link": link}))
        intent = types.NoticeIntended(notice_id=name, kind=kind, body=body, about=about)
        return Batch(stream=f"notice/{name}", events=(intent,), expected_version=0)

    # -- telling it

    def round(self) -> None:
        """Take in what came of earlier tries and start those that are due; never waits for the webhook."""
        if self._delivery is not None:
            self._delivery.round()

    def due_in(self, now: int) -> int | None:
        """Microseconds until something is to be done; None: nothing is."""
        return None if self._delivery is None else self._delivery.due_in(now)

    def close(self) -> None:
        """Wait a moment for a try under way, and let another process go on."""
        self._news.forget()
        self._took_up = False
        if self._delivery is not None:
            self._delivery.close()
