"""A history in pieces that are folded apart: which sources make a piece, the fold of one, and which belong together.

A piece is some sources: their polls, and all of our own events. Sources depend on each other if one asks for what the
other lists. Nobody knows that before the answers are read: a fold of a piece notes what it asked for and what it was
shown, and pieces that meet are folded again as one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from engine.fold.change import AnomalyKind, Blind, Change
from engine.fold.record_fold import RecordFold
from engine.fold.tick import Tick, Until
from engine.fold.vm import vm_id_of
from engine.fold.world import World
from engine.fold.world_codec import WorldState, dump
from engine.providers.reading import Listing
from engine.providers.readings import READINGS, rules_named
from engine.replay.provider_costs import fill_costs
from events.clock import SystemClock
from events.errors import RecordDamaged, StenoError
from events.store.record import Record
from events.types import Event, RunRequested

_STREAM: Final = "source/"
_LISTED: Final = frozenset({Listing.RUNS, Listing.RUN, Listing.VMS})


class HistoryPiece(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker folds."""

    where: str  # the record's URL
    record_id: str
    rules: str
    until: Until  # with a position: all pieces end at the same event
    sources: tuple[str, ...]  # those of the piece
    others: tuple[str, ...]  # those of the other pieces
    rest: bool  # it has the runs that were requested for a source without polls, too
    weight: int  # events of its sources


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """A piece after its fold."""

    world: bytes  # `dump` of its state
    runs_at: list[int]  # the position at which each run appeared, in the order of the state
    vms_at: list[int]
    sources_at: list[int]
    blind_at: list[int]  # the position that ended each gap
    own_events: int  # of the events folded, those that every piece folds
    places: set[tuple[str, str | None]]  # (provider, project) of what was asked and shown; None: all projects
    named: set[str]  # machines that a provider's log named
    marks: set[str]  # run ids that shown runs carry


def plan(record: Record, rules: str, until: Until, pieces: int) -> tuple[HistoryPiece, ...]:
    """At most so many pieces, of about equally many events each: the sources of a record, whole."""
    weights = {name.removeprefix(_STREAM): events for name, events in record.streams() if name.startswith(_STREAM)}
    bins = packed(weights, pieces)
    return tuple(
        HistoryPiece(
            where=record.store.url,
            record_id=record.id,
            rules=rules,
            until=until,
            sources=sources,
            others=tuple(sorted(weights.keys() - set(sources))),
            rest=number == 0,
            weight=sum(weights[one] for one in sources),
        )
        for number, sources in enumerate(bins)
    )


def packed(weights: dict[str, int], bins: int) -> list[tuple[str, ...]]:
    """The names in at most so many bins, the heaviest first into the lightest bin. A source without a project belongs
    with all of its provider.
    """
    whole = {name for name in weights if "/" not in name}
    units: dict[str, list[str]] = {}
    for name in sorted(weights):
        provider = name.partition("/")[0]
        units.setdefault(provider if provider in whole else name, []).append(name)
    heavy = sorted(units.values(), key=lambda names: (-sum(weights[one] for one in names), names))
    found: list[list[str]] = [[] for _ in range(min(bins, len(heavy)))]
    filled = [0] * len(found)
    for names in heavy:
        lightest = min(range(len(found)), key=lambda at: (filled[at], len(found[at])))
        found[lightest] += names
        filled[lightest] += sum(weights[one] for one in names)
    return [tuple(sorted(names)) for names in found]


def together(pieces: Sequence[HistoryPiece], folded: Sequence[Folded], worlds: Sequence[WorldState]) -> list[list[int]]:
    """The pieces by number, those in one list that depend on each other."""
    if any(one.kind is AnomalyKind.CLOCK_JUMP for world in worlds for one in world.anomalies):
        return [list(range(len(pieces)))]
    groups = {number: [number] for number in range(len(pieces))}
    seen: dict[object, int] = {}
    everywhere = {provider for one in folded for provider, project in one.places if project is None}
    archives = [any(source.archive for source in world.sources.values()) for world in worlds]
    undated = any(source.archive and "/" not in name for world in worlds for name, source in world.sources.items())
    for number, (one, world) in enumerate(zip(folded, worlds, strict=True)):
        keys: set[object] = {*world.by_provider, *world.former, *world.runs, *world.vms, *one.named, *one.marks}
        keys.update(world.carried)
        keys.update((provider, None if provider in everywhere else project) for provider, project in one.places)
        if undated and archives[number]:  # a log of no project belongs to the project that was imported before it
            keys.add(None)
        for key in keys:
            first = groups[seen.setdefault(key, number)]
            if first is not groups[number]:
                first += groups[number]
                for other in groups[number]:
                    groups[other] = first
    return [sorted(found) for found in {id(found): found for found in groups.values()}.values()]


def merged(pieces: Iterable[HistoryPiece]) -> HistoryPiece:
    """Several pieces as one."""
    found = tuple(pieces)
    sources = {name for one in found for name in one.sources}
    return msgspec.structs.replace(
        found[0],
        sources=tuple(sorted(sources)),
        others=tuple(sorted(set(found[0].others) - sources)),
        rest=any(one.rest for one in found),
        weight=sum(one.weight for one in found),
    )


def fold_piece(piece: HistoryPiece) -> bytes:
    """Fold one piece, anywhere; a `Folded` as MessagePack. StenoError: the record there is another, or cut."""
    with Record.open(piece.where, clock=SystemClock(), shapes=READINGS.shape) as record:
        if record.id != piece.record_id:
            raise StenoError(f"{record.store} is another record here: all workers must reach the same one.")
        if record.head().position < (piece.until.position or 0):
            raise RecordDamaged(f"The record {record.store} ends before position {piece.until.position} here.")
        world = PieceWorld(piece)
        RecordFold(record, world, polls_of=[_STREAM + name for name in piece.sources]).run(
            piece.until, world.note, repeats=False
        )
        fill_costs(record, world.state.runs.values())
    return msgspec.msgpack.encode(world.folded())


class PieceWorld(World):
    """The world of one piece; notes what joins it with others."""

    def __init__(self, piece: HistoryPiece) -> None:
        super().__init__(READINGS, rules_named(piece.rules))
        self._sources, self._others, self._rest = set(piece.sources), set(piece.others), piece.rest
        self._own_events = 0
        self._places: set[tuple[str, str | None]] = set()
        self._named: set[str] = set()
        self._marks: set[str] = set()
        self._at: tuple[dict[str, int], ...] = ({}, {}, {})  # of runs, machines and sources: where each appeared
        self._blind_at: list[int] = []

    def apply(self, tick: Tick) -> tuple[Change, ...]:
        scope = tick.scope
        if scope.listing in _LISTED:
            self._places.add((scope.provider, scope.project))
        self._places.update((scope.provider, one.facts.project) for one in tick.runs if one.facts.project)
        self._places.update((scope.provider, one.project) for one in tick.vms if one.project)
        self._marks.update(one.facts.mark for one in tick.runs if one.facts.mark is not None)
        self._named.update(vm_id_of(scope.provider, one.provider_id) for one in tick.events)
        return super().apply(tick)

    def apply_event(self, position: int, at: int, event: Event) -> tuple[Change, ...]:
        self._own_events += 1
        if not isinstance(event, RunRequested) or self._has(event):
            return super().apply_event(position, at, event)
        self.state.position, self.state.events = position, self.state.events + 1
        return ()

    def note(self, position: int, changes: tuple[Change, ...]) -> None:
        """Note where things appeared, after each event that was folded in full."""
        for known, things in zip(self._at, self._things(), strict=True):
            for key in reversed(things):
                if key in known:
                    break
                known[key] = position
            if len(known) > len(things):  # it goes on under another id, and the old one may come back
                for key in known.keys() - things.keys():
                    del known[key]
        self._blind_at += [position for change in changes if isinstance(change, Blind)]

    def folded(self) -> Folded:
        """What is joined with the other pieces."""
        state = self.state
        runs_at, vms_at, sources_at = (
            [known[key] for key in things] for known, things in zip(self._at, self._things(), strict=True)
        )
        places = {(run.provider, run.project) for run in state.runs.values()}
        places.update((vm.provider, vm.facts.project) for vm in state.vms.values())
        needed = WorldState(
            rules=state.rules,
            position=state.position,
            events=state.events,
            last_at=state.last_at,
            runs=state.runs,
            by_provider=state.by_provider,
            former=state.former,
            carried=state.carried,
            sources=state.sources,
            vms=state.vms,
            policies=state.policies,
            anomalies=state.anomalies,
            blind=state.blind,
            clock_steps=state.clock_steps,
        )
        return Folded(
            world=dump(needed),
            runs_at=runs_at,
            vms_at=vms_at,
            sources_at=sources_at,
            blind_at=self._blind_at,
            own_events=self._own_events,
            places=self._places | places,
            named=self._named,
            marks=self._marks,
        )

    def _things(self) -> tuple[dict[str, Any], ...]:
        return self.state.runs, self.state.vms, self.state.sources

    def _has(self, event: RunRequested) -> bool:
        source = f"{event.provider}/{event.project}" if event.project else event.provider
        return source in self._sources or (self._rest and source not in self._others)
