"""A poll as the fold sees it, and how it is read. An answer may list a run or machine more than once, with different
facts: one row is used, or each repetition of the answer would move and bill it back and forth.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from steno.engine.rules.cases import case_of
from steno.engine.rules.sets import attempt_of, decisive, progress
from steno.engine.state.facts import RunFacts, VmEvent, VmFacts
from steno.engine.state.reading import Listing, Reading, Readings, Scope, Seen, Tick
from steno.engine.state.states import PROGRESS, VmState
from steno.events.clock import parse_time
from steno.events.errors import UnreadableInput
from steno.events.poll import Poll
from steno.events.shape.cut import items_of

KeyT = TypeVar("KeyT", bound=Hashable)
T = TypeVar("T")

_LAST: Final = 2**63 - 1  # no history has a greater position
_REMEMBERED: Final = 128  # items whose facts are cached (or twice as many as one answer lists), and answers
_QUESTIONS: Final = 16  # questions whose items are cached
_FIELDS: Final = {Listing.RUNS: "runs", Listing.RUN: "runs", Listing.VMS: "vms", Listing.EVENTS: "events"}
"""Listing read → the field of `Tick` with its items."""


class PollReader:
    """Reads the polls of one history, in any order. Equal items share their facts."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._answers: dict[tuple[str, str, bytes], tuple[tuple[bytes | None, int | None, bool], Tick]] = {}
        """The newest answer to each question of each source: most answers repeat the one before."""
        self._known: dict[tuple[Listing, bytes], dict[Any, Sequence[Any]]] = {}
        """(listing, what was asked if that changes an item's meaning) → what items say, by text or by id in the
        record.
        """

    def read(self, position: int, poll: Poll) -> Tick:
        """The poll as the fold sees it. Never raises: `odd` names what cannot be read."""
        question, answer = (poll.source, poll.path, poll.req), (poll.body, poll.status, poll.answered)
        known = self._answers.get(question)
        if known is not None and known[0] == answer:
            return replace(
                known[1],
                position=position,
                started_at=poll.started_at,
                observed_at=poll.observed_at,
                server_time=poll.server_time,
            )
        scope, reading = self._readings.asked(poll.path, poll.req)
        tick = Tick(
            position=position,
            source=poll.source,
            scope=scope,
            started_at=poll.started_at,
            observed_at=poll.observed_at,
            answered=poll.answered,
            server_time=poll.server_time,
        )
        if reading is not None and poll.answered and poll.body is not None:
            if reading.says_not_exists(poll.status, poll.body):
                tick = replace(tick, not_exists=True)
            elif scope.listing in _FIELDS:
                tick = replace(tick, **self.items(scope, reading, _items(reading, poll, poll.body), bytes, costs=True))
        _bounded(self._answers, 1)[question] = answer, tick
        return tick

    def items(
        self, scope: Scope, reading: Reading, items: Sequence[KeyT], text: Callable[[KeyT], bytes], *, costs: bool
    ) -> dict[str, tuple[Any, ...]]:
        """The contents of an answer's items, as fields of its tick: each is its text, or its id in the record, of which
        `text` gives the text. `costs`: read the provider's costs too; a record keeps them apart from the items.
        """
        odd, things, field = list[str](), list[Any](), _FIELDS[scope.listing]
        known = self._read(scope)
        if len(known) > _REMEMBERED:
            _bounded(known, len(items))
        for item in items:
            try:
                things += known.get(item) or self.item(scope, reading, item, text, costs=costs)
            except ValueError as error:
                odd.append(str(error))
        if reading.joins_items and field == "runs":
            vms = tuple([thing for thing in things if isinstance(thing, VmFacts)])
            runs = _joined(reading, [thing for thing in things if isinstance(thing, Seen)])
            return {"runs": runs, "vms": vms, "odd": tuple(odd)}
        return {field: tuple(things), "odd": tuple(odd)}

    def item(
        self, scope: Scope, reading: Reading, item: KeyT, text: Callable[[KeyT], bytes], *, costs: bool
    ) -> Sequence[Seen | VmFacts | VmEvent]:
        """The contents of one item, as in `items`. Raises ValueError if it cannot be read."""
        known = self._read(scope)
        facts = known.get(item)
        if facts is None:
            facts = known[item] = _contents(reading, scope, text(item), costs=costs)
        return facts

    def _read(self, scope: Scope) -> dict[Any, Sequence[Any]]:
        known = self._known.get((scope.listing, scope.asked))
        if known is None:
            known = _bounded(self._known, 1, _QUESTIONS)[scope.listing, scope.asked] = {}
        return known

    def forget(self) -> None:
        """Read everything again."""
        self._known.clear()


def _items(reading: Reading, poll: Poll, body: bytes) -> Sequence[bytes]:
    shape = reading.shape(poll.path, poll.req)
    if shape is None or not shape.items:
        return [body]
    try:
        return items_of(body, shape)
    except msgspec.MsgspecError:
        return ()


def _contents(reading: Reading, scope: Scope, item: bytes, *, costs: bool) -> Sequence[Seen | VmFacts | VmEvent]:
    if scope.listing is Listing.VMS:
        return (reading.vm(item, scope),)
    if scope.listing is Listing.EVENTS:
        event = reading.vm_event(item)
        return () if event is None else (event,)
    runs, known = reading.runs(item, scope), reading.costs(item) if costs else {}
    return [*[Seen(facts=facts, cost=known.get(facts.provider_id)) for facts in runs], *reading.machines(item, scope)]


def _joined(reading: Reading, rows: Sequence[Seen]) -> tuple[Seen, ...]:
    """The runs that the items of an answer describe, one or several items each."""
    by_id: dict[str, list[Seen]] = {}
    for row in rows:
        by_id.setdefault(row.facts.provider_id, []).append(row)
    runs: list[Seen] = []
    for same in by_id.values():
        if len(same) == 1:
            runs += same
            continue
        costs = [row.cost for row in same if row.cost is not None]
        joined = [
            reading.joined(rows) if len(rows) > 1 else rows[0] for rows in reading.by_run([row.facts for row in same])
        ]
        cost = sum(costs) if len(costs) == len(same) and len(joined) == 1 else None
        runs += [Seen(facts=facts, cost=cost) for facts in joined]
    return tuple(runs)


def _bounded(known: dict[KeyT, T], listed: int, most: int = _REMEMBERED) -> dict[KeyT, T]:
    """The cache, emptied if it has grown too large."""
    if len(known) > max(most, 2 * listed):
        known.clear()
    return known


class Until(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last position, or the last `observed_at` (microseconds UTC), still folded."""

    position: int | None = None
    at: int | None = None


def parse_until(text: str) -> Until:
    """The limit a user typed: digits are a position, anything else an ISO 8601 time; else UnreadableInput."""
    try:
        if text.isdecimal():
            return Until(position=min(int(text), _LAST))
        return Until(at=parse_time(text))
    except ValueError:
        raise UnreadableInput(
            f"{text[:40]!r} is neither a position nor a time. Use a number or e.g. 2026-01-31T12:00:00Z."
        ) from None


Row = TypeVar("Row", Seen, VmFacts)

_RANK: Final = {
    VmState.BUSY: 5,
    VmState.PROVISIONING: 4,
    VmState.IDLE: 3,
    VmState.TERMINATING: 1,
    VmState.TERMINATED: 0,
}
"""Where a machine is → how far from its end; idle is nearer than busy: idle machines are ended. Unknown ends none."""
_DERIVED: Final = frozenset(
    {"drift", "state", "requeued", "final", "failed", "cause", "by_request", "gives_end", "latest_exit_status"}
)  # facts that follow from others, which are named
_NO_END: Final = 1 << 62


def listed_once(tick: Tick, reading: Reading | None) -> Tick:
    """The poll with one row of each thing, the last of equal rows; the poll itself if nothing is listed twice. Runs
    that `reading` has joined stay: with one id they are several.
    The choice depends on the answer alone: of a machine the row that may cost most, so that a machine that may be
    billed is never forgotten; of a run the row furthest ahead.
    """
    unlike: dict[str, str] = {}
    joined = reading is not None and reading.joins_items
    runs = tick.runs if joined else _once(tick.runs, _of_run, unlike)
    vms = _once(tick.vms, _of_vm, unlike)
    same = len(runs) == len(tick.runs) and len(vms) == len(tick.vms)
    return tick if same else replace(tick, runs=runs, vms=vms, unlike=unlike)


def _once(rows: tuple[Row, ...], weight: Callable[[Row], tuple[int, ...]], unlike: dict[str, str]) -> tuple[Row, ...]:
    if len(rows) < 2:
        return rows
    ids = [_facts(row).provider_id for row in rows]
    if len(set(ids)) == len(ids):
        return rows
    rows_of: dict[str, list[Row]] = {}
    for provider_id, row in zip(ids, rows, strict=True):
        rows_of.setdefault(provider_id, []).append(row)
    for provider_id, same in rows_of.items():
        if fields := _differing([_facts(row) for row in same]):
            unlike[provider_id] = f"listed {len(same)} times in one answer, with another {', '.join(fields)}"
    return tuple(max(reversed(same), key=weight) for same in rows_of.values())


def _facts(row: Seen | VmFacts) -> RunFacts | VmFacts:
    return row.facts if isinstance(row, Seen) else row


def _differing(facts: Sequence[RunFacts | VmFacts]) -> list[str]:
    first, *others = facts
    names = (name for name in first.__struct_fields__ if name not in _DERIVED)
    return [name for name in names if any(getattr(other, name) != getattr(first, name) for other in others)]


def _of_vm(facts: VmFacts) -> tuple[int, ...]:
    """Machines before placeholders; then by distance from the end, cost, and latest end."""
    end = _NO_END if facts.finished_at is None else facts.finished_at
    return (facts.price is not None, 2 if facts.state is None else _RANK.get(facts.state, 2), facts.price or 0, end)


def _of_run(seen: Seen) -> tuple[int, ...]:
    """The newest attempt; then whether it has ended, then its progress. A run only moves forward within an attempt."""
    facts, attempt, has_jobs = seen.facts, attempt_of(seen.facts) or 0, bool(seen.facts.jobs)
    case = case_of(facts)
    if decisive(case) is not None:
        return (attempt, True, 0, has_jobs)
    state = progress(case).state
    return (attempt, False, 0 if state is None else PROGRESS.index(state), has_jobs)
