"""Delivers notices across rounds and processes; each outcome is an event.

After a crash a notice without an outcome is posted again under the same id (`X-Steno-Notice`), so the receiver can
deduplicate it.
"""

from typing import TYPE_CHECKING

from engine.act.journal import Journal
from engine.fold.outbox import OpenNotice
from engine.notify.webhook import DeliveryResult, Poster, Webhook
from events import types
from events.clock import SECOND, Clock

if TYPE_CHECKING:
    from events.store.store import Lease

PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)
"""Microseconds between attempts; after the last there is no other."""

_AT_ONCE = 4
"""Attempts under way at the same time."""
_PATIENCE = 3.0
"""Seconds a process that ends waits for an attempt under way: with its outcome recorded nothing is sent twice."""


class Delivery:
    """Sends the open notices of one record, from at most one process at a time."""

    def __init__(self, journal: Journal, clock: Clock, webhook: Webhook) -> None:
        self._journal = journal
        self._clock = clock
        self.poster = Poster(webhook)
        self._lease: Lease | None = None

    def round(self) -> None:
        """Record the outcomes of earlier attempts and start those that are due; never waits for the webhook."""
        for answer in self.poster.answers():
            self._record_outcome(answer)
        waiting = self._journal.ledger().notices
        if not waiting or not self._may_send():
            return
        now = self._clock.now()
        for notice_id, notice in tuple(waiting.items()):
            if len(self.poster.busy) >= _AT_ONCE:
                return
            if notice_id not in self.poster.busy and _wait(notice, now) == 0:
                body, attempt = notice.intent.body, notice.attempts + 1
                self.poster.post(notice_id, body, attempt=attempt, now=now // SECOND)

    def due_in(self, now: int) -> int | None:
        """Microseconds until the next attempt is due; None: none is."""
        if self.poster.busy:
            return SECOND
        waits = [_wait(one, now) for one in self._journal.ledger().notices.values()]
        return max(SECOND, min(waits)) if waits else None

    def close(self) -> None:
        """Wait a moment for an attempt under way, and let another process send the rest."""
        self.poster.wait(_PATIENCE)
        for answer in self.poster.answers():
            self._record_outcome(answer)
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _may_send(self) -> bool:
        """At most one process sends: the sources of one record may be recorded by several processes."""
        if self._lease is None:
            self._lease = self._journal.record.store.lease("notices")
        return self._lease is not None

    def _record_outcome(self, answer: DeliveryResult) -> None:
        final = answer.attempt > len(PAUSES)
        self._journal.write(f"notice/{answer.notice_id}", outcome_of(answer, final=final))


def outcome_of(answer: DeliveryResult, *, final: bool) -> types.NoticeDelivered | types.NoticeFailed:
    """The outcome of an attempt as an event. `final`: a failed one is not retried."""
    if answer.error is None:
        return types.NoticeDelivered(notice_id=answer.notice_id, status=answer.status or 200, attempt=answer.attempt)
    return types.NoticeFailed(notice_id=answer.notice_id, error=answer.error, attempt=answer.attempt, final=final)


def _wait(notice: OpenNotice, now: int) -> int:
    """Microseconds until the next attempt; 0 if it is due, or if the clock was set back since the last."""
    if notice.attempts == 0 or now < notice.failed_at:
        return 0
    return max(0, notice.failed_at + PAUSES[notice.attempts - 1] - now)
