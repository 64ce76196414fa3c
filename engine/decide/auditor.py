"""The audit of a record: one fold from its start, or from where an audit ended, that stops at each world a decision was
made from, and derives it there again.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from steno.engine.decide.audit import Basis, RecordedDecision, derived, is_decision, sources_of, subject_of, unmatched
from steno.engine.decide.decisions import DECISIONS, Decision, is_news
from steno.engine.errors import SnapshotLost
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_time import record_time
from steno.engine.fold.snapshot import retire
from steno.engine.fold.snapshot_store import EVERY, SETTLED
from steno.engine.state.kernel_mark import KERNELS
from steno.engine.state.segments import Segment
from steno.engine.wire import Position, Shape, Time
from steno.events import types
from steno.events.codec import CODES

if TYPE_CHECKING:
    from steno.engine.fold.record_fold import RecordFold
    from steno.events.store.read import Row

AHEAD: Final = 10_000
"""How far behind its world the event of a decision is looked for: milliseconds, where nobody else appends."""
PATIENCE: Final = 2
"""So often the same question is answered again while a decision stays due, before it is missing: by then a process that
took over from a killed process has decided too.
"""
CHUNK: Final = 500  # positions between two reports of how far it is
_POLLS: Final = frozenset({"PollRecorded", "PollFailed"})
_SUBJECT: Final = frozenset({"run_id", "vm_id", "provider"})


class AuditFinding(Shape, frozen=True, kw_only=True):
    """A decision that does not follow from the record, or a decision that followed and was not made."""

    kind: Literal["differs", "twice", "missing"]
    position: Position  # of the decision's event; of the poll after which it is missing
    at: Time
    decided_at: Position  # the world that it was derived from
    subject: str
    decision: str
    recorded: str | None = None  # its fields, as JSON
    derived: tuple[str, ...] = ()  # what follows about its subject instead, each as its fields
    software: str | None = None  # the version that decided; None: an older version, which did not say so


Subject = tuple[str, str]  # the type of a decision, and what it is about


class Due(NamedTuple):
    """Since which poll a decision is due: its position, time and question; how often that was answered again."""

    position: int
    at: int
    question: int | None
    again: int = 0


class Auditor:
    """Audits what follows the world of `fold`."""

    def __init__(self, fold: "RecordFold", software: str, *, seen: int = 0, missing: bool = False) -> None:
        """`seen`: of the audit that ended where the fold is. `missing`: also look after every poll for what should have
        been decided: the fold then reads each in full.
        """
        self._seen_before = seen
        self._fold, self._software, self._missing = fold, software, missing
        self._state = fold.world.state
        self._at = self._begun = self.seen = self._retired = self._state.position
        self._pending: list[tuple[int, int, RecordedDecision]] = []  # a heap: where to derive it, its own position
        self._newest: dict[tuple[type, str], int] = {}  # the position of the newest decision of a kind about a subject
        self._due: dict[str, dict[Subject, Due]] = {}  # by source: what is due at its newest poll, and since which
        self._acting: set[str] = set()  # sources whose recorder acts
        self.findings: list[AuditFinding] = []
        self.exact = 0  # decisions that follow from the world and the time that they name
        self.older = 0  # decisions that name none, and follow at some position since the poll before

    @property
    def position(self) -> int:
        """Up to where everything is derived: another audit may begin there."""
        return min((each.first - 1 for *_, each in self._pending if each.first <= self._at), default=self._at)

    def run(self, until: int) -> Iterator[int]:
        """Audit up to a position; gives its position after each step."""
        while self._at < until:
            goal = min(until, self._at + CHUNK)
            self._load(goal)
            if self._pending:
                goal = max(self._at, min(goal, self._pending[0][0]))
            self._advance(goal)
            self._at = goal
            due = list[RecordedDecision]()
            while self._pending and self._pending[0][0] <= goal:
                due.append(heapq.heappop(self._pending)[2])
            self._check(due)
            if goal - self._retired >= EVERY:
                self._retired = goal
                self._fold.clear_lanes()
                retire(self._state, goal - SETTLED, _absent)
            yield goal

    def _load(self, goal: int) -> None:
        """Read the decisions that may be made from worlds up to the goal."""
        record = self._fold.record
        end = min(goal + AHEAD, record.head().position)
        if end <= self.seen:
            return
        for stored in record.read(after=self.seen, until=end, types=DECISIONS):
            if not is_decision(stored.data):
                continue
            decision, position, decided = stored.data, stored.position, stored.data.decided_at
            key = type(decision), subject_of(decision)
            repeated, self._newest[key] = self._newest.get(key, 0), position
            before = position - 1  # an event can name no later world
            first = self._poll_before(position, decision) if decided is None else min(decided.position, before)
            if first <= self._begun and position <= self._seen_before:
                continue  # the audit before has derived it
            each = RecordedDecision(position, record_time(self._state, stored), decision, first, repeated > first)
            begin = max(first, self._at, repeated if decided is None else 0)
            heapq.heappush(self._pending, (begin, position, each))
        self.seen = end

    def _poll_before(self, position: int, decision: Decision) -> int:
        """The newest poll before an event, of the source that it is about as far as that is known yet."""
        sources = sources_of(self._state, decision)
        stream = f"source/{sources[0]}" if len(sources) == 1 else None
        polls = self._fold.record.read(until=position - 1, stream=stream, types=_POLLS, limit=1, backwards=True)
        return next((poll.position for poll in polls), self._begun)

    def _check(self, decisions: list[RecordedDecision]) -> None:
        """Derive decisions at this world; those of older versions that do not follow here may follow further on."""
        groups = defaultdict[tuple[Basis, ...], list[RecordedDecision]](list)
        for each in decisions:
            groups[tuple(self._bases(each))].append(each)
        for bases, group in groups.items():
            left, followed = group, list[Decision]()
            for basis in bases:
                left, unused = unmatched(left, derived(self._state, basis), self._software)
                followed += unused
            for each in group:
                if each not in left:
                    self.exact += each.decided is not None
                    self.older += each.decided is None
                elif each.decided is None and self._at + 1 < each.position:
                    heapq.heappush(self._pending, (self._at + 1, each.position, each))
                else:
                    self._differs(each, followed)

    def _bases(self, each: RecordedDecision) -> Iterator[Basis]:
        for source in sources_of(self._state, each.decision):
            if each.decided is not None:
                if not each.repeated and each.decided.position < each.position:
                    yield Basis(source, each.decided.at, each.decided.watched)
                continue
            yield Basis(source, each.at, watched=True)
            if self._state.last_at is not None:
                yield Basis(source, self._state.last_at, watched=True)

    def _differs(self, each: RecordedDecision, followed: list[Decision]) -> None:
        subject, decided = subject_of(each.decision), each.decided
        instead = dict.fromkeys(_words(other) for other in followed if subject_of(other) == subject)
        self.findings.append(
            AuditFinding(
                kind="twice" if each.repeated and decided is not None else "differs",
                position=each.position,
                at=each.at,
                decided_at=self._at if decided is None else decided.position,
                subject=subject,
                decision=type(each.decision).__name__,
                recorded=_words(each.decision),
                derived=tuple(instead),
                software=None if decided is None else decided.software,
            )
        )

    def _advance(self, goal: int) -> None:
        if not self._missing:
            self._fold.run(Until(position=goal))
            return
        rows = {row[0]: row for row in self._fold.record.scan(after=self._at, until=goal)}
        self._fold.run(Until(position=goal), lambda position, _: self._look(rows[position]))

    def _look(self, row: "Row") -> None:
        """Derive after a poll what is due; what stays due for `PATIENCE` rounds is missing."""
        position, kind, stream, _, _, question, *_ = row
        name = self._fold.record.stream_name(stream)
        source = name.removeprefix("source/")
        if kind in (CODES[types.RecorderStarted], CODES[types.RecorderStopped]):
            self._due.pop(source, None)
            (self._acting.add if kind == CODES[types.RecorderStarted] else self._acting.discard)(source)
        if kind != CODES[types.PollRecorded] or source not in self._acting or source not in self._state.policies:
            return
        at, before = self._state.sources[source].last_answered or 0, self._due.get(source, {})
        due = self._due[source] = {}
        for decision in derived(self._state, Basis(source, at, watched=True)):
            if not is_news(decision, self._state.outbox) or source.startswith(f"{KERNELS}/"):
                continue
            key = type(decision).__name__, subject_of(decision)
            since = due[key] = before.get(key, Due(position, at, question))
            if since.position < position and since.question == question:
                since = due[key] = since._replace(again=since.again + 1)
                if since.again != PATIENCE:
                    continue
                self.findings.append(
                    AuditFinding(
                        kind="missing",
                        position=since.position,
                        at=since.at,
                        decided_at=since.position,
                        subject=key[1],
                        decision=key[0],
                        derived=(_words(decision),),
                    )
                )


def _absent(_: Segment) -> bytes:
    """All segments of this world are made, and kept, here."""
    raise SnapshotLost


def _words(decision: Decision) -> str:
    """The decision's fields as JSON, without the subject and what it was made from."""
    fields = msgspec.json.decode(msgspec.json.encode(replace(decision, decided_at=None)), type=dict[str, object])
    return msgspec.json.encode({name: fields[name] for name in fields if name not in _SUBJECT}).decode()
