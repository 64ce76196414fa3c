"""The reading of dstack's answers, and of older ones of the local provider, which are in the same words."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.providers.dstack.alternatives import alternatives
from engine.providers.dstack.endpoints import SHAPES, is_answer, says_not_exists, scope_of
from engine.providers.dstack.requirements import read_terms
from engine.providers.dstack.run_reading import RunWire, decode_run, facts_of, quotes, read_cost
from engine.providers.dstack.vm_reading import read_vm, read_vm_event
from engine.providers.reading import Reading, Scope
from engine.requirements import Requirements
from events.shape.shape import BodyShape

_KNOWN: Final = 2048
"""Runs whose facts are remembered."""


class DstackReading(Reading):
    """What dstack servers from 0.19.37 to 0.22.5 say."""

    def __init__(self) -> None:
        self._scope = lru_cache(maxsize=4096)(scope_of)
        self._known: dict[str, tuple[RunWire, tuple[str, ...], RunFacts]] = {}
        """Run id → what was last read of it: an item that differs in volatile values only has the same facts."""

    def scope(self, path: str, req: bytes) -> Scope | None:
        """As `Reading.scope`."""
        return self._scope(path, req)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        """As `Reading.shape`."""
        scope = self.scope(path, req)
        return None if scope is None else SHAPES.get(scope.endpoint)

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None) -> bool:
        """As `Reading.answered`."""
        scope = self.scope(path, req)
        return scope is not None and is_answer(scope, status, body)

    def says_not_exists(self, status: int | None, body: bytes | None) -> bool:
        """As `Reading.says_not_exists`."""
        return says_not_exists(status, body)

    def runs(self, item: bytes) -> tuple[RunFacts, ...]:
        """As `Reading.runs`: a run is one item."""
        wire, drift = decode_run(item)
        known = self._known.get(wire.id)
        if known is not None and known[0] == wire and known[1] == drift:
            return (known[2],)
        facts = facts_of(wire, drift)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[wire.id] = (wire, drift, facts)
        return (facts,)

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        """As `Reading.costs`."""
        return read_cost(item)

    def alternatives(self, facts: RunFacts) -> Iterator[tuple[str, RunFacts]]:
        """As `Reading.alternatives`."""
        return alternatives(facts)

    def quotes(self, item: bytes) -> Iterator[tuple[str, object]]:
        """As `Reading.quotes`: the run's own words, and those of the newest submission of every job."""
        return quotes(item)

    def vm(self, item: bytes) -> VmFacts:
        """As `Reading.vm`."""
        return read_vm(item)

    def vm_event(self, item: bytes) -> VmEvent | None:
        """As `Reading.vm_event`."""
        return read_vm_event(item)

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """As `Reading.terms`."""
        return read_terms(configuration, submitter, fallback)
