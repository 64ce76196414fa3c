"""Brings one store of read models up to date: writes every run and machine that changed after its checkpoint.

Changes come from the process's live world or, if it is missing or does not reach back so far, from a fold of the record
that continues the store. If another process has written meanwhile, the store is reloaded.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from engine.fold.archives import archive_about, seen_at
from engine.fold.chains import began
from engine.fold.change import Anomaly, Blind
from engine.fold.run import Run
from engine.fold.state_machines import TERMINAL
from engine.fold.tick import Until
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.fold.world_codec import WorldState, load
from engine.kernel.listener_run import gpu_kept
from engine.money.costs import Costs
from engine.money.reconcile import divergences
from engine.money.report import gpu_of, start_time, user_of
from engine.objects import RanObject, blind_object, run_object
from engine.providers.readings import READINGS
from engine.rules.current import CURRENT, NAME
from engine.states import VmState
from events.clock import SECOND
from projections.models.cost_rows import Money, costed, stored_machines_of
from projections.models.what_ran import configurations, gpu_words, search_words, what_ran
from projections.store.notes import Mark
from projections.store.schema import RunRow, anomalies, blind
from projections.store.store import Checkpoint, ProjectionStore
from projections.store.world_table import (
    APART,
    LiveCut,
    StoredIds,
    StoredRuns,
    StoredVms,
    cut_of,
    decode_run,
    decode_vm,
    encode,
    form,
    joined,
    load_world,
    pieces,
    save_world,
)

if TYPE_CHECKING:
    from engine.fold.record_fold import RecordFold
    from engine.live.live_world import LiveWorld
    from events.store.record import Record

Progress = Callable[[int, int], None]  # called with (done, total) while a fold goes on

RULES: Final = f"{NAME} {form()}"  # of the read models; a change of either rebuilds them

MOMENTS = 128  # how many worlds of the past are kept at most, and half as many at least
SPACING = 1 << 13  # positions between two of them, in a short record
NO_MOMENTS: Final = 1 << 62  # a spacing at which none is kept
_CHUNK: Final = 1 << 16  # positions folded in one transaction at most
_CACHED: Final = 2000  # cached runs and machines, besides unfinished ones


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
        self._state: WorldState | None = None  # at the checkpoint; loads runs and machines on demand
        self._fold: RecordFold | None = None  # of that world; None: not begun, or from elsewhere
        self._is_cut = False  # it is a cut of the live world: enough for rows, not for a fold
        self._cuts: dict[str, int] = {}  # stream → the hash of what the live world had of it last
        self._costs: Costs
        self.position = 0  # how far the store was when this last looked
        self._lasting: bytes | None = None
        self._rest: WorldState | None = None  # the live world's, decoded
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

    def _begin(self) -> tuple[WorldState, int]:
        """The world, and the position of it and the store."""
        checkpoint = self.store.checkpoint()
        after = 0 if checkpoint is None else checkpoint.position
        state = self._state
        if state is None or after != self.position:
            return self._load(after), after
        met = dict.__len__(state.runs) + dict.__len__(state.vms)
        is_full = met > _CACHED + len(state.unsettled) + len(state.open_vms)
        return self._load(after) if is_full else state, after

    def _load(self, after: int) -> WorldState:
        state = load_world(self.store) if after else None
        if state is None:
            state = WorldState(rules=CURRENT.name)
            state.runs, state.vms = StoredRuns(self.store), StoredVms(self.store)
            state.by_provider = StoredIds(self.store)
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

    def _step(self, state: WorldState, after: int, until: int) -> None:
        """Write what changed in `(after, until]`, or a little further."""
        cut = None if self._live is None or after == 0 else cut_of(self._live, after)
        if cut is None or cut.position < until:
            state, end = self._folded(state, after, until), self._end(after, until)
            met = list(dict.keys(state.runs)), list(dict.keys(state.vms))
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

    def _folded(self, state: WorldState, after: int, until: int) -> WorldState:
        """The world at the end of this transaction, by a fold of the record."""
        from engine.fold.record_fold import RecordFold

        state = self._load(after) if self._is_cut else state
        self._rest = None
        if self._fold is None:
            self._fold = RecordFold(self.record, World(READINGS, CURRENT, state=state))
        self._fold.run(Until(position=self._end(after, until), at=self._time))
        assert isinstance(state.runs, StoredRuns)  # noqa: S101 - nothing else is put there
        gone = [run_id for run_id in state.runs.gone if self.store.runs.get(run_id) is not None]
        self.store.runs.drop(gone, self._end(after, until))
        state.runs.gone.clear()
        return state

    def _take(self, cut: LiveCut, state: WorldState) -> tuple[list[str], list[str]]:
        """Apply a cut; returns the ids of what it changed. Billed machines always count."""
        if self._lasting != cut.lasting or self._rest is None:
            self._rest = load(cut.lasting)
        found = joined(cut.world, self._rest)
        for name in state.__struct_fields__:
            if name not in APART:
                setattr(state, name, getattr(found, name))
        state.anomalies = [one for one in cut.notes if isinstance(one, Anomaly)]
        state.blind = [one for one in cut.notes if isinstance(one, Blind)]
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
            state.runs.pop(run_id, None)
        self.store.runs.drop([one for one in cut.gone if self.store.runs.get(one) is not None], cut.position)
        return run_ids, vm_ids

    def _is_known(self, stream: str, data: bytes) -> bool:
        """Whether the live world's value is the same as last time."""
        now = hash(data)
        before, self._cuts[stream] = self._cuts.get(stream), now
        return before == now

    def _keep(self, state: WorldState, after: int, end: int, run_ids: Iterable[str], vm_ids: Iterable[str]) -> None:
        """Write those of these runs and machines whose data or cost changed, and what is new beside them."""
        runs, vms = state.runs, state.vms
        assert isinstance(runs, StoredRuns)  # noqa: S101 - nothing else is put there
        assert isinstance(vms, StoredVms)  # noqa: S101
        run_ids = tuple(run_ids)
        self._fill_costs(runs, run_ids)
        self._costs.moved()
        machines = {
            vm_id: folded
            for vm_id in vm_ids
            if hash(folded := encode(vm := vms[vm_id])) != vms.kept.get(vm_id) or vm.billed
        }
        changed = {
            run_id: folded for run_id in run_ids if hash(folded := encode(runs[run_id])) != runs.kept.get(run_id)
        }
        machines |= self._repriced(state, after, machines)
        machines |= {vm_id: encode(vms[vm_id]) for vm_id in self._of_other_users(runs, vms, changed, machines)}
        machines |= {one: encode(vms[one]) for one in self._costs.beneath(tuple(machines)) if one not in machines}
        for run_id in self._on_other_gpus(vms, machines):
            if run_id not in changed and runs.get(run_id) is not None:
                changed[run_id] = encode(runs[run_id])
        money, rows = costed(self._costs, machines, set(changed), self._money_of)
        money |= self._of_arrays(runs, money)
        for run_id in money.keys() - changed.keys():
            changed[run_id] = encode(runs[run_id])
        in_order = [run_id for run_id in dict.keys(runs) if run_id in changed]
        given = configurations(self.record, (runs[run_id] for run_id in in_order), self.store.runs.ran_of)
        found = [_row(runs[run_id], vms, given[run_id], money[run_id], changed[run_id]) for run_id in in_order]
        self.store.runs.put(found, end)
        self.store.vms.put(rows, end)
        self.store.add(anomalies, map(partial(_anomaly_row, state), state.anomalies), end)
        self.store.add(blind, map(partial(_blind_row, state), state.blind), end)
        marks = [*_run_marks(runs[run_id] for run_id in in_order), *_vm_marks(vms[vm_id] for vm_id in machines)]
        marks += [
            Mark(position=one.position, at=seen_at(state, one.subject), kind=one.kind.value, subject=one.subject)
            for one in state.anomalies
        ]
        fresh = (mark for mark in marks if after < mark.position <= end)
        self.store.add_marks(sorted(fresh, key=lambda mark: mark.position), end)
        runs.kept.update((run_id, hash(folded)) for run_id, folded in changed.items())
        vms.kept.update((vm_id, hash(folded)) for vm_id, folded in machines.items())
        self._money.update(money)

    def _repriced(self, state: WorldState, after: int, known: Container[str]) -> dict[str, bytes]:
        """Machines, besides the `known` ones, whose bill a newly adopted policy changes: they existed when it came into
        force.
        """
        adopted = [step.at for steps in state.policies.values() for step in steps if step.position > after]
        if not adopted:
            return {}
        there = [row.vm_id for row in self.store.vms.all(since=min(adopted)) if row.vm_id not in known]
        return {vm_id: encode(state.vms[vm_id]) for vm_id in there}

    def _on_other_gpus(self, vms: StoredVms, moved: Iterable[str]) -> Iterator[str]:
        """The runs on those moved machines whose GPU is not the stored one: their rows name it."""
        for vm_id in moved:
            if self.store.vms.gpu_of(vm_id) != gpu_of(vms[vm_id]):
                yield from vms[vm_id].runs

    def _of_other_users(
        self, runs: StoredRuns, vms: StoredVms, changed: Iterable[str], known: Container[str]
    ) -> Iterator[str]:
        """The machines, besides the `known` ones, of changed runs whose user is not the stored one: their days name
        it.
        """
        for run_id in changed:
            run = runs[run_id]
            if self.store.runs.user_of(run_id) != user_of(run):
                there = stored_machines_of(run, self.store.runs.money_of(run_id)[1])
                yield from (vm_id for vm_id in there if vm_id not in known and vms.get(vm_id) is not None)

    def _of_arrays(self, runs: StoredRuns, money: Mapping[str, Money]) -> dict[str, Money]:
        """What the arrays cost of which these runs are, or are tasks: what their tasks cost."""
        found: dict[str, Money] = {}
        for array in {(runs[one].array or one): None for one in money if runs[one].array or runs[one].tasks}:
            costs = [(money[one] if one in money else self._money_of(one))[0] for one in runs[array].tasks]
            known = [cost for cost in costs if cost is not None]
            found[array] = sum(known) if known else None, None
        return found

    def _money_of(self, run_id: str) -> Money:
        if run_id not in self._money:
            self._money[run_id] = self.store.runs.money_of(run_id)
        return self._money[run_id]

    def _fill_costs(self, runs: StoredRuns, run_ids: Iterable[str]) -> None:
        """Read the provider's cost of runs from newer polls."""
        from engine.replay.provider_costs import fill_costs

        known = runs.filled
        stale = [run for run_id in run_ids if known.get(run_id) != (run := runs[run_id]).cost_at]
        fill_costs(self.record, stale)
        known.update((run.run_id, run.cost_at) for run in stale)


def _row(run: Run, vms: StoredVms, configuration: RanObject, money: Money, folded: bytes) -> RunRow:
    cost, against = money
    odd = divergences(WorldState(rules=CURRENT.name, runs={run.run_id: run}))
    shown = run_object(run, CURRENT, cost)
    ran = what_ran(run, None if run.vm_id is None else vms.get(run.vm_id), configuration)
    return RunRow(
        run_id=run.run_id,
        provider=run.provider,
        provider_id=run.provider_id,
        name=run.name,
        ended=run.terminal or run.unseen,
        is_foreign=run.requested_at is None,
        # an array's tasks are found by its provider's time
        sort_at=began(run) if run.requested_at is None or run.tasks else run.requested_at,
        object=msgspec.json.encode(shown),
        ran=msgspec.json.encode(ran),
        folded=folded,
        state=run.state.value,
        reason=shown.reason,
        cost=cost,
        odd=msgspec.json.encode(odd[0]) if odd else None,
        user=user_of(run),
        project=ran.project,
        source=ran.source,
        gpu=gpu_words(ran),
        vm_id=run.vm_id,
        part_of=shown.group,
        task=None if run.facts is None else run.facts.task,
        took=None if shown.execution_seconds is None else round(shown.execution_seconds * SECOND),
        start=run.start if gpu_kept(run) is None else None,
        waited=start_time(run),
        words=search_words(run, ran),
        against=against,
        archive=run.archive,
        hidden=run.hidden or run.carries is not None,
    )


def _anomaly_row(state: WorldState, one: Anomaly) -> tuple[str, int, str | None, bytes]:
    return one.subject, one.position, archive_about(state, one.subject), msgspec.json.encode(one)


def _blind_row(state: WorldState, one: Blind) -> tuple[str, str | None, bytes]:
    return one.source, archive_about(state, f"source/{one.source}"), msgspec.json.encode(blind_object(one))


def _run_marks(runs: Iterable[Run]) -> Iterator[Mark]:
    for run in runs:
        for step in run.transitions:
            if step.after in TERMINAL:
                kind = f"run_{step.after.value}"
                yield Mark(position=step.position, at=step.at, kind=kind, subject=f"run/{run.run_id}")


def _vm_marks(vms: Iterable[Vm]) -> Iterator[Mark]:
    for vm in vms:
        subject = f"vm/{vm.vm_id}"
        yield Mark(position=vm.first_position, at=vm.first_at, kind="vm_started", subject=subject)
        for step in vm.steps:
            if step.after is VmState.TERMINATED:
                yield Mark(position=step.position, at=step.at, kind="vm_ended", subject=subject)
