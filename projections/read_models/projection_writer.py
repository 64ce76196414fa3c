"""Brings one store of read models up to date: writes every run and machine that changed after its checkpoint.

Changes come from the process's live world or, if it is missing or does not reach back so far, from a fold of the record
that continues the store. If another process has written meanwhile, the store is reloaded.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.money.costs import Costs
from steno.engine.money.report import gpu_of, user_of
from steno.engine.objects import blind_object
from steno.engine.providers.registry import READINGS
from steno.engine.rules.sets import ADOPTED, CURRENT, NAME
from steno.engine.state.archives import archive_about, seen_at
from steno.engine.state.changes import Anomaly, Blind
from steno.engine.state.run import Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, load
from steno.projections.read_models.cost_rows import Money, costed, stored_machines_of, vm_marks
from steno.projections.read_models.notes import Mark
from steno.projections.read_models.run_rows import configurations, moves_of, run_marks, run_row
from steno.projections.read_models.schema import anomalies, blind, decode_run, decode_vm
from steno.projections.read_models.store import Checkpoint, ProjectionStore
from steno.projections.read_models.world_table import (
    APART,
    LiveCut,
    StoredInventory,
    StoredRuns,
    cut_of,
    encode,
    form,
    joined,
    load_bare_world,
    pieces,
    save_world,
    stand_on,
)

if TYPE_CHECKING:
    from steno.engine.fold.record_fold import RecordFold
    from steno.engine.live.live_world import LiveWorld
    from steno.events.store.record import Record

Progress = Callable[[int, int], None]  # called with (done, total) while a fold goes on

RULES: Final = f"{NAME} {form()}"  # of the read models; a change of either rebuilds them

MOMENTS = 128  # how many worlds of the past are kept at most, and half as many at least
SPACING = 1 << 13  # positions between two of them, in a short record
NO_MOMENTS: Final = 1 << 62  # a spacing at which none is kept
_CHUNK: Final = 1 << 16  # positions folded in one transaction at most
_CACHED: Final = 2000  # cached runs and machines, besides those that go on


def checkpoint_at(record: "Record", position: int) -> Checkpoint:
    return Checkpoint(rules=RULES, record=record.id, position=position, chain=record.digest(position))


class ProjectionWriter:
    def __init__(
        self,
        record: "Record",
        store: ProjectionStore,
        *,
        spacing: int | None = None,
        time: int | None = None,
        live: "LiveWorld | None" = None,
    ) -> None:
        """`time`: ignore what was observed later (microseconds UTC). `live`: the world of this process, already ahead;
        None: none.
        """
        self._live = live
        self.record = record
        self._time = time
        self.store = store
        self._spacing = SPACING if spacing is None else spacing
        self._state: World | None = None  # at the checkpoint, on top of `_runs` and `_vms`
        self._runs: StoredRuns
        self._vms: StoredInventory[Vm]
        self._fold: RecordFold | None = None  # of that world; None: not begun, or from elsewhere
        self._is_cut = False  # it is a cut of the live world: enough for rows, not for a fold
        self._cuts: dict[str, int] = {}  # stream → the hash of what the live world had of it last
        self._costs: Costs
        self.position = 0  # how far the store was when this last looked
        self._lasting: bytes | None = None
        self._rest: World | None = None  # the live world's, decoded
        self._money: dict[str, Money] = {}

    def advance(self, until: int, progress: Progress | None = None, *, most: int | None = None) -> None:
        """Fold from the store's checkpoint up to `until`, in at most `most` transactions."""
        begun: int | None = None
        for _ in count() if most is None else range(most):
            with self.store.writing():
                state, after = self._begin()
                begun = after if begun is None else begun
                if after >= until and self.store.checkpoint() is not None:
                    return
                try:
                    self._step(state, after, until)
                except BaseException:
                    self._state = None
                    raise
            if progress is not None:
                progress(self.position - begun, until - begun)
            if self.position >= until:
                return

    def correct(self, runs: Mapping[str, Run | None], vms: Mapping[str, Vm], seen_until: int | None) -> None:
        """Put these runs and machines in the place of those of the store, at its position; None: the run goes.
        `seen_until`: up to when open machines are billed.
        """
        with self.store.writing():
            state, position = self._begin()
            state.last_at = seen_until
            vms = {vm.vm_id: vm for vm in state.vms.open()} | dict(vms)
            there = {run_id: run for run_id, run in runs.items() if run is not None}
            gone = [run_id for run_id in runs if run_id not in there]
            for run_id in gone:
                state.runs.memory.pop(run_id, None)
            state.runs.memory |= there
            state.vms.memory |= vms
            open_runs = [run_id for run_id, run in there.items() if not (run.terminal or run.unseen)]
            open_vms = [vm_id for vm_id, vm in vms.items() if vm.state is not VmState.TERMINATED]
            state.runs.open_ids = dict.fromkeys([*(key for key in state.runs.open_ids if key not in runs), *open_runs])
            state.vms.open_ids = dict.fromkeys([*(key for key in state.vms.open_ids if key not in vms), *open_vms])
            self.store.cases.drop(gone)
            self.store.runs.drop(gone, position)
            self._keep(state, position, position, there, vms)
            self.store.add_marks(_learnt_marks((*there.values(), *vms.values()), position), position)
            save_world(self.store, *pieces(state))
        self._state = None

    def _begin(self) -> tuple[World, int]:
        """The world, and the position of it and the store."""
        checkpoint = self.store.checkpoint()
        after = 0 if checkpoint is None else checkpoint.position
        state = self._state
        if state is None or after != self.position:
            return self._load(after), after
        met = len(state.runs.memory) + len(state.vms.memory)
        is_full = met > _CACHED + len(state.runs.open_ids) + len(state.vms.open_ids)
        return self._load(after) if is_full else state, after

    def _load(self, after: int) -> World:
        state = (load_bare_world(self.store) if after else None) or World(rules=CURRENT.name)
        self._runs, self._vms = stand_on(self.store, state)
        state.position = max(state.position, after)
        self._state, self._fold, self._is_cut, self._rest = state, None, False, None
        self._cuts.clear()
        self._costs = Costs(state)
        self.position = after
        self._lasting = None
        self._money.clear()
        self.store.note_moments()
        return state

    def _end(self, after: int, until: int) -> int:
        """The end of this transaction, at most the next moment to keep."""
        spacing = self._spacing_at(until)
        return min(until, after + _CHUNK, after - after % spacing + spacing)

    def _spacing_at(self, position: int) -> int:
        spacing = self._spacing
        while position > spacing * MOMENTS:
            spacing *= 2
        return spacing

    def _step(self, state: World, after: int, until: int) -> None:
        """Write what changed in `(after, until]`, or a little further."""
        cut = None if self._live is None or after == 0 else cut_of(self._live, after)
        if cut is None or cut.position < until:
            state, end = self._folded(state, after, until), self._end(after, until)
            met = list(state.runs.memory), list(state.vms.memory)
            world, lasting = pieces(state)
        else:
            met, end = self._take(cut, state), cut.position
            world, lasting = cut.world, cut.lasting
        self._keep(state, after, end, *met)
        save_world(self.store, world, lasting, self._lasting)
        self._lasting = lasting
        state.anomalies.clear()
        state.blind.clear()
        self.store.set_checkpoint(checkpoint_at(self.record, end))
        spacing = self._spacing_at(until)
        if end // spacing > after // spacing:
            self.store.keep_moment(end, world, lasting, spacing=spacing)
        self.position = end

    def _folded(self, state: World, after: int, until: int) -> World:
        """The world at the end of this transaction, by a fold of the record."""
        from steno.engine.fold.record_fold import RecordFold

        state = self._load(after) if self._is_cut else state
        self._rest = None
        if self._fold is None:
            self._fold = RecordFold(self.record, Fold(READINGS, ADOPTED, state=state))
        self._fold.run(Until(position=self._end(after, until), at=self._time))
        gone = [run_id for run_id in self._runs.gone if self.store.runs.get(run_id) is not None]
        self.store.cases.drop(gone)
        self.store.runs.drop(gone, self._end(after, until))
        self._runs.gone.clear()
        return state

    def _take(self, cut: LiveCut, state: World) -> tuple[list[str], list[str]]:
        """Apply a cut; returns the ids of what it changed. Billed machines always count."""
        if self._lasting != cut.lasting or self._rest is None:
            self._rest = load(cut.lasting)
        newest = joined(cut.world, self._rest)
        for name in state.__struct_fields__:
            if name not in APART:
                setattr(state, name, getattr(newest, name))
        state.runs.open_ids, state.vms.open_ids = newest.runs.open_ids, newest.vms.open_ids
        state.anomalies = [note for note in cut.notes if isinstance(note, Anomaly)]
        state.blind = [note for note in cut.notes if isinstance(note, Blind)]
        self._fold, self._is_cut = None, True
        run_ids: list[str] = []
        for run_id, data in cut.runs.items():
            if not self._is_known(f"run/{run_id}", data):
                run, before = decode_run(data), state.runs.get(run_id)
                run.cost = None if before is None else before.cost
                state.runs[run_id] = run
                run_ids.append(run_id)
        vm_ids: list[str] = []
        for vm_id, data in cut.vms.items():
            if not self._is_known(f"vm/{vm_id}", data):
                state.vms.get(vm_id)
                state.vms[vm_id] = decode_vm(data)
                vm_ids.append(vm_id)
            elif state.vms[vm_id].billed:
                vm_ids.append(vm_id)
        for run_id in cut.gone:
            state.runs.memory.pop(run_id, None)
        gone = [run_id for run_id in cut.gone if self.store.runs.get(run_id) is not None]
        self.store.cases.drop(gone)
        self.store.runs.drop(gone, cut.position)
        return run_ids, vm_ids

    def _is_known(self, stream: str, data: bytes) -> bool:
        """True if the live world's value is the same as last time."""
        now = hash(data)
        before, self._cuts[stream] = self._cuts.get(stream), now
        return before == now

    def _keep(self, state: World, after: int, end: int, run_ids: Iterable[str], vm_ids: Iterable[str]) -> None:
        """Write those of these runs and machines whose data or cost changed, and what is new beside them."""
        runs, vms, run_ids = self._runs, self._vms, tuple(run_ids)
        self._fill_costs(run_ids)
        self._costs.moved()
        machines = {
            vm_id: folded
            for vm_id in vm_ids
            if hash(folded := encode(vm := vms[vm_id])) != vms.stored.get(vm_id) or vm.billed
        }
        changed = {
            run_id: folded for run_id in run_ids if hash(folded := encode(runs[run_id])) != runs.stored.get(run_id)
        }
        machines |= self._repriced(state, after, machines)
        machines |= {vm_id: encode(vms[vm_id]) for vm_id in self._of_other_users(changed, machines)}
        machines |= {
            vm_id: encode(vms[vm_id]) for vm_id in self._costs.beneath(tuple(machines)) if vm_id not in machines
        }
        for run_id in self._on_other_gpus(machines):
            if run_id not in changed and runs.get(run_id) is not None:
                changed[run_id] = encode(runs[run_id])
        money, rows = costed(self._costs, machines, set(changed), self._money_of)
        money |= self._of_arrays(money)
        for run_id in money.keys() - changed.keys():
            changed[run_id] = encode(runs[run_id])
        in_order = [run_id for run_id in runs.memory if run_id in changed]
        given = configurations(self.record, (runs[run_id] for run_id in in_order), self.store.runs)
        rows_of_runs = [
            run_row(run := runs[run_id], vms.get(run.vm_id or ""), given[run_id], money[run_id], changed[run_id])
            for run_id in in_order
        ]
        self.store.runs.put(rows_of_runs, end)
        self.store.cases.put((run_id, log) for run_id in in_order if (log := runs[run_id].cases))
        self.store.vms.put(rows, end)
        odd = (
            (note.subject, note.position, archive_about(state, note.subject), msgspec.json.encode(note))
            for note in state.anomalies
        )
        gaps = (
            (gap.source, archive_about(state, f"source/{gap.source}"), msgspec.json.encode(blind_object(gap)))
            for gap in state.blind
        )
        self.store.add(anomalies, odd, end)
        self.store.add(blind, gaps, end)
        marks = [*run_marks(runs[run_id] for run_id in in_order), *vm_marks(vms[vm_id] for vm_id in machines)]
        marks += [
            Mark(
                position=anomaly.position,
                at=seen_at(state, anomaly.subject),
                kind=anomaly.kind.value,
                subject=anomaly.subject,
            )
            for anomaly in state.anomalies
        ]
        fresh = (mark for mark in marks if after < mark.position <= end)
        self.store.add_marks(sorted(fresh, key=lambda mark: mark.position), end)
        moved: list[Run | Vm] = [*(runs[run_id] for run_id in in_order), *(vms[vm_id] for vm_id in machines)]
        made = (move for thing in moved for move in moves_of(thing, after))
        self.store.add_moves(sorted(made, key=lambda move: (move.position, move.subject)))
        runs.stored.update((run_id, hash(folded)) for run_id, folded in changed.items())
        vms.stored.update((vm_id, hash(folded)) for vm_id, folded in machines.items())
        self._money.update(money)

    def _repriced(self, state: World, after: int, known: Container[str]) -> dict[str, bytes]:
        """Machines, except the `known` machines, whose bill a newly adopted policy changes: they existed when it came
        into force.
        """
        adopted = [step.at for steps in state.policies.values() for step in steps if step.position > after]
        if not adopted:
            return {}
        there = [row.vm_id for row in self.store.vms.all(since=min(adopted)) if row.vm_id not in known]
        return {vm_id: encode(state.vms[vm_id]) for vm_id in there}

    def _on_other_gpus(self, moved: Iterable[str]) -> Iterator[str]:
        """The runs on those moved machines whose GPU is not the stored one: their rows name it."""
        for vm_id in moved:
            if self.store.vms.columns(vm_id, "gpu") != (gpu_of(vm := self._vms[vm_id]),):
                yield from vm.runs

    def _of_other_users(self, changed: Iterable[str], known: Container[str]) -> Iterator[str]:
        """The machines, except the `known` machines, of changed runs whose user is not the stored user, or that have
        samples: their rows name the user, and split the time of the run.
        """
        for run_id in changed:
            run = self._runs[run_id]
            user, against = self.store.runs.columns(run_id, "user", "against") or (None, None)
            if user != user_of(run) or run.use is not None:
                there = stored_machines_of(run, against)
                yield from (vm_id for vm_id in there if vm_id not in known and vm_id in self._vms)

    def _of_arrays(self, money: Mapping[str, Money]) -> dict[str, Money]:
        """The costs of the arrays that these runs are, or are tasks of: those of their tasks."""
        of_arrays: dict[str, Money] = {}
        runs = [self._runs[run_id] for run_id in money]
        for array in {run.array or run.run_id: None for run in runs if run.array or run.tasks}:
            tasks = self._runs[array].tasks
            costs = [(money[task_id] if task_id in money else self._money_of(task_id))[0] for task_id in tasks]
            known = [cost for cost in costs if cost is not None]
            of_arrays[array] = sum(known) if known else None, None
        return of_arrays

    def _money_of(self, run_id: str) -> Money:
        if run_id not in self._money:
            self._money[run_id] = self.store.runs.columns(run_id, "cost", "against") or (None, None)
        return self._money[run_id]

    def _fill_costs(self, run_ids: Iterable[str]) -> None:
        """Read the provider's cost of runs from newer polls."""
        from steno.engine.replay.result import fill_costs

        known = self._runs.filled
        stale = [run for run_id in run_ids if known.get(run_id) != (run := self._runs[run_id]).cost_at]
        fill_costs(self.record, stale)
        known.update((run.run_id, run.cost_at) for run in stale)


def _learnt_marks(things: Iterable[Run | Vm], position: int) -> Iterator[Mark]:
    """The marks behind a position of runs and machines as they were at its moment, each at its date."""
    for thing in things:
        for mark in run_marks((thing,)) if isinstance(thing, Run) else vm_marks((thing,)):
            date = thing.created if isinstance(thing, Vm) and mark.kind == "vm_started" else thing.finished_at
            if mark.position > position:
                yield mark if date is None else msgspec.structs.replace(mark, at=min(mark.at, date))
