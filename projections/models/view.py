"""What commands and the API read: runs and machines by any word a person has for them, with what concerns them."""

import difflib
from collections.abc import Sequence
from functools import cached_property

import msgspec

from engine.decide.budget import PastSpend
from engine.decide.queue import Queued
from engine.errors import RunNotFound, VmNotFound
from engine.fold.archives import imported_at, newest_poll, until_of
from engine.fold.queries import policy_of, source_of
from engine.fold.sources import Observability, observability, open_blind
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.fold.world_codec import WorldState
from engine.objects import AnomalyObject, BlindObject, RunObject, VmObject, blind_object
from engine.policy import DAY
from engine.providers.readings import READINGS
from engine.rules.sets import CURRENT
from projections.models.queue_rows import queues, waits
from projections.models.wire import Shape, Time
from projections.store.schema import RunRow, VmRow
from projections.store.store import ProjectionStore
from projections.store.world_table import decode_run, decode_vm, take_up, take_up_whole

_run = msgspec.json.Decoder(RunObject)
_vm = msgspec.json.Decoder(VmObject)
_anomaly = msgspec.json.Decoder(AnomalyObject)
_blind = msgspec.json.Decoder(BlindObject)
_SUGGESTED = 5
_LEARNT_FROM = 200
"""Runs that an estimate of how long others last looks through."""


class SourceView(Shape, frozen=True, kw_only=True):
    """Whether a source still answers."""

    name: str
    observability: Observability
    last_answered: Time | None
    """None if it never did."""


class ArchiveView(msgspec.Struct, frozen=True, kw_only=True):
    """What was imported under one name."""

    name: str
    until: int
    """Its newest poll (microseconds, UTC): its time ends there."""
    hidden: bool


class View:
    """One store, read."""

    def __init__(self, store: ProjectionStore) -> None:
        self._store = store

    @property
    def store(self) -> ProjectionStore:
        """What is read: read models with questions of their own ask it."""
        return self._store

    @cached_property
    def _world(self) -> WorldState | None:
        return take_up(self._store)

    @property
    def position(self) -> int:
        """The last position these projections know."""
        checkpoint = self._store.checkpoint()
        return 0 if checkpoint is None else checkpoint.position

    @property
    def last_at(self) -> int | None:
        """When the newest poll was answered or failed (microseconds, UTC): of a live source; where there is none, of an
        archive.
        """
        return None if self._world is None else newest_poll(self._world)

    def imported_at(self) -> tuple[tuple[int, int], ...]:
        """The stretches of positions (first, last) at which archives stand, in order."""
        return () if self._world is None else imported_at(self._world)

    def clock(self, archive: str | None, now: int) -> int:
        """The moment that an archive is seen from: its last poll, or `now` where that is earlier, or it is live."""
        ends = {one.name: one.until for one in self.archives()} if archive is not None else {}
        return min(now, ends.get(archive or "", now))

    def until(self, vm: Vm) -> int:
        """Up to when an open machine is billed (microseconds, UTC)."""
        return until_of(self.world().state, vm)

    def runs(
        self, *, open_or_since: int | None = None, newest_first: bool = False, hidden: bool = False
    ) -> tuple[RunObject, ...]:
        """All runs in order of first sight, or newest first; or only those open or submitted since a moment.

        Of archives none is open now. With `hidden`, also the runs of hidden archives.
        """
        rows = self._store.runs.all(since=open_or_since, newest_first=newest_first, hidden=hidden)
        return tuple(_run.decode(row.object) for row in rows)

    def count(self) -> int:
        """How many runs there are."""
        return self._store.runs.count()

    def row(self, word: str) -> RunRow:
        """The run a person means: run id, provider's id, the newest of a name, or a unique prefix of an id.

        Raises:
            RunNotFound: none, or more than one.
        """
        found = self._store.runs.matching(word)
        if len(found) == 1:
            return found[0]
        if found:
            raise RunNotFound(_several(word, "runs", found))
        raise RunNotFound(f"there is no run {word!r}; {_near(word, self._store.runs.names(), 'steno ps --all')}")

    def run(self, word: str) -> RunObject:
        """The object of the run a person means.

        Raises:
            RunNotFound: none, or more than one.
        """
        return _run.decode(self.row(word).object)

    def anomalies_of(self, run_id: str) -> tuple[AnomalyObject, ...]:
        """What was odd about a run."""
        return tuple(_anomaly.decode(one) for one in self._store.anomalies(f"run/{run_id}"))

    def vms(self, *, billed_or_since: int | None = None, hidden: bool = False) -> tuple[VmObject, ...]:
        """All machines in order of first sight; or only those that may be billed or ended since a moment.

        Of archives none is billed now. With `hidden`, also the machines of hidden archives.
        """
        rows = self._store.vms.all(since=billed_or_since, hidden=hidden)
        return tuple(_vm.decode(row.object) for row in rows)

    def count_vms(self) -> int:
        """How many machines there are."""
        return self._store.vms.count()

    def vm_row(self, word: str) -> VmRow:
        """The machine a person means: its id, the provider's, the newest of a name, or a unique prefix of an id.

        Raises:
            VmNotFound: none, or more than one.
        """
        found = self._store.vms.matching(word)
        if len(found) == 1:
            return found[0]
        if found:
            raise VmNotFound(_several(word, "machines", found))
        raise VmNotFound(f"there is no machine {word!r}; {_near(word, self._store.vms.names(), 'steno vms --all')}")

    def run_or_vm(self, word: str) -> RunRow | VmRow:
        """The run, or else the machine, that a person means. A beginning that ids of both kinds have is not unique.

        Raises:
            RunNotFound: none, or more than one.
        """
        found: tuple[RunRow | VmRow, ...] = (*self._store.runs.matching(word), *self._store.vms.matching(word))
        exact = [one for one in found if word in (_id_of(one), one.provider_id, one.name)]
        match exact or found:
            case ():
                return self.row(word)
            case (one, *others) if exact or not others:
                return one
        raise RunNotFound(_several(word, "runs and machines", found))

    def vm(self, word: str) -> VmObject:
        """The object of the machine a person means.

        Raises:
            VmNotFound: none, or more than one.
        """
        return _vm.decode(self.vm_row(word).object)

    def machine(self, vm_id: str) -> Vm:
        """The engine's own machine, with all that its object leaves out."""
        return self.world().state.vms[vm_id]

    def anomalies_of_vm(self, vm_id: str) -> tuple[AnomalyObject, ...]:
        """What was odd about a machine."""
        return tuple(_anomaly.decode(one) for one in self._store.anomalies(f"vm/{vm_id}"))

    def queued(self, now: int) -> dict[str, Queued]:
        """run id → its place in Steno's queue, of every run that waits there."""
        state = self._world
        if state is None or not any(waits(state.runs[run_id]) for run_id in state.unsettled):
            return {}
        return queues(self._recent(state), now)

    def _recent(self, state: WorldState) -> WorldState:
        """The world with the runs that a queue is reckoned from: those that are not over, those that moved since the
        machines were listed last or since a machine came that is there, and the newest.
        """
        listed = [source.machines_position for source in state.sources.values()]
        came = [state.vms[vm_id].first_position for vm_id in state.open_vms]
        rows = (
            *self._store.runs.newest(_LEARNT_FROM),
            *self._store.runs.changed_since(min((*listed, *came), default=0)),
        )
        runs = {run_id: state.runs[run_id] for run_id in state.unsettled}
        runs |= {row.run_id: decode_run(row.folded) for row in rows if row.run_id not in runs}
        in_order = sorted(runs.values(), key=lambda run: run.first_position)
        return msgspec.structs.replace(state, runs={run.run_id: run for run in in_order})

    def ledger(self, now: int) -> tuple[WorldState, PastSpend]:
        """(the world with the machines that the budget moves with, what all others have cost): what `account` takes.

        Archives are in neither.
        """
        state = self.world().state
        there = {row.vm_id: row for row in self._store.vms.all(since=now - DAY)}
        there |= {row.vm_id: row for row in self._store.vms.kinds() if row.vm_id not in there}
        there = {vm_id: row for vm_id, row in there.items() if row.archive is None}
        total, first = self._store.vms.spent()
        rest = PastSpend(spent=total - sum(row.cost for row in there.values()), since=first)
        machines = {vm_id: decode_vm(row.folded) for vm_id, row in there.items()}
        return msgspec.structs.replace(state, vms=machines), rest

    def why_not_warm(self, run_id: str) -> tuple[str, ...]:
        """Why a run has no warm machine, in sentences; empty: it has one, or machines cost nothing there and none is
        kept.
        """
        from engine.decide.why import why_not_warm

        state = self.world().state
        run = state.runs[run_id]
        return () if policy_of(state, source_of(run)).free else why_not_warm(state, run)

    def why_up(self, vm_id: str, now: int) -> tuple[str, ...]:
        """Why a machine has not gone, in sentences; of one that has, when and why it did."""
        from engine.decide.why import why_up

        state = self.world().state
        vm = state.vms[vm_id]
        return why_up(state, vm, policy_of(state, vm.source), now)

    def whole(self) -> WorldState:
        """The engine's world with every run in memory: what costs and the budget are reckoned from."""
        state = take_up_whole(self._store)
        return World(READINGS, CURRENT).state if state is None else state

    def blind_of(self, row: RunRow) -> tuple[BlindObject, ...]:
        """When the sources that show a run told us nothing, gaps that still last included."""
        sources = tuple(decode_run(row.folded).started)
        over = [_blind.decode(one) for one in self._store.blind(sources)]
        state = self._world
        if state is None:
            return tuple(over)
        lasting = [open_blind(one) for name, one in state.sources.items() if name in sources and not one.archive]
        return (*over, *(blind_object(one) for one in lasting if one is not None))

    def open_gaps(self) -> tuple[BlindObject, ...]:
        """Times in which a source tells us nothing that still last."""
        sources = () if self._world is None else self._world.sources.values()
        lasting = (open_blind(source) for source in sources if not source.archive)
        return tuple(blind_object(one) for one in lasting if one is not None)

    def sources(self, now: int) -> tuple[SourceView, ...]:
        """Every live source of runs and machines, and whether it still answers at `now`."""
        if self._world is None:
            return ()
        return tuple(
            SourceView(name=name, observability=observability(source, now), last_answered=source.last_answered)
            for name, source in self._world.sources.items()
            if not source.archive and (source.failed or source.last_answered is not None)
        )

    def archives(self) -> tuple[ArchiveView, ...]:
        """Every archive: what was imported, its own clock, and whether lists show it."""
        if self._world is None:
            return ()
        return tuple(
            ArchiveView(name=name, until=source.imported_to, hidden=source.hidden)
            for name, source in self._world.sources.items()
            if source.imported_to is not None
        )

    def hidden(self) -> tuple[str, ...]:
        """The archives that lists leave out."""
        return tuple(one.name for one in self.archives() if one.hidden)

    def source_named(self, name: str, now: int) -> SourceView | None:
        """The source of that name; None where it never was asked."""
        return next((source for source in self.sources(now) if source.name == name), None)

    def source_of(self, row: RunRow, now: int) -> SourceView | None:
        """The source that showed a run last."""
        sources = decode_run(row.folded).started
        shown = [source for source in self.sources(now) if source.name in sources]
        return max(shown, key=lambda source: source.last_answered or 0, default=None)

    def world(self) -> World:
        """The engine's world behind these projections."""
        return World(READINGS, CURRENT, state=self._world)


def _id_of(row: RunRow | VmRow) -> str:
    return row.run_id if isinstance(row, RunRow) else row.vm_id


def _several(word: str, things: str, found: Sequence[RunRow | VmRow]) -> str:
    several = ", ".join(f"{_id_of(row)[:13]}… ({row.name})" for row in found[:_SUGGESTED])
    return f"{word!r} begins the ids of several {things}: {several}; write more of it"


def _near(word: str, names: Sequence[str], listing: str) -> str:
    """What a mistyped name may have meant, or the command that lists them all."""
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    close += [name for name in names if word in name and name not in close][:3]
    if close:
        return f"did you mean {' or '.join(close[:3])}?"
    return f"`{listing}` lists them all"
