"""One poll as the fold sees it, and how it is read. Polls, failures included, are the only ticks: timers need no other
clock.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.providers.reading import Listing, Reading, Readings, Scope
from events.clock import parse_time
from events.errors import UnreadableInput
from events.poll import Poll
from events.shape.cut import items_of

KeyT = TypeVar("KeyT", bound=Hashable)
T = TypeVar("T")

_LAST: Final = 2**63 - 1
"""No history has a greater position."""
_REMEMBERED: Final = 128
"""Items whose facts are remembered, or twice as many as one answer lists."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run in an answer."""

    facts: RunFacts
    cost: int | None = None
    """The provider's own figure, micro-dollars; moves at every poll. None too where nobody has read it yet."""


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One poll, read."""

    position: int
    source: str
    """Who was asked, as the recorder named it."""
    scope: Scope
    started_at: int
    observed_at: int
    answered: bool
    runs: tuple[Seen, ...] = ()
    """In the order of the answer, as `vms`."""
    vms: tuple[VmFacts, ...] = ()
    """Rows of machines, placeholders too."""
    events: tuple[VmEvent, ...] = ()
    """Status changes of machines that the provider dates."""
    not_exists: bool = False
    """The source said `resource_not_exists`."""
    server_time: int | None = None
    """The provider's own clock (HTTP `Date`); looked at where something is shown for the first time."""
    odd: tuple[str, ...] = ()
    """What of the answer could not be read at all."""
    imported: bool = False
    """It was imported. Asked of a source's first poll only."""
    archive: str | None = None
    """The archive it belongs to; None: a live source. The world fills it in."""
    unlike: Mapping[str, str] = {}
    """The provider's id → how its rows differ, of each thing that the answer lists with several; likewise."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The provider's ids of what the answer lists, in its order."""
        return tuple([seen.facts.provider_id for seen in self.runs] or [facts.provider_id for facts in self.vms])


class PollReader:
    """Reads the polls of one history, in any order. Equal rows of machines share their facts."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._vms: dict[bytes, VmFacts] = {}
        """By the text of the row."""
        self._events: dict[bytes, VmEvent | None] = {}
        """As `_vms`."""
        self._log: tuple[bytes, tuple[VmEvent, ...]] = (b"", ())
        """The newest answer of a log, and what it dates: most answers are the one before again."""

    def read(self, position: int, poll: Poll) -> Tick:
        """The poll as the fold sees it. Never raises: what cannot be read is named in `odd`."""
        scope, reading = self._readings.asked(poll.path, poll.req)
        runs: list[Seen] = []
        vms: list[VmFacts] = []
        odd: list[str] = []
        events: tuple[VmEvent, ...] = ()
        read = reading is not None and poll.answered and poll.body is not None
        not_exists = reading is not None and read and reading.says_not_exists(poll.status, poll.body)
        if reading is None or not read or not_exists or scope.listing is Listing.OTHER:
            pass
        elif scope.listing is Listing.EVENTS:
            if poll.body != self._log[0]:
                self._log = poll.body or b"", self.events(reading, self._items(poll))
            events = self._log[1]
        else:
            items = self._items(poll)
            known = bounded(self._vms, len(items))
            for item in items:
                try:
                    if scope.listing is Listing.VMS:
                        vms.append(known[item] if item in known else known.setdefault(item, reading.vm(item)))
                    else:
                        runs += seen(reading, item)
                except ValueError as error:
                    odd.append(str(error))
        return Tick(
            position=position,
            source=poll.source,
            scope=scope,
            started_at=poll.started_at,
            observed_at=poll.observed_at,
            answered=poll.answered,
            runs=joined(reading, runs) if reading is not None and runs else (),
            vms=tuple(vms),
            events=events,
            not_exists=not_exists,
            server_time=poll.server_time,
            odd=tuple(odd),
        )

    def _items(self, poll: Poll) -> Sequence[bytes]:
        body = poll.body or b""
        shape = self._readings.shape(poll.path, poll.req)
        if shape is None or not shape.items:
            return [body]
        try:
            return items_of(body, shape)
        except msgspec.MsgspecError:
            return ()

    def events(self, reading: Reading, items: Sequence[bytes]) -> tuple[VmEvent, ...]:
        """The status changes of machines that rows of a log date; the same object for the same text."""
        known = bounded(self._events, len(items))
        for item in items:
            if item not in known:
                known[item] = reading.vm_event(item)
        return tuple([found for item in items if (found := known[item]) is not None])


def joined(reading: Reading, runs: list[Seen]) -> tuple[Seen, ...]:
    """The runs of an answer; those that several of its items describe as one, where the provider lists them so."""
    if not reading.joins_items:
        return tuple(runs)
    found: dict[str, list[Seen]] = {}
    for one in runs:
        found.setdefault(one.facts.provider_id, []).append(one)
    return tuple(same[0] if len(same) == 1 else _one(reading, same) for same in found.values())


def _one(reading: Reading, same: list[Seen]) -> Seen:
    costs = [one.cost for one in same if one.cost is not None]
    return Seen(facts=reading.joined([one.facts for one in same]), cost=sum(costs) if len(costs) == len(same) else None)


def seen(reading: Reading, item: bytes) -> list[Seen]:
    """The runs of one item, with their costs.

    Raises:
        ValueError: the item cannot be read at all.
    """
    runs = reading.runs(item)
    costs = reading.costs(item)
    return [Seen(facts=facts, cost=costs.get(facts.provider_id)) for facts in runs]


def bounded(known: dict[KeyT, T], listed: int) -> dict[KeyT, T]:
    """What is remembered of items, emptied where it has grown beyond bounds."""
    if len(known) > max(_REMEMBERED, 2 * listed):
        known.clear()
    return known


class Until(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last position, or the last `observed_at` (microseconds UTC), still folded."""

    position: int | None = None
    at: int | None = None

    def passed(self, position: int, observed_at: int) -> bool:
        """Whether a poll lies behind the limit."""
        if self.position is not None and position > self.position:
            return True
        return self.at is not None and observed_at > self.at


def parse_until(text: str) -> Until:
    """The limit a user typed: digits are a position, anything else an ISO 8601 time.

    Raises:
        UnreadableInput: it is neither.
    """
    try:
        if text.isdecimal():
            return Until(position=min(int(text), _LAST))
        return Until(at=parse_time(text))
    except ValueError:
        raise UnreadableInput(
            f"{text[:40]!r} is neither a position nor a time. Use a number or e.g. 2026-01-31T12:00:00Z."
        ) from None
