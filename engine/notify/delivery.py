"""Posts what is to be told, across rounds and processes; each outcome is an event.

A notice survives a crash: without an outcome it is posted again under the same id, which the receiver can tell by
`X-Steno-Notice`.
"""

from typing import TYPE_CHECKING

from engine.act.journal import Journal
from engine.act.outbox import OpenNotice
from engine.notify.webhook import Answer, Poster, Webhook
from events import types
from events.clock import SECOND, Clock

if TYPE_CHECKING:
    from events.store.store import Lease

PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)
"""How long after a failed try the next is made; after the last of them there is none."""

_AT_ONCE = 4
"""Tries under way at the same time."""
_PATIENCE = 3.0
"""Seconds a process that ends waits for a try under way: with an answer in the record nothing is sent twice."""


class Delivery:
    """Sends the open notices of one record, from at most one process at a time."""

    def __init__(self, journal: Journal, clock: Clock, webhook: Webhook) -> None:
        self._journal = journal
        self._clock = clock
        self.poster = Poster(webhook)
        self._lease: Lease | None = None

    def round(self) -> None:
        """Take in what came of earlier tries and start those that are due; never waits for the webhook."""
        for answer in self.poster.answers():
            self._take_down(answer)
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
        """Microseconds until something is to be done; None: nothing is."""
        if self.poster.busy:
            return SECOND
        waits = [_wait(one, now) for one in self._journal.ledger().notices.values()]
        return max(SECOND, min(waits)) if waits else None

    def close(self) -> None:
        """Wait a moment for a try under way, and let another process send the rest."""
        self.poster.wait(_PATIENCE)
        for answer in self.poster.answers():
            self._take_down(answer)
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _may_send(self) -> bool:
        """At most one process sends: several may hold the leases of several sources of one record."""
        if self._lease is None:
            self._lease = self._journal.record.store.lease("notices")
        return self._lease is not None

    def _take_down(self, answer: Answer) -> None:
        final = answer.attempt > len(PAUSES)
        self._journal.notice(answer.notice_id, outcome_of(answer, final=final))


def outcome_of(answer: Answer, *, final: bool) -> types.NoticeDelivered | types.NoticeFailed:
    """What came of a try, as an event. `final`: if it failed, there is no other."""
    if answer.error is None:
        return types.NoticeDelivered(notice_id=answer.notice_id, status=answer.status or 200, attempt=answer.attempt)
    return types.NoticeFailed(notice_id=answer.notice_id, error=answer.error, attempt=answer.attempt, final=final)


def _wait(notice: OpenNotice, now: int) -> int:
    """Microseconds until the next try; 0 where it is due, or where the clock was set back since the last."""
    if notice.attempts == 0 or now < notice.failed_at:
        return 0
    return max(0, notice.failed_at + PAUSES[notice.attempts - 1] - now)
