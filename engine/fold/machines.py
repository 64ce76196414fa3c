"""All machines of a world at one tick: rows taken down, absence and graces counted, orphans found."""

from collections.abc import Iterable
from typing import Final

from engine.facts import VmEvent, VmFacts
from engine.fold.archives import concerns, is_hidden, may_move
from engine.fold.change import Anomaly, AnomalyKind, Change, VmMoved
from engine.fold.duplicates import Once
from engine.fold.links import Links
from engine.fold.run import Run
from engine.fold.sources import LOST_AFTER, Source, Sweep, list_read, lists_newest, source_named, sweep_ended
from engine.fold.tick import Tick
from engine.fold.vm import Vm, VmDate, VmMissing, vm_id_of
from engine.fold.vm_machine import VmStepper
from engine.fold.vm_turn import VmTurn
from engine.fold.world_codec import WorldState
from engine.providers.reading import Listing, Readings
from engine.states import VmState
from events.clock import SECOND

ENDING_GRACE: Final = 14 * 60 * SECOND
"""Answered time after which a machine that was told to go should have been seen gone: providers give up on the
cloud after about 15 minutes.
"""

_TOO_EARLY: Final = frozenset({VmState.REQUESTED, VmState.PROVISIONING, VmState.TERMINATED})
"""States that do not show yet, or no longer, whether anybody asked for the machine."""


_EARLY: Final = 100
"""Machines not shown yet whose dates are kept: a placeholder that gets no machine is never shown."""


class Machines:
    """The machines of one world."""

    __slots__ = ("_dated", "_readings", "_told", "links", "state", "stepper")

    def __init__(self, state: WorldState, stepper: VmStepper, readings: Readings) -> None:
        self.state = state
        self._readings = readings
        self.stepper = stepper
        self.links = Links(state)
        self._dated: tuple[VmEvent, ...] | None = None
        """The newest answer that was folded."""
        self._told: dict[str, set[VmDate]] = {}
        """vm_id → the provider's dates that are already in the state; a cache, rebuilt from the state."""

    def turn(self, vm: Vm, position: int, at: int) -> VmTurn:
        """One machine's turn."""
        clock = source_named(self.state.sources, vm.source)
        return VmTurn(vm, position=position, at=at, clock=clock, stepper=self.stepper)

    # -- polls -------------------------------------------------------------------------------------------------------

    def apply(self, tick: Tick, once: Once | None, source: Source) -> list[Change]:
        """Fold one answered poll, whatever it asked; what it changed, in order."""
        changes: list[Change] = []
        if tick.scope.listing is Listing.VMS:
            for facts in tick.vms if once is None else once.vms:
                self._see(facts, tick, changes, None if once is None else once.unlike.get(facts.provider_id))
            ids = [facts.provider_id for facts in tick.vms]
            if lists_newest(tick.scope):
                list_read(source, tick.position, tick.started_at)
            # An answer with unreadable rows proves no absence.
            sweep = None if tick.odd else sweep_ended(self.state.sweeps, tick.scope, tick.source, tick.started_at, ids)
            if sweep is not None:
                self._left_out(sweep, tick, source, changes)
        if tick.scope.watched:
            self._graces(tick, source, changes)
        return changes

    def date(self, tick: Tick) -> list[Change]:
        """Take down the status changes that the provider dates, in whatever order they arrive; each once."""
        changes: list[Change] = []
        if tick.events is self._dated:
            return changes
        self._dated = tick.events
        early = self.state.early_dates
        for event in tick.events:
            vm_id = vm_id_of(tick.scope.provider, event.provider_id)
            vm = self.state.vms.get(vm_id)
            if vm is not None and vm.archive is None and tick.archive is not None:
                continue
            known = early.get(vm_id, ()) if vm is None else vm.dates
            told = self._told.get(vm_id)
            if told is None or len(told) != len(known):
                told = self._told[vm_id] = set(known)
            date = VmDate(at=event.at - (0 if vm is None else vm.skew), before=event.before, after=event.after)
            if date in told:
                continue
            told.add(date)
            dates = tuple(sorted((*known, date), key=lambda one: one.at))
            if vm is not None:
                vm.dates = dates
                changes.append(VmMoved(vm_id=vm_id, step=None))
                continue
            early[vm_id] = dates
            for forgotten in list(early)[:-_EARLY]:
                del early[forgotten]
                self._told.pop(forgotten, None)
        return changes

    def _see(self, facts: VmFacts, tick: Tick, changes: list[Change], unlike: str | None) -> None:
        state = self.state
        vm_id = vm_id_of(tick.scope.provider, facts.provider_id)
        vm = state.vms.get(vm_id)
        new = vm is None
        if vm is None:
            if facts.price is None:
                self._placeholder(facts, tick, changes)
                return
            vm = state.vms[vm_id] = self._meet(vm_id, facts, tick)
        elif not may_move(tick, vm):
            return
        turn = self.turn(vm, tick.position, tick.observed_at)
        had = None if new else vm.facts.hostname
        turn.see(facts, tick, new=new, unlike=unlike)
        self.settle(turn, changes)
        if vm.facts.hostname is not None and vm.facts.hostname != had:
            changes += self.links.machine_shown(vm, tick.position, tick.observed_at)

    def _meet(self, vm_id: str, facts: VmFacts, tick: Tick) -> Vm:
        provider, skew = tick.scope.provider, source_named(self.state.sources, tick.source).skew
        early = self.state.early_dates.pop(vm_id, ())
        self._told.pop(vm_id, None)
        return Vm(
            vm_id=vm_id,
            provider=provider,
            provider_id=facts.provider_id,
            source=tick.source,
            facts=facts,
            created=facts.created if facts.created is not None else tick.observed_at,
            skew=skew,
            first_position=tick.position,
            first_at=tick.observed_at,
            last_position=tick.position,
            last_at=tick.observed_at,
            archive=tick.archive,
            hidden=is_hidden(self.state, tick.archive),
            dates=tuple(VmDate(at=date.at - skew, before=date.before, after=date.after) for date in early),
            ours=self._made_by_us(provider, facts),
        )

    def _made_by_us(self, provider: str, facts: VmFacts) -> bool:
        reading = self._readings.of(provider)
        all_ours = reading is not None and reading.makes_all_vms
        return all_ours or f"{provider}/{facts.project}/{facts.fleet}" in self.state.fleets

    def part(self, run: Run, before: str) -> None:
        """This run was taken for our run `before`: a machine that was made for it is not ours by that."""
        self.links.rename(run, before)
        for vm_id in set(run.links.values()):
            vm = self.state.vms[vm_id]
            vm.ours = self._made_by_us(vm.provider, vm.facts)

    def _placeholder(self, facts: VmFacts, tick: Tick, changes: list[Change]) -> None:
        """A row without a price is not a machine; an unreadable price raises `schema_drift`."""
        subject = f"source/{tick.source}"
        for drift in facts.drift:
            mark = f"{subject} {drift}"
            if drift.startswith("price: ") and mark not in self.state.noted:
                self.state.noted[mark] = None
                kind, detail = AnomalyKind.SCHEMA_DRIFT, f"a machine without a price: {drift}"
                self.keep([Anomaly(kind=kind, subject=subject, position=tick.position, detail=detail)], changes)

    def settle(self, turn: VmTurn, changes: list[Change]) -> None:
        """Take over what came of a machine's turn."""
        vm_id = turn.vm.vm_id
        if turn.vm.state is VmState.TERMINATED:
            self.state.open_vms.pop(vm_id, None)
        elif vm_id not in self.state.open_vms:
            self.state.open_vms[vm_id] = None
        self.keep(turn.changes, changes)

    def keep(self, found: Iterable[Change], changes: list[Change]) -> None:
        """Take over changes, and write anomalies down."""
        for change in found:
            if isinstance(change, Anomaly):
                self.state.anomalies.append(change)
            changes.append(change)

    # -- time --------------------------------------------------------------------------------------------------------

    def _left_out(self, sweep: Sweep, tick: Tick, source: Source, changes: list[Change]) -> None:
        """Every machine a complete sweep should have listed and did not. Absence never ends one."""
        for vm_id in tuple(self.state.open_vms):
            vm = self.state.vms[vm_id]
            if vm.provider != tick.scope.provider or vm.provider_id in sweep.ids:
                continue
            if not concerns(tick, vm):
                continue
            if tick.scope.project is not None and vm.facts.project != tick.scope.project:
                continue
            if sweep.started_at < max(vm.started.values(), default=vm.first_at):
                continue
            if vm.missing is not None and vm.state is VmState.UNCONFIRMED:
                continue
            if vm.missing is None or vm.missing.source != source.name:
                vm.missing = VmMissing(source=source.name, since=source.answered_time, at=tick.observed_at)
            elif source.answered_time - vm.missing.since >= LOST_AFTER:
                turn = self.turn(vm, tick.position, tick.observed_at)
                turn.doubt(f"not listed for 10 minutes, last seen {vm.facts.status}")
                self.settle(turn, changes)

    def _graces(self, tick: Tick, source: Source, changes: list[Change]) -> None:
        """Machines of this source that should have been seen gone by now."""
        for vm_id in tuple(self.state.open_vms):
            vm = self.state.vms[vm_id]
            due = ending_due(vm) if vm.source == source.name and concerns(tick, vm) else None
            if due is not None and source.answered_time >= due:
                turn = self.turn(vm, tick.position, tick.observed_at)
                turn.doubt(f"told to go 14 minutes ago, still {vm.facts.status}")
                self.settle(turn, changes)

    # -- orphans -----------------------------------------------------------------------------------------------------

    def orphans(self, tick: Tick) -> list[Change]:
        """Machines that none of the newest runs, just listed, asked for: told once each.

        Only where a policy is in force for the source, and while no run of the project still waits for its machine.
        """
        state, changes = self.state, list[Change]()
        if tick.source not in state.policies:
            return changes
        for vm_id in state.open_vms:
            vm = state.vms[vm_id]
            if not concerns(tick, vm):
                continue
            if vm.source != tick.source or vm.runs or vm.state in _TOO_EARLY or tick.started_at <= vm.first_at:
                continue
            if not any(self._awaits(run_id, vm) for run_id in state.unsettled):
                turn = self.turn(vm, tick.position, tick.observed_at)
                turn.note(AnomalyKind.ORPHAN, f"{vm.facts.status}, and no run asked for it", once=True)
                self.keep(turn.changes, changes)
        return changes

    def _awaits(self, run_id: str, vm: Vm) -> bool:
        run = self.state.runs[run_id]
        there = (run.provider, run.project) == (vm.provider, vm.facts.project)
        return there and run.provider_id is not None and run.vm_id is None


def ending_due(vm: Vm) -> int | None:
    """The answered time of its source at which an ending machine should have been seen gone; None: it is not ending."""
    if vm.ending_from is None or vm.state in (VmState.TERMINATED, VmState.UNCONFIRMED):
        return None
    return vm.ending_from + ENDING_GRACE
