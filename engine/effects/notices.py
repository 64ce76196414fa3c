"""Notices to the webhook: intended in the record, posted across rounds, each outcome an event.

A notice survives a crash: without an outcome it is posted again under the same id, which the receiver can tell by
`X-Steno-Notice`.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from engine.control.decisions import Alert
from engine.effects.journal import Journal
from engine.effects.lease import Lease
from engine.effects.ledger import OpenNotice
from engine.effects.webhook import Answer, Poster, Webhook
from engine.money.words import rate, usd
from engine.world.change import Anomaly, AnomalyKind
from engine.world.state import WorldState
from engine.world.vms import Vm
from events import types
from events.clock import SECOND, Clock, foreign_run_id, format_time
from events.errors import IdConflict, VersionConflict

if TYPE_CHECKING:
    from events.record import Batch

PAUSES = (1 * SECOND, 5 * SECOND, 25 * SECOND, 125 * SECOND)
"""How long after a failed try the next is made; after the last of them there is none."""

_ORPHANS = frozenset({AnomalyKind.ORPHAN, AnomalyKind.ORPHAN_SUSPECTED})
_AT_ONCE = 4
"""Tries under way at the same time: a project full of orphans is told of one after the other."""
_PATIENCE = 3.0
"""Seconds a process that ends waits for a try under way: with an answer in the record nothing is sent twice."""


class Notices:
    """Alerts of one record, told to one webhook by at most one process at a time."""

    def __init__(self, journal: Journal, clock: Clock, webhook: Webhook | None = None) -> None:
        """
        Args:
            webhook: where they are posted; None: alerts are only recorded and logged.
        """
        self._journal = journal
        self._clock = clock
        self._poster = None if webhook is None else Poster(webhook)
        self._lease: Lease | None = None
        self._seen = 0
        """How many anomalies of the world have been looked at."""

    # -- what is to be told

    def alert(self, alert: Alert) -> None:
        """Write down that a threshold of the budget was reached, and in the same transaction that it is to be told."""
        from events.record import Batch

        crossed = types.BudgetCrossed(threshold=alert.threshold, spent=alert.spent, total=alert.total)
        event_id = self._id(f"budget/{alert.threshold}/{alert.total}")
        batches = [Batch(stream="budget", events=(crossed,), ids=(event_id,))]
        if self._poster is not None:
            batches.append(self._batch("budget", event_id, budget_text(alert), msgspec.structs.asdict(crossed)))
        try:
            self._journal.append(*batches)
        except (VersionConflict, IdConflict):
            return  # the recorder of another source of this record crossed it first

    def look(self, state: WorldState) -> None:
        """Write down that a machine nobody asked for, or that should be gone, is to be told of, while it may cost."""
        if self._poster is None:
            return
        known = self._journal.ledger().noticed
        for anomaly in state.anomalies[self._seen :]:
            vm = state.vms.get(anomaly.subject.removeprefix("vm/"))
            if anomaly.kind not in _ORPHANS or vm is None or not vm.billed:
                continue
            notice_id = self._id(f"{anomaly.kind.value}/{anomaly.subject}/{anomaly.position}")
            if notice_id not in known:
                self._intend(notice_id, orphan_text(anomaly, vm), _fields(anomaly, vm))
        self._seen = len(state.anomalies)

    def _intend(self, notice_id: str, text: str, fields: dict[str, object]) -> None:
        try:
            self._journal.append(self._batch("orphan", notice_id, text, fields))
        except VersionConflict:
            return  # another process did

    def _batch(
        self, kind: Literal["budget", "orphan"], notice_id: str, text: str, fields: dict[str, object]
    ) -> "Batch":
        from events.record import Batch

        body: dict[str, object] = {"text": text, "kind": kind, "notice_id": notice_id}
        body |= {"record": self._journal.record.id, "at": format_time(self._clock.now()), **fields}
        intent = types.NoticeIntended(notice_id=notice_id, kind=kind, body=msgspec.json.encode(body))
        return Batch(stream=f"notice/{notice_id}", events=(intent,), expected_version=0)

    def _id(self, what: str) -> str:
        """The same for the same thing, whoever tells it and however often."""
        return foreign_run_id(f"notice/{self._journal.record.id}", what)

    # -- telling it

    def round(self) -> None:
        """Take in what came of earlier tries and start those that are due; never waits for the webhook."""
        if self._poster is None:
            return
        for answer in self._poster.answers():
            self._take_down(answer)
        waiting = self._journal.ledger().notices
        if not waiting or not self._may_send():
            return
        now = self._clock.now()
        for notice_id, notice in tuple(waiting.items()):
            if len(self._poster.busy) >= _AT_ONCE:
                return
            if notice_id not in self._poster.busy and _wait(notice, now) == 0:
                body, attempt = notice.intent.body, notice.attempts + 1
                self._poster.post(notice_id, body, attempt=attempt, now=now // SECOND)

    def due_in(self, now: int) -> int | None:
        """Microseconds until something is to be done; None: nothing is."""
        if self._poster is None:
            return None
        if self._poster.busy:
            return SECOND
        waits = [_wait(one, now) for one in self._journal.ledger().notices.values()]
        return max(SECOND, min(waits)) if waits else None

    def close(self) -> None:
        """Wait a moment for a try under way, and let another process send the rest."""
        if self._poster is not None:
            self._poster.wait(_PATIENCE)
            for answer in self._poster.answers():
                self._take_down(answer)
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _may_send(self) -> bool:
        """At most one process sends: several may hold the leases of several sources of one record."""
        if self._lease is None:
            path = self._journal.record.path
            self._lease = Lease.take(path.with_name(f"{path.name}.lease-notices"))
        return self._lease is not None

    def _take_down(self, answer: Answer) -> None:
        notice_id, attempt = answer.notice_id, answer.attempt
        outcome: types.Event
        if answer.error is None:
            outcome = types.NoticeDelivered(notice_id=notice_id, status=answer.status or 200, attempt=attempt)
        else:
            final = attempt > len(PAUSES)
            outcome = types.NoticeFailed(notice_id=notice_id, error=answer.error, attempt=attempt, final=final)
        self._journal.notice(notice_id, outcome)


def _wait(notice: OpenNotice, now: int) -> int:
    """Microseconds until the next try; 0 where it is due, or where the clock was set back since the last."""
    if notice.attempts == 0 or now < notice.failed_at:
        return 0
    return max(0, notice.failed_at + PAUSES[notice.attempts - 1] - now)


def budget_text(alert: Alert) -> str:
    """`Steno: $1120.40 of $1400.00 are spent: the alert at 80 % of the budget`."""
    share = f"{alert.threshold / 10:g}"
    return f"Steno: {usd(alert.spent)} of {usd(alert.total)} are spent: the alert at {share} % of the budget"


def orphan_text(anomaly: Anomaly, vm: Vm) -> str:
    """What is wrong with the machine, its name, where it is and what it costs."""
    name = vm.facts.name or vm.provider_id
    cost = "" if vm.facts.price is None else f" at {rate(vm.facts.price)}"
    what = (
        "a machine nobody we know of asked for"
        if anomaly.kind is AnomalyKind.ORPHAN
        else "a machine that should be gone was not seen gone and may still be billed"
    )
    return f"Steno: {what}: {name} of {vm.source}{cost}: {anomaly.detail}"


def _fields(anomaly: Anomaly, vm: Vm) -> dict[str, object]:
    return {
        "anomaly": anomaly.kind.value,
        "vm_id": vm.vm_id,
        "provider_id": vm.provider_id,
        "name": vm.facts.name,
        "source": vm.source,
        "position": anomaly.position,
        "detail": anomaly.detail,
    }
