"""One poll as the fold sees it, and how it is read. Only polls, failures included, are ticks: timers need no other
clock.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.providers.reading import Listing, Reading, Readings, Scope
from events.clock import parse_time
from events.errors import UnreadableInput
from events.poll import Poll
from events.shape.cut import items_of

KeyT = TypeVar("KeyT", bound=Hashable)
T = TypeVar("T")

_LAST: Final = 2**63 - 1  # no history has a greater position
_REMEMBERED: Final = 128  # items whose facts are cached (or twice as many as one answer lists), and answers
_QUESTIONS: Final = 16  # questions whose items are cached
_FIELDS: Final = {Listing.RUNS: "runs", Listing.RUN: "runs", Listing.VMS: "vms", Listing.EVENTS: "events"}
"""Listing read → the field of `Tick` with its items."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    facts: RunFacts
    cost: int | None = None
    """The provider's own figure, micro-dollars; changes at every poll. None too if it was not read yet."""


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    position: int
    source: str  # who was asked, as the recorder named it
    scope: Scope
    started_at: int
    observed_at: int
    answered: bool
    runs: tuple[Seen, ...] = ()  # in the order of the answer, as `vms`
    vms: tuple[VmFacts, ...] = ()  # rows of machines, placeholders too
    events: tuple[VmEvent, ...] = ()  # status changes of machines that the provider dates
    not_exists: bool = False  # the source said `resource_not_exists`
    server_time: int | None = None
    """The provider's own clock (HTTP `Date`); used if something is shown for the first time."""
    odd: tuple[str, ...] = ()  # what of the answer could not be read
    imported: bool = False  # it was imported; asked of a source's first poll only
    archive: str | None = None  # its archive, filled in by the world; None: a live source
    unlike: Mapping[str, str] = {}
    """The provider's id → how its rows differ, of each thing with several rows in the answer; the world fills it in."""

    @property
    def asked(self) -> str:
        """Who was asked: the source, and which of the provider's own sources if it has several."""
        return self.source if self.scope.witness is None else f"{self.source} {self.scope.witness}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The provider's ids of what the answer lists, in order."""
        return tuple([seen.facts.provider_id for seen in self.runs] or [facts.provider_id for facts in self.vms])


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
        """What the items of an answer say, as fields of its tick: each is its text, or its id in the record, of which
        `text` gives the text. `costs`: read the provider's costs too; a record keeps them apart from the items.
        """
        odd, found, field = list[str](), list[Any](), _FIELDS[scope.listing]
        known = self._known.get((scope.listing, scope.asked))
        if known is None:
            known = _bounded(self._known, 1, _QUESTIONS)[scope.listing, scope.asked] = {}
        if len(known) > _REMEMBERED:
            _bounded(known, len(items))
        for item in items:
            said = known.get(item)
            if said is None:
                try:
                    said = known[item] = _said(reading, scope, text(item), costs=costs)
                except ValueError as error:
                    odd.append(str(error))
                    continue
            found += said
        if reading.joins_items and field == "runs":
            vms = tuple([one for one in found if isinstance(one, VmFacts)])
            runs = _joined(reading, [one for one in found if isinstance(one, Seen)])
            return {"runs": runs, "vms": vms, "odd": tuple(odd)}
        return {field: tuple(found), "odd": tuple(odd)}


def _items(reading: Reading, poll: Poll, body: bytes) -> Sequence[bytes]:
    shape = reading.shape(poll.path, poll.req)
    if shape is None or not shape.items:
        return [body]
    try:
        return items_of(body, shape)
    except msgspec.MsgspecError:
        return ()


def _said(reading: Reading, scope: Scope, item: bytes, *, costs: bool) -> Sequence[Seen | VmFacts | VmEvent]:
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
    for one in rows:
        by_id.setdefault(one.facts.provider_id, []).append(one)
    runs: list[Seen] = []
    for same in by_id.values():
        if len(same) == 1:
            runs += same
            continue
        costs = [one.cost for one in same if one.cost is not None]
        joined = [
            reading.joined(rows) if len(rows) > 1 else rows[0] for rows in reading.by_run([one.facts for one in same])
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
