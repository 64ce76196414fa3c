"""The situation of one source for a decision: its machines, its queue, and the runs that still lack a machine."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from msgspec.structs import replace

from steno.engine.state.levers import Lever, drainer, holder
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.run import Requirements, Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, runs_of, source_of, vms_of

SLOT: Final = "steno-slot-"
"""A pool slot, which holds at most one machine, has this name and a number from 1 (docs/adr/0013)."""

_GOING: Final = frozenset({VmState.TERMINATING, VmState.UNCONFIRMED})
"""States of a machine that no run can come to, and that may still be billed."""

VANISHED_AFTER: Final = 10 * MINUTE
"""A machine that polls showed unreachable for so long leaves its place to the run that lost it."""

_EARLY: Final = frozenset({State.REQUESTED, State.QUEUED, State.PROVISIONING})
"""States of a run in which the machine it had before may not be the one it gets."""

NOBODY: Final = Requirements(submitter="")


class Lacking(NamedTuple):
    """A run of ours with a place that has not ended and still lacks this many machines (`nodes`)."""

    run: Run
    nodes: int

    @property
    def creates(self) -> bool:
        """True if a machine may be made for it: a run with `reuse` never gets a new machine."""
        return self.run.placed is None or self.run.placed.creation != "reuse"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A source at one moment, without runs and machines of other sources."""

    state: World
    source: str
    policy: Policy
    now: int
    watched: bool = True  # the caller goes on recording, and ends idle machines itself

    @property
    def provider(self) -> str:
        return self.source.partition("/")[0]

    @cached_property
    def vms(self) -> tuple[Vm, ...]:
        """Machines not seen gone, in order of first sight."""
        return tuple(vm for vm in vms_of(self.state, self.source) if vm.billed)

    @cached_property
    def ours(self) -> tuple[Vm, ...]:
        """The machines that Steno made: it ends only these, and only these count to the cap."""
        return tuple(vm for vm in self.vms if vm.ours)

    @cached_property
    def queue(self) -> tuple[Run, ...]:
        """Runs without a place, in order of request."""
        waiting = (run for run in self.live if run.placed is None and run.provider_id is None and not run.stop_by)
        return tuple(run for run in waiting if not run.halted)

    @property
    def moment(self) -> int:
        """Record time: a lever ends by it, so that a wall clock that jumps ends none."""
        return self.now if self.state.last_at is None else self.state.last_at

    @property
    def is_closed(self) -> bool:
        """True if the policy allows no machine at all, which is a drain without end."""
        return self.policy.max_vms == 0 and not self.policy.free

    def holder(self, run: Run) -> Lever | None:
        """The lever because of which the run gets no place."""
        return holder(self.state.levers.values(), run, self.moment) if self.state.levers else None

    def holds_back(self, run: Run) -> bool:
        """True if a lever, or a policy without any machine, lets the run not start."""
        return self.is_closed or self.holder(run) is not None

    def drainer(self, vm: Vm) -> Lever | None:
        """The lever that ends the machine once it is idle."""
        return drainer(self.state.levers.values(), vm, self.moment) if self.state.levers else None

    @cached_property
    def lacking(self) -> tuple[Lacking, ...]:
        """Runs with a reserved place: placed or submitted, not ended, without (all) their machines."""
        # A lost run holds no place: it may never be seen again.
        live = (run for run in self.live if run.state is not State.LOST)
        placed = (run for run in live if run.placed is not None or run.provider_id is not None)
        short = (Lacking(run, places(run) - self._machines_of(run)) for run in placed)
        return tuple(lacking for lacking in short if lacking.nodes > 0)

    @cached_property
    def free(self) -> int | None:
        """Places left under the cap; negative if the cap was lowered; None: no cap. Machines of ours that may be billed
        take one, and so do those still to be made. Between its first sight and its link to its run a machine may count
        twice, never zero times.
        """
        if self.policy.free or self.policy.max_vms is None:
            return None
        making = sum(lacking.nodes for lacking in self.lacking if lacking.creates and not self._has_slot(lacking.run))
        there = len(self.ours) - len(self._vanished)
        return self.policy.max_vms - there - max(0, making - self._loose()) - self._unseen()

    @cached_property
    def slots(self) -> frozenset[str]:
        """Slots that have a machine, or will get one."""
        meant = (lacking.run.placed.slot for lacking in self.lacking if lacking.run.placed is not None)
        return frozenset(name for name in (*map(slot_of, self.vms), *meant) if name is not None)

    @cached_property
    def reserved(self) -> dict[str, str]:
        """vm_id → the run that was placed on this machine and is not on it yet."""
        return {
            vm.vm_id: lacking.run.run_id
            for lacking in self.lacking
            if (placed := lacking.run.placed) is not None
            for vm in self.vms
            if vm.vm_id == placed.vm_id or (placed.slot is not None and slot_of(vm) == placed.slot)
        }

    @cached_property
    def live(self) -> tuple[Run, ...]:
        """Runs of ours, with those that the provider starts by a schedule of ours, in order of request."""
        ours = (run for run in runs_of(self.state, self.source) if run.terms is not None)
        return tuple(sorted(ours, key=lambda run: run.first_position))

    @cached_property
    def _vanished(self) -> frozenset[str]:
        """Machines whose place is that of the run that lost them: the provider may make it another machine."""
        lacking = {short.run.run_id for short in self.lacking if short.creates}
        return frozenset(
            vm.vm_id
            for vm in self.ours
            if vm.facts.unreachable
            and vm.last_at - vm.unreachable[-1].since >= VANISHED_AFTER
            and lacking.intersection(vm.runs[-1:])
        )

    def _unseen(self) -> int:
        """Machines of runs that are over which no list of machines can have shown yet."""
        source = self.state.sources.get(self.source)
        position, asked_at = (0, 0) if source is None else (source.machines_position, source.machines_at or 0)
        return sum(
            max(0, places(run) - len(set(run.links.values())))
            for run in self.state.runs.ended(lambda brief: brief.position >= position or brief.at >= asked_at)
            if run.terminal
            and run.terms is not None
            and run.provider_id is not None
            and (run.transitions[-1].position >= position or run.transitions[-1].at >= asked_at)
            and source_of(run) == self.source
        )

    def _machines_of(self, run: Run) -> int:
        early = run.state in _EARLY
        return sum(
            any(occupant.run_id == run.run_id for occupant in vm.occupants)
            # Between the end of its job and its own end a run needs no other machine.
            or (not early and vm.runs[-1:] == (run.run_id,))
            for vm in self.vms
        )

    def _has_slot(self, run: Run) -> bool:
        """True if the machine made for it in its own slot exists: the slot holds one machine. A warm machine does not
        count: if it ends in the last moment, a new one may be made while it is still billed.
        """
        slot = None if run.placed is None or run.placed.vm_id is not None else run.placed.slot
        return slot is not None and any(
            slot_of(vm) == slot and vm.state not in _GOING and vm.vm_id not in self._vanished for vm in self.ours
        )

    def _loose(self) -> int:
        """Machines that were certainly made for one of the lacking runs and are only not linked to it yet. A machine
        has an address, and with it a link, some time after it is first listed. Any other possible cause of such a
        machine is counted against it, so that no machine is taken for another run's.
        """
        loose = [vm for vm in self.ours if not vm.runs and vm.state not in _GOING and slot_of(vm) is None]
        if not loose:
            return 0
        runs, since = self.state.runs, min(vm.created for vm in loose)
        lacking = {short.run.run_id for short in self.lacking}
        others = sum(
            source_of(run) == self.source
            and (run.run_id not in lacking or run.attempts > 1)
            and (run.vm_id is None or run.retried)
            and (run.provider_id is not None or run.requeues > 0)
            and (not run.terminal or run.transitions[-1].at >= since)
            for run in {run.run_id: run for run in (*runs.in_memory(), *runs.ended_since(since))}.values()
        )
        # How many can each be matched to a run that had its place before they were first seen.
        creating = [short for short in self.lacking if short.creates for _ in range(short.nodes)]
        places = sorted(run.first_position if run.placed is None else run.placed.position for run, _ in creating)
        matched = 0
        for vm in sorted(loose, key=lambda vm: vm.first_position):
            matched += matched < len(places) and places[matched] < vm.first_position
        return max(0, matched - others)


def terms_of(run: Run) -> Requirements:
    """The requirements on its machine, with the GPU whose turn it is (`gpu_of`)."""
    terms, gpu = run.terms or NOBODY, gpu_of(run)
    return terms if gpu is None else replace(terms, gpu=(gpu,))


def places(run: Run) -> int:
    """How many machines the run needs: none for a schedule, of which each firing is a run."""
    return 0 if run.is_schedule else terms_of(run).nodes


def gpu_of(run: Run, requeues: int | None = None) -> str | None:
    """The GPU model of the fallback list to ask for now, or after so many requeues; None: the task's own. Each request
    without capacity moves on by one; after the last comes the task's own again.
    """
    models = (None, *(() if run.terms is None else run.terms.fallback))
    return models[(run.requeues if requeues is None else requeues) % len(models)]


def slot_of(vm: Vm) -> str | None:
    """The pool slot the machine is in; None: it is shared."""
    name = vm.facts.fleet
    return name if name is not None and name.startswith(SLOT) else None


def run_name(state: World, run_id: str) -> str:
    run = state.runs.get(run_id)
    return run_id if run is None or run.name is None else run.name
