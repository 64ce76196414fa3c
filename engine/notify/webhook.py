"""Posts notices to a webhook: each in a thread of its own, across rounds and processes; each outcome is an event.

After a crash a notice without an outcome is posted again under the same id (`X-Steno-Notice`), so the receiver can
deduplicate it.
"""

import hashlib
import hmac
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from engine.act.journal import Journal
from engine.deadline import Deadline
from engine.fold.outbox import OpenNotice
from engine.settings.values import ALERTS
from events import types
from events.clock import SECOND, Clock

if TYPE_CHECKING:
    from events.store.store import Lease

TIMEOUT = 10.0
"""Seconds for each of connecting, writing and waiting for the answer."""
TOTAL = 30.0
"""Seconds for a whole attempt: at most four run at a time, and a slow answer would hold back every other notice."""
PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)
"""Microseconds between attempts; after the last there is no other."""
_AT_ONCE = 4
"""Attempts under way at the same time."""
_PATIENCE = 3.0
"""Seconds a process that ends waits for an attempt under way: with its outcome recorded nothing is sent twice."""

Outcome = types.NoticeDelivered | types.NoticeFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where notices go. The address may itself be a secret: it is never recorded or shown."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    """The signing key; None: notices are not signed."""
    kinds: frozenset[str] = ALERTS
    """The kinds of news it receives."""
    dashboard: str | None = None
    """The address of our own service, for links; None: notices have none."""


class Delivery:
    """Sends the open notices of one record, from at most one process at a time."""

    def __init__(self, journal: Journal, clock: Clock, webhook: Webhook) -> None:
        self._journal = journal
        self._clock = clock
        self._webhook = webhook
        self._lease: Lease | None = None
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._attempts: dict[str, threading.Thread] = {}
        """By notice: attempts under way, or whose outcome is not recorded yet."""

    def round(self) -> None:
        """Record the outcomes of earlier attempts and start those that are due; never waits for the webhook."""
        self._record_outcomes()
        waiting = self._journal.ledger().notices
        if not waiting or not self._may_send():
            return
        now = self._clock.now()
        for notice_id, notice in tuple(waiting.items()):
            if len(self._attempts) < _AT_ONCE and notice_id not in self._attempts and _wait(notice, now) == 0:
                # A daemon: a process that ends does not wait for a server that hangs; the notice is then sent again.
                thread = threading.Thread(target=self._attempt, args=(notice, now), daemon=True)
                self._attempts[notice_id] = thread
                thread.start()

    def due_in(self, now: int) -> int | None:
        """Microseconds until the next attempt is due; None: none is."""
        if self._attempts:
            return SECOND
        waits = [_wait(notice, now) for notice in self._journal.ledger().notices.values()]
        return max(SECOND, min(waits)) if waits else None

    def wait(self, seconds: float) -> None:
        """Wait until no attempt is under way, at most this long for each."""
        for thread in tuple(self._attempts.values()):
            thread.join(seconds)

    def close(self) -> None:
        """Wait a moment for an attempt under way, and let another process send the rest."""
        self.wait(_PATIENCE)
        self._record_outcomes()
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _may_send(self) -> bool:
        """At most one process sends: the sources of one record may be recorded by several processes."""
        if self._lease is None:
            self._lease = self._journal.record.store.lease("notices")
        return self._lease is not None

    def _attempt(self, notice: OpenNotice, now: int) -> None:
        notice_id, body = notice.intent.notice_id, notice.intent.body
        status, error = send(self._webhook.url, body, headers_of(self._webhook, notice_id, body, now // SECOND))
        final = notice.attempts == len(PAUSES)
        self._outcomes.put(outcome_of(notice_id, notice.attempts + 1, status, error, final=final))

    def _record_outcomes(self) -> None:
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            self._attempts.pop(outcome.notice_id).join()
            self._journal.write(f"notice/{outcome.notice_id}", outcome)


def _wait(notice: OpenNotice, now: int) -> int:
    """Microseconds until the next attempt; 0 if it is due, or if the clock was set back since the last."""
    if notice.attempts == 0 or now < notice.failed_at:
        return 0
    return max(0, notice.failed_at + PAUSES[notice.attempts - 1] - now)


def outcome_of(notice_id: str, attempt: int, status: int | None, error: str | None, *, final: bool) -> Outcome:
    """The outcome of an attempt as an event. `final`: a failed one is not retried."""
    if error is None:
        return types.NoticeDelivered(notice_id=notice_id, status=status or 200, attempt=attempt)
    return types.NoticeFailed(notice_id=notice_id, error=error, attempt=attempt, final=final)


def sign(secret: str, moment: int, body: bytes) -> str:
    """The value of `X-Steno-Signature`: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`."""
    digest = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def headers_of(webhook: Webhook, notice_id: str, body: bytes, now: int) -> dict[str, str]:
    """The headers of one attempt made `now` (seconds since the epoch), the signature among them."""
    headers = {"Content-Type": "application/json", "User-Agent": "steno", "X-Steno-Notice": notice_id}
    if webhook.secret is not None:
        headers["X-Steno-Signature"] = sign(webhook.secret, now, body)
    return headers


def send(url: str, body: bytes, headers: dict[str, str]) -> tuple[int | None, str | None]:
    """(HTTP status, error); the address is not in the error."""
    import httpx

    try:
        with (
            Deadline(TOTAL) as deadline,
            httpx.Client(timeout=TIMEOUT) as client,
            client.stream("POST", url, content=body, headers=headers, extensions=deadline.extensions) as answer,
        ):
            status = answer.status_code  # the body is not read
    except httpx.RemoteProtocolError as error:
        # its text quotes what the server sent, which may repeat the address
        return None, f"no answer ({type(error).__name__}: not a proper answer)"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return None, f"no answer ({type(error).__name__}: {error})".replace(url, "the webhook")
    return status, None if 200 <= status < 300 else f"the webhook answered {status}"
