"""The audit of decisions: of a whole record, and in the background of a record that grows. What the background found is
a small blob beside the record; the record itself does not change.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from steno.engine.decide.auditor import AuditFinding, Auditor
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.wire import Position, Shape
from steno.events.clock import Clock
from steno.events.errors import StenoError
from steno.events.installation import version
from steno.events.store.record import Record
from steno.events.store.store import Lease, Store
from steno.projections.read_models.past_worlds import world_before

_log: Final = logging.getLogger("steno.audit")
_BLOB: Final = "audit"
_REST: Final = 49  # sleeps 49 times as long as it worked, to stay below 2 % CPU
_SETTLED: Final = 60.0
"""Seconds after which an event is audited: by then what was decided before it is in the record too."""
_END: Final = 5.0  # seconds to wait for a step under way
_SAVED: Final = 600.0  # seconds between two saves while it catches up
_STEP: Final = 500  # positions folded between two rests
_KEPT: Final = 100  # findings kept, the newest


class DecisionAudit(Shape, frozen=True, kw_only=True):
    """How far decisions were derived again, and what differs."""

    position: Position  # up to where
    exact: int = 0  # decisions that follow from the world and the time that they name
    older: int = 0  # of older versions, which name none: they follow at some position since the poll before
    differing: int = 0
    findings: tuple[AuditFinding, ...] = ()


class _Saved(msgspec.Struct, frozen=True):
    record: str
    chain: str  # the hash at the position
    audit: DecisionAudit
    seen: int  # decisions up to here are among the audited, if they were made from worlds up to the position


def audited(
    record: Record, *, missing: bool = False, progress: Callable[[int, int], None] | None = None
) -> DecisionAudit:
    """The audit of a record from its start to its head. `missing`: also for decisions that were due and not made."""
    auditor = Auditor(RecordFold(record, Fold(READINGS)), version(), missing=missing)
    end = record.head().position
    for position in auditor.run(end):
        if progress is not None:
            progress(position, end)
    return _added(DecisionAudit(position=0), auditor, end, most=None)


def last_audit(record: Record) -> DecisionAudit | None:
    """The result of the background audit; None: it has not looked at this record yet."""
    saved = _saved(record)
    return None if saved is None else saved.audit


def _saved(record: Record) -> _Saved | None:
    with suppress(msgspec.MsgspecError, StenoError):
        saved = msgspec.json.decode(record.store.blob(_BLOB).read() or b"", type=_Saved)
        if saved.record == record.id and saved.chain == record.digest(saved.audit.position):
            return saved
    return None


def _added(before: DecisionAudit, auditor: Auditor, position: int, most: int | None = _KEPT) -> DecisionAudit:
    findings = (*before.findings, *auditor.findings)
    return DecisionAudit(
        position=position,
        exact=before.exact + auditor.exact,
        older=before.older + auditor.older,
        differing=before.differing + len(auditor.findings),
        findings=findings if most is None else findings[-most:],
    )


class BackgroundAudit:
    """A thread that audits a record as it grows. Of several processes that record into it, one audits."""

    def __init__(self, store: Store, clock: Clock, *, settled: float = _SETTLED, rest: float = _REST) -> None:
        self._store, self._clock, self._settled, self._rest = store, clock, settled, rest
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steno-audit", daemon=True)

    def __enter__(self) -> "BackgroundAudit":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(_END)

    def _run(self) -> None:
        with suppress(AttributeError, OSError):  # Linux: of this thread alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        logged = ""
        while not self._stopping.wait(self._settled):
            try:
                if (lease := self._store.lease("audit")) is not None:
                    with (
                        lease,
                        Record.open(self._store, clock=self._clock, check=False, shapes=READINGS.shape) as record,
                    ):
                        self._follow(record, lease)
            except StenoError as error:
                if str(error) != logged:
                    _log.warning("decisions are not audited: %s", logged := str(error))

    def _follow(self, record: Record, lease: Lease) -> None:
        """Audit what was there at the last look, until stopped or until the lease is lost."""
        last = _saved(record) or _Saved(record.id, "", DecisionAudit(position=0), 0)
        before = last.audit
        began = time.thread_time()
        world, position = world_before(record, before.position)
        fold = RecordFold(record, world)
        while position < before.position:
            position = min(before.position, position + _STEP)
            fold.run(Until(position=position))
            began = self._paused(began)
            if self._stopping.is_set():
                return
        auditor, head = Auditor(fold, version(), seen=last.seen), record.head().position
        saved, logged = time.monotonic(), 0
        while lease.valid and not self._stopping.wait(self._settled):
            began, target, head = time.thread_time(), head, record.head().position
            for _ in auditor.run(target):
                for finding in auditor.findings[logged:]:
                    text = f"event {finding.position}, {sentence(finding)}"
                    _log.warning("a decision does not follow from the record: %s", text)
                logged = len(auditor.findings)
                if time.monotonic() - saved > _SAVED:
                    saved = time.monotonic()
                    self._save(record, before, auditor)
                began = self._paused(began)
                if self._stopping.is_set():
                    break
            if auditor.position != before.position:
                self._save(record, before, auditor)

    def _paused(self, began: float) -> float:
        """Rest for the work since `began`; when the next begins."""
        self._stopping.wait(min(10.0, self._rest * (time.thread_time() - began)))
        return time.thread_time()

    def _save(self, record: Record, before: DecisionAudit, auditor: Auditor) -> None:
        audit = _added(before, auditor, auditor.position)
        saved = _Saved(record.id, record.digest(audit.position), audit, auditor.seen)
        record.store.blob(_BLOB).replace(msgspec.json.encode(saved), durable=False)


def sentence(finding: AuditFinding) -> str:
    """A finding in one line, beside its event."""
    what = f"{finding.decision} of {finding.subject}"
    if finding.kind == "missing":
        return f"{what} was due after it and was not made: {finding.derived[0]}"
    instead = f"what follows there is {', '.join(finding.derived)}" if finding.derived else "nothing follows"
    why = "the same was already decided" if finding.kind == "twice" else instead
    return f"{what} {finding.recorded}, decided at {finding.decided_at}: {why}"
