"""A history in pieces that are folded apart: which sources make a piece, the fold of one, and which belong together.

A piece is some sources: their polls, and all of our own events. Sources depend on each other if one asks for what the
other lists. That is unknown before the answers are read: a fold of a piece notes what it asked for and what it was
shown, and pieces that meet are folded again as one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.live.live_world import Progress
from steno.engine.providers.registry import READINGS, rules_named
from steno.engine.replay.result import fill_costs
from steno.engine.rules.rule_file import rules_of
from steno.engine.state.changes import AnomalyKind, Blind, Change
from steno.engine.state.inventory import Inventory
from steno.engine.state.outbox import Outbox
from steno.engine.state.reading import Listing, Tick
from steno.engine.state.vm import vm_id_of
from steno.engine.state.world import World, dump, load
from steno.events.clock import SystemClock
from steno.events.errors import RecordDamaged, StenoError
from steno.events.store.record import Record
from steno.events.store.verify_pieces import WorkPool
from steno.events.types import Event, RunRequested

_STREAM: Final = "source/"
_LISTED: Final = frozenset({Listing.RUNS, Listing.RUN, Listing.VMS})


class HistoryPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The sources that one worker folds."""

    where: str  # the record's URL
    record_id: str
    rules: str
    texts: tuple[str, ...]  # of a rule file: a worker elsewhere has no such file
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
    bins, texts = packed(weights, pieces), rules_named(rules, files=True).texts
    return tuple(
        HistoryPiece(
            where=record.store.url,
            record_id=record.id,
            rules=rules,
            texts=texts,
            until=until,
            sources=sources,
            others=tuple(sorted(weights.keys() - set(sources))),
            rest=number == 0,
            weight=sum(weights[name] for name in sources),
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
    heavy = sorted(units.values(), key=lambda names: (-sum(weights[name] for name in names), names))
    packs: list[list[str]] = [[] for _ in range(min(bins, len(heavy)))]
    filled = [0] * len(packs)
    for names in heavy:
        lightest = min(range(len(packs)), key=lambda at: (filled[at], len(packs[at])))
        packs[lightest] += names
        filled[lightest] += sum(weights[name] for name in names)
    return [tuple(sorted(names)) for names in packs]


def together(pieces: Sequence[HistoryPiece], folded: Sequence[Folded], worlds: Sequence[World]) -> list[list[int]]:
    """The pieces by number, those in one list that depend on each other."""
    if any(anomaly.kind is AnomalyKind.CLOCK_JUMP for world in worlds for anomaly in world.anomalies):
        return [list(range(len(pieces)))]
    groups = {number: [number] for number in range(len(pieces))}
    seen: dict[object, int] = {}
    everywhere = {provider for piece in folded for provider, project in piece.places if project is None}
    archives = [any(source.archive for source in world.sources.values()) for world in worlds]
    undated = any(source.archive and "/" not in name for world in worlds for name, source in world.sources.items())
    for number, (part, world) in enumerate(zip(folded, worlds, strict=True)):
        keys: set[object] = {*world.by_provider.here, *world.former, *part.named, *part.marks}
        keys.update((*world.carried, *world.runs.ids(), *world.vms.ids()))
        keys.update((provider, None if provider in everywhere else project) for provider, project in part.places)
        if undated and archives[number]:  # a log of no project belongs to the project that was imported before it
            keys.add(None)
        for key in keys:
            first = groups[seen.setdefault(key, number)]
            if first is not groups[number]:
                first += groups[number]
                for other in groups[number]:
                    groups[other] = first
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


def merged(pieces: Iterable[HistoryPiece]) -> HistoryPiece:
    """Several pieces as one."""
    parts = tuple(pieces)
    sources = {name for piece in parts for name in piece.sources}
    return replace(
        parts[0],
        sources=tuple(sorted(sources)),
        others=tuple(sorted(set(parts[0].others) - sources)),
        rest=any(piece.rest for piece in parts),
        weight=sum(piece.weight for piece in parts),
    )


def fold_piece(piece: HistoryPiece) -> bytes:
    """Fold one piece, anywhere; a `Folded` as MessagePack. StenoError: the record there is another, or cut."""
    with Record.open(piece.where, clock=SystemClock(), shapes=READINGS.shape) as record:
        if record.id != piece.record_id:
            raise StenoError(f"{record.store} is another record here: all workers must reach the same record.")
        if record.head().position < (piece.until.position or 0):
            raise RecordDamaged(f"The record {record.store} ends before position {piece.until.position} here.")
        world = PieceFold(piece)
        RecordFold(record, world, polls_of=[_STREAM + name for name in piece.sources]).run(
            piece.until, world.note, repeats=False
        )
        fill_costs(record, world.state.runs.all())
    return msgspec.msgpack.encode(world.folded())


class PieceFold(Fold):
    """The world of one piece; notes what joins it with others."""

    def __init__(self, piece: HistoryPiece) -> None:
        super().__init__(READINGS, rules_of(piece.texts) if piece.texts else rules_named(piece.rules, files=True))
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
        self._places.update((scope.provider, run.facts.project) for run in tick.runs if run.facts.project)
        self._places.update((scope.provider, vm.project) for vm in tick.vms if vm.project)
        self._marks.update(run.facts.mark for run in tick.runs if run.facts.mark is not None)
        self._named.update(vm_id_of(scope.provider, entry.provider_id) for entry in tick.events)
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
        """The values that are joined with the other pieces."""
        state = self.state
        runs_at, vms_at, sources_at = (
            [known[key] for key in things] for known, things in zip(self._at, self._things(), strict=True)
        )
        places = {(run.provider, run.project) for run in state.runs.all()}
        places.update((vm.provider, vm.facts.project) for vm in state.vms.all())
        return Folded(
            world=dump(replace(state, outbox=Outbox())),  # nothing of it is joined
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
        return self.state.runs.memory, self.state.vms.memory, self.state.sources

    def _has(self, event: RunRequested) -> bool:
        source = f"{event.provider}/{event.project}" if event.project else event.provider
        return source in self._sources or (self._rest and source not in self._others)


# -- in a pool, and joined again

T = TypeVar("T")
_decode = msgspec.msgpack.Decoder(Folded).decode


def folded_apart(
    record: "Record", rules: str, until: Until | None, progress: Progress | None, pool: WorkPool
) -> Fold | None:
    """The world after a record's end or `until`; None: it has no pieces, or is too short for them."""
    limit, head = until if until is not None else Until(), record.head().position
    end = head if limit.position is None else min(limit.position, head)
    set_ = rules_named(rules, files=True)
    if end < pool.least or set_.timeout is not None:  # the time at any source ends the runs of all
        return None
    pieces = plan(record, rules, replace(limit, position=end), pool.size)
    if len(pieces) < 2:
        return None
    ready, total = 0, sum(piece.weight for piece in pieces)

    def done(piece: HistoryPiece) -> None:
        nonlocal ready
        ready = min(ready + piece.weight, total)
        if progress is not None:
            progress(ready, total)

    folded = [_decode(encoded) for encoded in pool.map(fold_piece, pieces, done)]
    while True:
        worlds = [load(piece.world) for piece in folded]
        groups = together(pieces, folded, worlds)
        if len(groups) == len(pieces):
            return Fold(READINGS, set_, joined(pieces, folded, worlds))
        again = {
            number: merged(pieces[place] for place in group) for number, group in enumerate(groups) if len(group) > 1
        }
        refolded = dict(zip(again, map(_decode, pool.map(fold_piece, list(again.values()), done)), strict=True))
        folded = [refolded.get(number) or folded[group[0]] for number, group in enumerate(groups)]
        pieces = tuple(again.get(number) or pieces[group[0]] for number, group in enumerate(groups))


def joined(pieces: Sequence[HistoryPiece], folded: Sequence[Folded], worlds: Sequence[World]) -> World:
    """The world of independent pieces: all that a result shows, in the order of the whole history. Pure."""
    owner = {name: number for number, piece in enumerate(pieces) for name in piece.sources}
    sources = (
        (at, item)
        for number, (piece, world) in enumerate(zip(folded, worlds, strict=True))
        for at, item in zip(piece.sources_at, world.sources.items(), strict=True)
        if owner.get(item[0], 0) == number
    )
    shared = folded[0].own_events  # every piece folded these
    parts = list(zip(folded, worlds, strict=True))
    return World(
        rules=worlds[0].rules,
        rule_texts=worlds[0].rule_texts,
        position=max(world.position for world in worlds),
        events=shared + sum(world.events - shared for world in worlds),
        last_at=max((world.last_at for world in worlds if world.last_at is not None), default=None),
        runs=Inventory(dict(_in_order((part.runs_at, world.runs.memory.items()) for part, world in parts))),
        vms=Inventory(dict(_in_order((part.vms_at, world.vms.memory.items()) for part, world in parts))),
        sources=dict(item for _, item in sorted(sources, key=lambda entry: entry[0])),
        policies=worlds[0].policies,
        clock_steps=sorted({step for world in worlds for step in world.clock_steps}),
        anomalies=sorted(
            (anomaly for world in worlds for anomaly in world.anomalies), key=lambda anomaly: anomaly.position
        ),
        blind=list(_in_order((piece.blind_at, world.blind) for piece, world in zip(folded, worlds, strict=True))),
    )


def _in_order(pieces: Iterable[tuple[Sequence[int], Iterable[T]]]) -> Iterable[T]:
    """The things of all pieces by their positions. One event makes things of one piece only."""
    entries = [entry for positions, things in pieces for entry in zip(positions, things, strict=True)]
    return (thing for _, thing in sorted(entries, key=lambda placed: placed[0]))
