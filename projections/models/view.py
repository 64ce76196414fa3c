"""What commands and the API read: runs and machines by any of their names, with related data."""

import difflib
from collections.abc import Container, Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine.decide.budget import Account, Metrics, PastSpend, account, metrics
from engine.decide.queue import LEARNT_FROM, Queued, over_limit, queue
from engine.errors import RunNotFound, VmNotFound
from engine.fold.archives import newest_poll, until_of
from engine.fold.change import Anomaly, GapKind
from engine.fold.run import Run
from engine.fold.sources import Observability, Source, observability, open_blind
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, policy_of, source_of
from engine.objects import BlindObject, RanObject, RunObject, VmObject, blind_object
from engine.policy import DAY, Policy
from engine.providers.readings import READINGS
from engine.rules.current import CURRENT
from engine.wire import Shape, Time
from events.clock import format_time
from events.errors import StenoError
from projections.store.row_table import Row, RowTable
from projections.store.run_query import RunQuery, find
from projections.store.schema import RunRow, VmRow
from projections.store.store import ProjectionStore
from projections.store.world_table import decode_run, decode_vm, load_whole_world, load_world


def waits(run: Run) -> bool:
    """Whether a run was requested from Steno and not handed over yet."""
    return run.requested_at is not None and run.provider_id is None and run.placed is None and not run.terminal


def queues(state: WorldState, now: int) -> dict[str, Queued]:
    """run id → its place, for every waiting run; each source has its queue. `state` holds every run in memory, as
    durations are estimated from ended ones.
    """
    waiting = (run for run_id in state.unsettled if waits(run := state.runs[run_id]))
    sources = dict.fromkeys(source_of(run) for run in waiting)
    return {one.run_id: one for source in sources for one in queue(state, source, policy_of(state, source), now)}


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
    }


_run = msgspec.json.Decoder(RunObject)
_ran = msgspec.json.Decoder(RanObject)
_vm = msgspec.json.Decoder(VmObject)
_anomaly = msgspec.json.Decoder(Anomaly)
_blind = msgspec.json.Decoder(BlindObject)
_SUGGESTED = 5


class SourceView(Shape, frozen=True, kw_only=True):
    """Whether a source still answers."""

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


def watched(state: WorldState) -> list[Source]:
    """Every live source of runs and machines that was polled, answered or not."""
    found = state.sources.values()
    return [one for one in found if not one.archive and (one.failed_at or one.last_answered is not None)]


class View:
    def __init__(self, store: ProjectionStore) -> None:
        self.store = store

    @cached_property
    def state(self) -> WorldState:
        """The engine's world behind these projections; loads runs and machines on demand."""
        return load_world(self.store) or WorldState(rules=CURRENT.name)

    @property
    def position(self) -> int:
        """The last position of these projections."""
        checkpoint = self.store.checkpoint()
        return 0 if checkpoint is None else checkpoint.position

    @property
    def last_at(self) -> int | None:
        """The time of the newest poll (microseconds UTC) of a live source, else of an archive."""
        return newest_poll(self.state)

    def clock(self, archive: str | None, now: int) -> int:
        """The time at which an archive is viewed: its last poll, if before `now`; `now` for a live source."""
        source = self.state.sources.get(archive or "")
        return now if source is None or source.imported_to is None else min(now, source.imported_to)

    def until(self, vm: Vm) -> int:
        """The end of an open machine's bill (microseconds UTC)."""
        return until_of(self.state, vm)

    def runs(self, *, open_or_since: int | None = None, hidden: bool = False) -> tuple[RunObject, ...]:
        """All runs by first sight; or only those open (never of archives) or submitted since a time. `hidden`: with
        hidden archives.
        """
        rows = self.store.runs.all(since=open_or_since, hidden=hidden)
        return tuple(_run.decode(row.object) for row in rows)

    def found(self, query: RunQuery, limit: int) -> tuple[RunObject, ...]:
        """At most `limit` runs that a query finds, in its order."""
        ids = (run_id for run_id, _ in find(self.store, query, limit))
        return tuple(_run.decode(shown) for shown, _ in self.store.runs.objects_of(ids))

    def ran(self, run_id: str) -> RanObject:
        return _ran.decode(self.store.runs.ran_of(run_id) or b"")

    def row(self, word: str) -> RunRow:
        """The run of a word: run id, provider's id, the newest of a name, or a unique prefix of an id. Raises
        `RunNotFound` for none or several.
        """
        return _one(self.store.runs, word, RunNotFound, "run", "steno ps --all")

    def run(self, word: str) -> RunObject:
        return _run.decode(self.row(word).object)

    def anomalies_of(self, subject: str) -> tuple[Anomaly, ...]:
        """The anomalies of `run/<run id>`, `vm/<vm id>` or `source/<name>`."""
        return tuple(map(_anomaly.decode, self.store.anomalies(subject)))

    def vms(self, *, billed_or_since: int | None = None, hidden: bool = False) -> tuple[VmObject, ...]:
        """All machines by first sight; or only those billed now (never of archives) or ended since a time. `hidden`:
        with hidden archives.
        """
        rows = self.store.vms.all(since=billed_or_since, hidden=hidden)
        return tuple(_vm.decode(row.object) for row in rows)

    def vm_row(self, word: str) -> VmRow:
        """The machine of a word: its id, the provider's, the newest of a name, or a unique prefix. Raises `VmNotFound`
        for none or several.
        """
        return _one(self.store.vms, word, VmNotFound, "machine", "steno vms --all")

    def run_or_vm(self, word: str) -> RunRow | VmRow:
        """The run or else the machine of a word; a prefix of ids of both kinds is ambiguous. Raises `RunNotFound` for
        none or several.
        """
        found: tuple[RunRow | VmRow, ...] = (*self.store.runs.matching(word), *self.store.vms.matching(word))
        exact = [one for one in found if word in (_id_of(one), one.provider_id, one.name)]
        match exact or found:
            case ():
                return self.row(word)
            case (one, *others) if exact or not others:
                return one
        raise RunNotFound(_several(word, "runs and machines", found))

    def vm(self, word: str) -> VmObject:
        return _vm.decode(self.vm_row(word).object)

    def machine(self, vm_id: str) -> Vm:
        """The engine's machine, with what its object leaves out."""
        return self.state.vms[vm_id]

    def queued(self, now: int) -> dict[str, Queued]:
        """run id → its place in Steno's queue, for every waiting run."""
        if not any(waits(self.state.runs[run_id]) for run_id in self.state.unsettled):
            return {}
        return queues(self._recent(), now)

    def over_limit(self, now: int) -> list[str]:
        """A sentence for each source in which firings of schedules exceed the machine limit."""
        firings = [run for run_id in self.state.unsettled if (run := self.state.runs[run_id]).schedule is not None]
        world = self._recent() if firings else self.state
        found = (over_limit(world, one, policy_of(world, one), now) for one in dict.fromkeys(map(source_of, firings)))
        return [one for one in found if one is not None]

    def _recent(self) -> WorldState:
        """The world with the runs a queue estimate needs: unfinished ones, the newest, and those that moved since the
        last list of machines or since a present machine came.
        """
        state = self.state
        listed = [source.machines_position for source in state.sources.values()]
        came = [state.vms[vm_id].first_position for vm_id in state.open_vms]
        rows = self.store.runs.recent(LEARNT_FROM, min((*listed, *came), default=0))
        runs = {run_id: state.runs[run_id] for run_id in state.unsettled}
        runs |= {row.run_id: decode_run(row.folded) for row in rows if row.run_id not in runs}
        in_order = sorted(runs.values(), key=lambda run: run.first_position)
        return msgspec.structs.replace(state, runs={run.run_id: run for run in in_order})

    def ledger(self, now: int) -> tuple[WorldState, PastSpend]:
        """The input of `account`: (world with the machines that move the budget, cost of all others); no archives."""
        there = {row.vm_id: row for row in self.store.vms.all(since=now - DAY)}
        there |= {row.vm_id: row for row in self.store.vms.kinds() if row.vm_id not in there}
        there = {vm_id: row for vm_id, row in there.items() if row.archive is None}
        total, first = self.store.vms.spent()
        rest = PastSpend(spent=total - sum(row.cost for row in there.values()), since=first)
        machines = {vm_id: decode_vm(row.folded) for vm_id, row in there.items()}
        return msgspec.structs.replace(self.state, vms=machines), rest

    def account(self, policy: Policy, now: int) -> Account:
        """Where the budget stands."""
        state, settled = self.ledger(now)
        return account(state, policy, now, settled)

    def figures(self, policy: Policy, now: int) -> Metrics:
        """What a front end shows."""
        state, settled = self.ledger(now)
        return metrics(state, account(state, policy, now, settled), self.store.runs.start_counts())

    def why_not_warm(self, run_id: str) -> tuple[str, ...]:
        """Why a run has no warm machine; empty if it has one, or none is kept there (free machines, or one per run)."""
        from engine.decide.why import why_not_warm

        state = self.state
        run = state.runs[run_id]
        reading = READINGS.of(run.provider)
        own = policy_of(state, source_of(run)).free or (reading is not None and reading.own_machines)
        return () if own else why_not_warm(state, run)

    def why_up(self, vm_id: str, now: int) -> tuple[str, ...]:
        """Why a machine is still up; for one that ended, when and why."""
        from engine.decide.why import why_up

        state = self.state
        vm = state.vms[vm_id]
        return why_up(state, vm, policy_of(state, vm.source), now)

    def whole(self) -> WorldState:
        """The engine's world with every run in memory: for costs and the budget."""
        return load_whole_world(self.store) or WorldState(rules=CURRENT.name)

    def blind_of(self, row: RunRow, now: int) -> tuple[BlindObject, ...]:
        """The gaps of a run's sources, those open at `now` included."""
        sources = tuple(decode_run(row.folded).started)
        return (*map(_blind.decode, self.store.blind(sources)), *self.open_gaps(now, sources))

    def open_gaps(self, now: int, of: Container[str] | None = None) -> tuple[BlindObject, ...]:
        """The gaps of all or some sources that are open at `now`."""
        sources = [source for source in self.state.sources.values() if of is None or source.name in of]
        lasting = (open_blind(source, now) for source in sources if not source.archive)
        return tuple(blind_object(one) for one in lasting if one is not None)

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
        sources = decode_run(row.folded).started
        shown = [source for source in self.sources(now) if source.name in sources]
        return max(shown, key=lambda source: source.last_answered or 0, default=None)


def _one(table: RowTable[Row], word: str, error: type[StenoError], thing: str, listing: str) -> Row:
    found = table.matching(word)
    if len(found) == 1:
        return found[0]
    if found and isinstance(found[0], RunRow) and found[0].part_of == word:
        raise error(
            f"{word} is an array that was submitted outside Steno: name a task of it, as '{word}[{found[0].task}]'"
        )
    if found:
        raise error(_several(word, f"{thing}s", found))
    raise error(f"there is no {thing} {word!r}; {_near(word, table.names(), listing)}")


def _id_of(row: RunRow | VmRow) -> str:
    return row.run_id if isinstance(row, RunRow) else row.vm_id


def _several(word: str, things: str, found: Sequence[Any]) -> str:
    several = ", ".join(f"{_id_of(row)[:13]}… ({row.name})" for row in found[:_SUGGESTED])
    return f"{word!r} begins the ids of several {things}: {several}; write more of it"


def _near(word: str, names: Sequence[str], listing: str) -> str:
    """Similar names, or the command that lists all."""
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    close += [name for name in names if word in name and name not in close][:3]
    if close:
        return f"did you mean {' or '.join(close[:3])}?"
    return f"`{listing}` lists them all"
