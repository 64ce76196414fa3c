"""From polls to ticks: reads each answer once, and each run or machine again only when it says something new."""

from collections.abc import Sequence
from typing import Final

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.fold.tick import Seen, Tick
from engine.readings.answers import raw_items, says_not_exists
from engine.readings.dstack import RunWire, decode_run, facts_of, read_cost
from engine.readings.instances import read_vm, read_vm_event
from engine.readings.scope import EVENTS_LIST, INSTANCES_LIST, RUNS_GET, RUNS_LIST, Scope, read_scope
from events.poll import Poll

_ROWS: Final = 128
"""Rows of machines whose facts are remembered, or twice as many as one answer lists."""


class PollReader:
    """Reads the polls of one history, in any order. Remembers the last facts of each run and machine so that equal
    ones are shared.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[RunWire, tuple[str, ...], RunFacts]] = {}
        self._vms: dict[bytes, VmFacts] = {}
        """By the text of the row."""
        self._events: dict[bytes, VmEvent | None] = {}
        """As `_vms`."""
        self._log: tuple[bytes, tuple[VmEvent, ...]] = (b"", ())
        """The newest answer of `events/list`, and what it dates: most answers are the one before again."""

    def read(self, position: int, poll: Poll) -> Tick:
        """The poll as the fold sees it. Never raises: what cannot be read is named in `odd`."""
        scope = read_scope(poll.path, poll.req)
        runs: list[Seen] = []
        vms: list[VmFacts] = []
        events: tuple[VmEvent, ...] = ()
        odd: list[str] = []
        if poll.answered and poll.body is not None and scope.endpoint in (RUNS_LIST, RUNS_GET):
            for item in _items(scope, poll):
                try:
                    runs.append(self.seen(item))
                except ValueError as error:
                    odd.append(str(error))
        elif poll.answered and poll.body is not None and scope.endpoint == INSTANCES_LIST:
            items = raw_items(poll.body) or []
            if len(self._vms) > max(_ROWS, 2 * len(items)):
                self._vms.clear()
            for item in items:
                try:
                    vms.append(self.vm_facts(item))
                except ValueError as error:
                    odd.append(str(error))
        elif poll.answered and poll.body is not None and scope.endpoint == EVENTS_LIST:
            if poll.body != self._log[0]:
                self._log = poll.body, self.events(raw_items(poll.body) or [])
            events = self._log[1]
        return Tick(
            position=position,
            source=poll.source,
            scope=scope,
            started_at=poll.started_at,
            observed_at=poll.observed_at,
            answered=poll.answered,
            runs=tuple(runs),
            vms=tuple(vms),
            events=events,
            not_exists=poll.answered and says_not_exists(poll.status, poll.body),
            server_time=poll.server_time,
            odd=tuple(odd),
        )

    def seen(self, item: bytes) -> Seen:
        """One run item, read.

        Raises:
            ValueError: the item is no JSON object with an id.
        """
        return Seen(facts=self.facts(item), cost=read_cost(item))

    def facts(self, item: bytes) -> RunFacts:
        """The facts of one run item; the same object as long as the run says the same.

        Raises:
            ValueError: the item is no JSON object with an id.
        """
        wire, drift = decode_run(item)
        known = self._last.get(wire.id)
        if known is not None and known[0] == wire and known[1] == drift:
            return known[2]
        facts = facts_of(wire, drift)
        self._last[wire.id] = (wire, drift, facts)
        return facts

    def vm_facts(self, item: bytes) -> VmFacts:
        """The facts of one row of machines; the same object for the same text.

        Raises:
            ValueError: the item is no JSON object with an id.
        """
        facts = self._vms.get(item)
        if facts is None:
            facts = self._vms[item] = read_vm(item)
        return facts

    def events(self, items: Sequence[bytes]) -> tuple[VmEvent, ...]:
        """The status changes of machines that rows of `events/list` date; the same object for the same text."""
        known = self._events
        if len(known) > max(_ROWS, 2 * len(items)):
            known.clear()
        for item in items:
            if item not in known:
                known[item] = read_vm_event(item)
        return tuple([found for item in items if (found := known[item]) is not None])


def _items(scope: Scope, poll: Poll) -> list[bytes]:
    body = poll.body or b""
    if scope.endpoint == RUNS_LIST:
        return raw_items(body) or []
    return [] if says_not_exists(poll.status, body) else [body]
