"""Goes on with one store: folds what a record has beyond it, and writes down every run and machine that moved.

A keeper may live as long as a service: it keeps its fold between two catch-ups, so that one poll more costs little. The
store is the truth between them: where another process has written meanwhile, it is taken up again.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from engine.fold.archives import archive_about, seen_at
from engine.fold.run import Run
from engine.fold.run_machine import is_terminal
from engine.fold.until import Until
from engine.fold.vm import Vm
from engine.fold.world import World
from engine.fold.world_codec import WorldState
from engine.money.costs import Costs
from engine.money.reconcile import divergences
from engine.money.report import user_of
from engine.objects import anomaly_object, blind_object, run_object
from engine.providers.readings import READINGS
from engine.rules.current import NAME
from engine.rules.sets import CURRENT
from engine.states import VmState
from projections.models.cost_rows import Money, costed
from projections.store.mark_table import Mark
from projections.store.store import Checkpoint, RunRow, Store
from projections.store.world_table import (
    StoredIds,
    StoredRuns,
    StoredVms,
    encode_run,
    encode_vm,
    form,
    put_down,
    take_up,
)

if TYPE_CHECKING:
    from engine.fold.record_fold import RecordFold
    from events.store.record import Record

Progress = Callable[[int, int], None]
"""Called with (done, total) while a fold goes on."""

RULES: Final = f"{NAME} {form()}"
"""What the projections are made by and of: other rules or another form, and they are built anew."""

MOMENTS = 128
"""How many worlds of the past are kept at most, and half as many at least."""
SPACING = 1 << 13
"""Positions between two of them, in a short record."""
_CHUNK: Final = 1 << 16
"""Positions folded in one transaction at most."""
_MET: Final = 2000
"""Runs and machines kept in memory between two catch-ups, beside those that are not over."""


class Keeper:
    """One record, one store, and the fold that leads from one to the other."""

    def __init__(self, record: "Record", store: Store, *, spacing: int | None = None, time: int | None = None) -> None:
        """
        Args:
            time: fold nothing that was observed later (microseconds, UTC).
        """
        self.record = record
        self._time = time
        self.store = store
        self._spacing = SPACING if spacing is None else spacing
        self._fold: RecordFold | None = None
        self._costs: Costs
        self._position = 0
        self._lasting: bytes | None = None
        self._money: dict[str, Money] = {}

    @property
    def position(self) -> int:
        """How far the store was when this last looked."""
        return self._position

    def advance(self, until: int, progress: Progress | None = None, *, most: int | None = None) -> None:
        """Fold what comes after the store's checkpoint, up to `until`; a transaction at a time, `most` of them."""
        begun: int | None = None
        for _ in count() if most is None else range(most):
            with self.store.writing():
                after = self._begin()
                begun = after if begun is None else begun
                if after >= until and self.store.checkpoint() is not None:
                    return
                try:
                    self._step(after, self._end(after, until), until)
                except BaseException:
                    self._fold = None
                    raise
            if progress is not None:
                progress(self._position - begun, until - begun)
            if self._position >= until:
                return

    def _begin(self) -> int:
        """Where the store is; the fold is there too."""
        checkpoint = self.store.checkpoint()
        after = 0 if checkpoint is None else checkpoint.position
        if self._fold is None or after != self._position or self._is_full():
            from engine.fold.record_fold import RecordFold

            state = take_up(self.store) if after else None
            if state is None:
                state = WorldState(rules=CURRENT.name)
                state.runs, state.vms, state.by_provider = (
                    StoredRuns(self.store),
                    StoredVms(self.store),
                    StoredIds(self.store),
                )
            state.position = max(state.position, after)
            self._fold = RecordFold(self.record, World(READINGS, CURRENT, state=state))
            self._costs = Costs(state)
            self._position = after
            self._lasting = None
            self._money.clear()
            self.store.note_moments()
        return after

    def _is_full(self) -> bool:
        """Whether the cache is so large that the world should be reloaded."""
        assert self._fold is not None  # noqa: S101 - asked only where it is there
        state = self._fold.world.state
        met = dict.__len__(state.runs) + dict.__len__(state.vms)
        return met > _MET + len(state.unsettled) + len(state.open_vms)

    def _end(self, after: int, until: int) -> int:
        """Where this transaction ends: at the next moment to keep, if not before."""
        spacing = self._spacing_at(until)
        return min(until, after + _CHUNK, after - after % spacing + spacing)

    def _spacing_at(self, position: int) -> int:
        spacing = self._spacing
        while position > spacing * MOMENTS:
            spacing *= 2
        return spacing

    def _step(self, after: int, end: int, until: int) -> None:
        assert self._fold is not None  # noqa: S101 - `_begin` made it
        self._fold.run(Until(position=end, at=self._time))
        state = self._fold.world.state
        if not isinstance(state.runs, StoredRuns):
            self._adopted(state, end)
        self._keep(state, after, end)
        world, self._lasting = put_down(self.store, state, self._lasting)
        state.anomalies.clear()
        state.blind.clear()
        self.store.set_checkpoint(Checkpoint(rules=RULES, record=self.record.id, position=end))
        if end and end % (spacing := self._spacing_at(until)) == 0:
            self.store.keep_moment(end, world, self._lasting, spacing=spacing)
        self._position = end

    def _adopted(self, state: WorldState, end: int) -> None:
        """A run was taken into another: the fold has made a new dict, without the one that is no more."""
        found, runs = state.runs, StoredRuns(self.store)
        self.store.drop_runs([row.run_id for row in self.store.runs() if row.run_id not in found], end)
        runs.update(found)
        state.runs = runs

    def _keep(self, state: WorldState, after: int, end: int) -> None:
        """Write every run and machine that the fold moved or whose cost went on, and what it added."""
        runs, vms = state.runs, state.vms
        assert isinstance(runs, StoredRuns)  # noqa: S101 - nothing else is put there
        assert isinstance(vms, StoredVms)  # noqa: S101
        self._fill_costs(runs)
        self._costs.moved()
        machines = {
            vm_id: folded
            for vm_id, vm in dict.items(vms)
            if hash(folded := encode_vm(vm)) != vms.kept.get(vm_id) or vm.billed
        }
        changed = {
            run_id: folded
            for run_id, run in dict.items(runs)
            if hash(folded := encode_run(run)) != runs.kept.get(run_id)
        }
        machines |= self._repriced(state, after, machines)
        money, rows = costed(self._costs, machines, set(changed), self._money_of)
        for run_id in money.keys() - changed.keys():
            changed[run_id] = encode_run(runs[run_id])
        in_order = [run_id for run_id in dict.keys(runs) if run_id in changed]
        found = [_row(runs[run_id], money[run_id], changed[run_id]) for run_id in in_order]
        self.store.put_runs(found, end)
        self.store.vms.put(rows, end)
        self._notes(state, end)
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

    def _notes(self, state: WorldState, end: int) -> None:
        self.store.add_anomalies(
            (
                (one.subject, one.position, archive_about(state, one.subject), msgspec.json.encode(anomaly_object(one)))
                for one in state.anomalies
            ),
            end,
        )
        self.store.add_blind(
            (
                (one.source, archive_about(state, f"source/{one.source}"), msgspec.json.encode(blind_object(one)))
                for one in state.blind
            ),
            end,
        )

    def _repriced(self, state: WorldState, after: int, but: Container[str]) -> dict[str, bytes]:
        """Machines that rest, and whose bill a policy adopted since moves: they were there when it came into force."""
        adopted = [step.at for steps in state.policies.values() for step in steps if step.position > after]
        if not adopted:
            return {}
        there = [row.vm_id for row in self.store.vms.all(billed_or_since=min(adopted)) if row.vm_id not in but]
        return {vm_id: encode_vm(state.vms[vm_id]) for vm_id in there}

    def _money_of(self, run_id: str) -> Money:
        if run_id not in self._money:
            self._money[run_id] = self.store.money_of(run_id)
        return self._money[run_id]

    def _fill_costs(self, runs: StoredRuns) -> None:
        """Read the provider's own cost of runs that a newer poll gives it of."""
        from engine.replay.record import fill_costs

        known = runs.filled
        stale = [run for run in dict.values(runs) if known.get(run.run_id) != run.cost_at]
        fill_costs(self.record, stale)
        known.update((run.run_id, run.cost_at) for run in stale)


def _row(run: Run, money: Money, folded: bytes) -> RunRow:
    cost, against = money
    odd = divergences(WorldState(rules=CURRENT.name, runs={run.run_id: run}))
    return RunRow(
        run_id=run.run_id,
        provider=run.provider,
        provider_id=run.provider_id,
        name=run.name,
        ended=is_terminal(run.state),
        sort_at=run.submitted_at if run.submitted_at is not None else run.first_at,
        object=msgspec.json.encode(run_object(run, CURRENT, cost)),
        folded=folded,
        state=run.state.value,
        cost=cost,
        odd=msgspec.json.encode(anomaly_object(odd[0])) if odd else None,
        user=user_of(run),
        against=against,
        archive=run.archive,
        hidden=run.hidden,
    )


def _run_marks(runs: Iterable[Run]) -> Iterator[Mark]:
    """Ends of runs."""
    for run in runs:
        for step in run.transitions:
            if is_terminal(step.after):
                kind = f"run_{step.after.value}"
                yield Mark(position=step.position, at=step.at, kind=kind, subject=f"run/{run.run_id}")


def _vm_marks(vms: Iterable[Vm]) -> Iterator[Mark]:
    """Machines that were first seen, and that went."""
    for vm in vms:
        subject = f"vm/{vm.vm_id}"
        yield Mark(position=vm.first_position, at=vm.first_at, kind="vm_started", subject=subject)
        for step in vm.steps:
            if step.after is VmState.TERMINATED:
                yield Mark(position=step.position, at=step.at, kind="vm_ended", subject=subject)
