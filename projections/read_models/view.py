"""The reads of commands and the API: runs and machines by any of their names, with related data."""

import difflib
from collections.abc import Container, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from steno.engine.decide.budget import Account, Metrics, PastSpend, account, metrics
from steno.engine.decide.queue import LEARNT_FROM, Queued, over_limit, queue
from steno.engine.errors import RunNotFound, VmNotFound
from steno.engine.fold.record_time import record_time
from steno.engine.objects import BlindObject, RunObject, VmObject, blind_object
from steno.engine.providers.registry import READINGS, kind
from steno.engine.rules.sets import CURRENT
from steno.engine.state.archives import newest_poll, until_of
from steno.engine.state.changes import Anomaly, GapKind
from steno.engine.state.inventory import Inventory
from steno.engine.state.policy import DAY, Policy
from steno.engine.state.run import Run
from steno.engine.state.sources import Observability, Source, observability, open_blind
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, policy_of, source_of
from steno.engine.wire import Shape, Time
from steno.events.clock import format_second, format_time
from steno.events.errors import StenoError
from steno.projections.read_models.row_table import Row, RowTable
from steno.projections.read_models.run_query import RunQuery, find
from steno.projections.read_models.schema import RunRow, VmRow, decode_run_object
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.world_table import load_whole_world, load_world

if TYPE_CHECKING:
    from steno.events.store.record import Record
    from steno.projections.read_models.known_worlds import Knowledge


def waits(run: Run) -> bool:
    """True if a run was requested from Steno and not handed over yet."""
    return run.requested_at is not None and run.provider_id is None and run.placed is None and not run.terminal


def queues(state: World, now: int) -> dict[str, Queued]:
    """run id → its place, for every waiting run; each source has its queue. `state` holds every run in memory, as
    durations are estimated from ended runs.
    """
    waiting = filter(waits, state.runs.open())
    sources = dict.fromkeys(source_of(run) for run in waiting)
    return {place.run_id: place for source in sources for place in queue(state, source, policy_of(state, source), now)}


def beside(vm: Vm) -> dict[str, object]:
    """A machine's provider facts and our intents."""
    facts = vm.facts
    return {
        "project": facts.project,
        "backend": facts.backend,
        "region": facts.region,
        "fleet": facts.fleet,
        "gpu": facts.gpu,
        "gpu_count": facts.gpu_count,
        "spot": facts.spot,
        "ours": vm.ours,
        "made_for": vm.made_for,
        "created_at": format_time(vm.created),
        "idle_since": None if vm.idle_since is None else format_time(vm.idle_since),
        "unreachable": facts.unreachable,
        "health": facts.health,
    }


_SUGGESTED = 5


class SourceView(Shape, frozen=True, kw_only=True):
    """A source, and how it answers."""

    name: str
    observability: Observability
    last_answered: Time | None  # None if it never did
    blind: Annotated[
        GapKind | None, Meta(description="Of a blind source: whether it is polled and does not answer, or not polled.")
    ]


def source_view(source: Source, now: int) -> SourceView:
    seen, gap = observability(source, now), open_blind(source, now)
    blind = None if seen is not Observability.BLIND else GapKind.NO_ANSWER if gap is None else gap.kind
    return SourceView(name=source.name, observability=seen, last_answered=source.last_answered, blind=blind)


def watched(state: World) -> list[Source]:
    """Every live source of runs and machines that was polled, answered or not."""
    known = state.sources.values()
    return [source for source in known if not source.archive and (source.failed_at or source.last_answered is not None)]


class View:
    def __init__(self, store: ProjectionStore, moment: "Knowledge | None" = None) -> None:
        """`moment`: of the past, and how much is recorded by now; None: the present."""
        self.store = store
        self.moment = moment

    @cached_property
    def state(self) -> World:
        """The engine's world behind these projections; loads runs and machines on demand."""
        return load_world(self.store) or World(rules=CURRENT.name)

    @property
    def position(self) -> int:
        """The last position of these projections."""
        checkpoint = self.store.checkpoint()
        return 0 if checkpoint is None else checkpoint.position

    @property
    def last_at(self) -> int | None:
        """The time of the newest poll (microseconds UTC) of a live source, else of an archive."""
        return newest_poll(self.state)

    def time_of(self, record: "Record", position: int) -> int | None:
        """The record time of an event (microseconds UTC); None: there is none at this position."""
        stored = record.at(position)
        return None if stored is None else record_time(self.state, stored)

    def clock(self, archive: str | None, now: int) -> int:
        """The time at which an archive is viewed: its last poll, if before `now`; `now` for a live source."""
        source = self.state.sources.get(archive or "")
        return now if source is None or source.imported_to is None else min(now, source.imported_to)

    def until(self, vm: Vm) -> int:
        """The end of an open machine's bill (microseconds UTC)."""
        return until_of(self.state, vm)

    def runs(self, *, open_or_since: int | None = None) -> tuple[RunObject, ...]:
        """All visible runs by first sight; or only those open (never of archives) or submitted since a time."""
        return tuple(row.public for row in self.store.runs.all(since=open_or_since, hidden=False))

    def found(self, query: RunQuery, limit: int) -> tuple[RunObject, ...]:
        """At most `limit` runs that a query finds, in its order."""
        ids = (run_id for run_id, _ in find(self.store, query, limit))
        return tuple(decode_run_object(run) for run, _ in self.store.runs.objects_of(ids))

    def row(self, word: str) -> RunRow:
        """The run of a word: run id, provider's id, the newest of a name, or a unique prefix of an id. Raises
        `RunNotFound` for none or several.
        """
        return _one(self.store.runs, word, RunNotFound, "run", "steno ps --all")

    def run(self, word: str) -> RunObject:
        return self.row(word).public

    def anomalies_of(self, subject: str) -> tuple[Anomaly, ...]:
        """The anomalies of `run/<run id>`, `vm/<vm id>` or `source/<name>`."""
        return self.store.anomalies(subject)

    def vms(self, *, billed_or_since: int | None = None, hidden: bool = False) -> tuple[VmObject, ...]:
        """All machines by first sight; or only those billed now (never of archives) or ended since a time. `hidden`:
        with hidden archives.
        """
        return tuple(row.public for row in self.store.vms.all(since=billed_or_since, hidden=hidden))

    def vm_row(self, word: str) -> VmRow:
        """The machine of a word: its id, the provider's, the newest of a name, or a unique prefix. Raises `VmNotFound`
        for none or several.
        """
        return _one(self.store.vms, word, VmNotFound, "machine", "steno vms --all")

    def run_or_vm(self, word: str) -> RunRow | VmRow:
        """The run or else the machine of a word; a prefix of ids of both kinds is ambiguous. Raises `RunNotFound` for
        none or several.
        """
        matches: tuple[RunRow | VmRow, ...] = (*self.store.runs.matching(word), *self.store.vms.matching(word))
        exact = [row for row in matches if word in (_id_of(row), row.provider_id, row.name)]
        match exact or matches:
            case ():
                return self.row(word)
            case (one, *others) if exact or not others:
                return one
        raise RunNotFound(_several(word, "runs and machines", matches))

    def vm(self, word: str) -> VmObject:
        return self.vm_row(word).public

    def machine(self, vm_id: str) -> Vm:
        """The engine's machine, with what its object leaves out."""
        return self.state.vms[vm_id]

    def queued(self, now: int) -> dict[str, Queued]:
        """run id → its place in Steno's queue, for every waiting run."""
        if not any(map(waits, self.state.runs.open())):
            return {}
        return queues(self._recent(), now)

    def over_limit(self, now: int) -> list[str]:
        """A sentence for each source in which firings of schedules exceed the machine limit."""
        firings = [run for run in self.state.runs.open() if run.schedule is not None]
        world = self._recent() if firings else self.state
        sentences = (
            over_limit(world, source, policy_of(world, source), now)
            for source in dict.fromkeys(map(source_of, firings))
        )
        return [sentence for sentence in sentences if sentence is not None]

    def _recent(self) -> World:
        """The world with the runs a queue estimate needs: open runs, the newest, and those that moved since the
        last list of machines or since a present machine came.
        """
        state = self.state
        listed = [source.machines_position for source in state.sources.values()]
        came = [vm.first_position for vm in state.vms.open()]
        rows = self.store.runs.recent(LEARNT_FROM, min((*listed, *came), default=0))
        runs = {run.run_id: run for run in state.runs.open()}
        runs |= {row.run_id: row.decoded for row in rows if row.run_id not in runs}
        in_order = sorted(runs.values(), key=lambda run: run.first_position)
        recent = Inventory({run.run_id: run for run in in_order}, state.runs.open_ids)
        return msgspec.structs.replace(state, runs=recent)

    def ledger(self, now: int) -> tuple[World, PastSpend]:
        """The input of `account`: (world with the machines that move the budget, cost of all others); no archives."""
        there = {row.vm_id: row for row in self.store.vms.all(since=now - DAY)}
        there |= {row.vm_id: row for row in self.store.vms.kinds() if row.vm_id not in there}
        there = {vm_id: row for vm_id, row in there.items() if row.archive is None}
        total, first = self.store.vms.spent()
        rest = PastSpend(spent=total - sum(row.cost for row in there.values()), since=first)
        machines = {vm_id: row.decoded for vm_id, row in there.items()}
        open_ids = filter(machines.__contains__, self.state.vms.open_ids)
        return msgspec.structs.replace(self.state, vms=Inventory(machines, open_ids)), rest

    def account(self, policy: Policy, now: int) -> Account:
        """Where the budget stands."""
        state, settled = self.ledger(now)
        return account(state, policy, now, settled)

    def figures(self, policy: Policy, now: int) -> Metrics:
        """The figures that a front end shows."""
        state, settled = self.ledger(now)
        return metrics(state, account(state, policy, now, settled), self.store.runs.start_counts())

    def why_not_warm(self, run_id: str) -> tuple[str, ...]:
        """Why a run has no warm machine; empty if it has one, or none is kept there (free machines, or one per run)."""
        from steno.engine.decide.why import why_not_warm

        state = self.state
        run = state.runs[run_id]
        reading = READINGS.of(run.provider)
        own = policy_of(state, source_of(run)).free or (reading is not None and reading.own_machines)
        return () if own else why_not_warm(state, run)

    def why_up(self, vm_id: str, now: int) -> tuple[str, ...]:
        """Why a machine is still up; if it ended, when and why."""
        from steno.engine.decide.why import why_up

        state = self.state
        vm = state.vms[vm_id]
        ends = None if vm.idle_since is None else self.provider_end(vm, now)
        own = (
            ()
            if ends is None
            else (f"{vm.provider} itself ends it about {format_second(ends)}, unless a run is on it.",)
        )
        return (*why_up(state, vm, policy_of(state, vm.source), now), *own)

    def provider_end(self, vm: Vm, now: int) -> int | None:
        """When its provider ends a kept machine that stays idle; None: not before the time for which it is kept."""
        from steno.engine.decide.machine import own_end

        kept, own = vm.kept(now), own_end(self.state, vm, policy_of(self.state, vm.source), now)
        is_before = kept is not None and own is not None and own < kept.until and vm.billed
        return own if is_before and kind(vm.provider).ends_idle else None

    def whole(self) -> World:
        """The engine's world with every run in memory: for costs and the budget."""
        return load_whole_world(self.store) or World(rules=CURRENT.name)

    def blind_of(self, row: RunRow, now: int) -> tuple[BlindObject, ...]:
        """The gaps of a run's sources, those open at `now` included."""
        sources = tuple(row.decoded.started)
        return (*self.store.blind(sources), *self.open_gaps(now, sources))

    def open_gaps(self, now: int, of: Container[str] | None = None) -> tuple[BlindObject, ...]:
        """The gaps of all or some sources that are open at `now`."""
        sources = [source for source in self.state.sources.values() if of is None or source.name in of]
        lasting = (open_blind(source, now) for source in sources if not source.archive)
        return tuple(blind_object(gap) for gap in lasting if gap is not None)

    def sources(self, now: int) -> tuple[SourceView, ...]:
        """Every live source of runs and machines, and whether it answers at `now`."""
        return tuple(source_view(source, now) for source in watched(self.state))

    def hidden(self) -> tuple[str, ...]:
        sources = self.state.sources.items()
        return tuple(name for name, source in sources if source.imported_to is not None and source.hidden)

    def source_named(self, name: str, now: int) -> SourceView | None:
        """The source of that name; None if it was never polled."""
        return next((source for source in self.sources(now) if source.name == name), None)

    def source_of(self, row: RunRow, now: int) -> SourceView | None:
        sources = row.decoded.started
        listing = [source for source in self.sources(now) if source.name in sources]
        return max(listing, key=lambda source: source.last_answered or 0, default=None)


def _one(table: RowTable[Row], word: str, error: type[StenoError], thing: str, listing: str) -> Row:
    matches = table.matching(word)
    if len(matches) == 1:
        return matches[0]
    if matches and isinstance(matches[0], RunRow) and matches[0].part_of == word:
        raise error(
            f"{word} is an array that was submitted outside Steno: name a task of it, as '{word}[{matches[0].task}]'"
        )
    if matches:
        raise error(_several(word, f"{thing}s", matches))
    raise error(f"there is no {thing} {word!r}; {_near(word, table.names(), listing)}")


def _id_of(row: RunRow | VmRow) -> str:
    return row.run_id if isinstance(row, RunRow) else row.vm_id


def _several(word: str, things: str, rows: Sequence[Any]) -> str:
    several = ", ".join(f"{_id_of(row)[:13]}… ({row.name})" for row in rows[:_SUGGESTED])
    return f"{word!r} begins the ids of several {things}: {several}; write more of it"


def _near(word: str, names: Sequence[str], listing: str) -> str:
    """Similar names, or the command that lists all."""
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    close += [name for name in names if word in name and name not in close][:3]
    if close:
        return f"did you mean {' or '.join(close[:3])}?"
    return f"`{listing}` lists them all"
