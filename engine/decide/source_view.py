"""What a decision about one source looks at: its machines, its queue, the runs that still lack a machine, and how long
each machine may idle.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from engine.fold.lazy_things import some_of
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import WorldState, runs_of, source_of, vms_of
from engine.policy import BACKSTOP, MINUTE, OFF, Policy
from engine.requirements import Requirements
from engine.states import State, VmState

SLOT: Final = "steno-slot-"
"""A pool slot, which holds at most one machine, has this name and a number from 1 (docs/adr/0013)."""

_GOING: Final = frozenset({VmState.TERMINATING, VmState.UNCONFIRMED})
"""States of a machine that no run can come to, and that may still be billed."""

VANISHED_AFTER: Final = 10 * MINUTE
"""A machine that polls showed unreachable for so long leaves its place to the run that lost it."""

_EARLY: Final = frozenset({State.REQUESTED, State.QUEUED, State.PROVISIONING})
"""States of a run in which the machine it had before may not be the one it gets."""

_NOBODY: Final = Requirements(submitter="")


class Lacking(NamedTuple):
    """A run of ours with a place that has not ended and still lacks this many machines (`nodes`)."""

    run: Run
    nodes: int

    @property
    def creates(self) -> bool:
        """Whether a machine may be made for it: one that was told `reuse` never gets a new one."""
        return self.run.placed is None or self.run.placed.creation != "reuse"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One source at one moment, without runs and machines of other sources."""

    state: WorldState
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
        """Those that Steno made: it ends only these, and only these count to the cap."""
        return tuple(vm for vm in self.vms if vm.ours)

    @cached_property
    def queue(self) -> tuple[Run, ...]:
        """Runs without a place, in order of request."""
        return tuple(run for run in self.live if run.placed is None and run.provider_id is None and not run.stop_by)

    @cached_property
    def lacking(self) -> tuple[Lacking, ...]:
        """Runs with a reserved place: placed or submitted, not ended, without (all) their machines."""
        # A lost run holds no place: it may never be seen again.
        live = (run for run in self.live if run.state is not State.LOST)
        placed = (run for run in live if run.placed is not None or run.provider_id is not None)
        short = (Lacking(run, places(run) - self._machines_of(run)) for run in placed)
        return tuple(one for one in short if one.nodes > 0)

    @cached_property
    def free(self) -> int | None:
        """Places left under the cap; negative if the cap was lowered; None: no cap. Machines of ours that may be billed
        take one, and so do those still to be made. Between its first sight and its link to its run a machine may count
        twice, never zero times.
        """
        if self.policy.free or self.policy.max_vms is None:
            return None
        making = sum(one.nodes for one in self.lacking if one.creates and not self._has_slot(one.run))
        there = len(self.ours) - len(self._vanished)
        return self.policy.max_vms - there - max(0, making - self._loose()) - self._unseen()

    @cached_property
    def slots(self) -> frozenset[str]:
        """Slots that have a machine, or will get one."""
        meant = (one.run.placed.slot for one in self.lacking if one.run.placed is not None)
        return frozenset(name for name in (*map(slot_of, self.vms), *meant) if name is not None)

    @cached_property
    def reserved(self) -> dict[str, str]:
        """vm_id → the run that was placed on this machine and is not on it yet."""
        return {
            vm.vm_id: one.run.run_id
            for one in self.lacking
            if (placed := one.run.placed) is not None
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
        """Machines whose place is that of the run that lost them: the provider may make it another one."""
        lacking = {one.run.run_id for one in self.lacking if one.creates}
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
            for run in some_of(self.state.runs, lambda brief: brief.position >= position or brief.at >= asked_at)
            if run.terminal
            and run.terms is not None
            and run.provider_id is not None
            and (run.transitions[-1].position >= position or run.transitions[-1].at >= asked_at)
            and source_of(run) == self.source
        )

    def _machines_of(self, run: Run) -> int:
        early = run.state in _EARLY
        return sum(
            any(one.run_id == run.run_id for one in vm.occupants)
            # Between the end of its job and its own end a run needs no other machine.
            or (not early and vm.runs[-1:] == (run.run_id,))
            for vm in self.vms
        )

    def _has_slot(self, run: Run) -> bool:
        """Whether the machine made for it in its own slot exists: the slot holds no second one. A warm machine does not
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
        since = min(vm.created for vm in loose)
        lacking = {one.run.run_id for one in self.lacking}
        others = sum(
            source_of(run) == self.source
            and (run.run_id not in lacking or run.attempts > 1)
            and (run.vm_id is None or run.retried)
            and (run.provider_id is not None or run.requeues > 0)
            and (not run.terminal or run.transitions[-1].at >= since)
            for run in some_of(self.state.runs, lambda brief: brief.at >= since)
        )
        # How many can each be matched to a run that had its place before they were first seen.
        creating = [one for one in self.lacking if one.creates for _ in range(one.nodes)]
        places = sorted(run.first_position if run.placed is None else run.placed.position for run, _ in creating)
        matched = 0
        for vm in sorted(loose, key=lambda vm: vm.first_position):
            matched += matched < len(places) and places[matched] < vm.first_position
        return max(0, matched - others)


def terms_of(run: Run) -> Requirements:
    """What the run asks of its machine, with the GPU whose turn it is (`gpu_of`)."""
    terms, gpu = run.terms or _NOBODY, gpu_of(run)
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


def run_name(state: WorldState, run_id: str) -> str:
    run = state.runs.get(run_id)
    return run_id if run is None or run.name is None else run.name


# -- how long a machine may idle --------------------------------------------------------------------------------------


class Timeout(NamedTuple):
    """The longest time a machine may idle, microseconds (None: for ever), and who says so: the policy in force,
    `idle_duration` of the task of the run it was made for, or that task's `creation_policy: create`.
    """

    after: int | None
    source: Literal["policy", "task", "create"]
    run_id: str | None = None


def timeout_of(state: WorldState, vm: Vm, policy: Policy) -> Timeout:
    """The timeout of a machine: the policy's; a shorter one, 0 or `off` of the task it was made for wins."""
    maker = None if vm.made_for is None else state.runs.get(vm.made_for)
    terms = None if maker is None else maker.terms
    standing = 0 if policy.free else policy.idle_timeout
    if terms is not None and terms.creation == "create":
        return Timeout(0, "create", vm.made_for)
    if terms is None or terms.idle is None:
        return Timeout(standing, "policy")
    if terms.idle == OFF:
        return Timeout(None, "task", vm.made_for)
    # A machine that costs nothing is kept as long as its task says.
    if not policy.free and standing is not None and standing <= terms.idle:
        return Timeout(standing, "policy")
    return Timeout(terms.idle, "task", vm.made_for)


def backstop(terms: Requirements, policy: Policy, *, watched: bool = True) -> int:
    """The `idle_duration` to give the provider for a run, microseconds; -1: off. It guards while nobody records.
    `watched`: the submitting process goes on recording, and ends the machine itself.
    """
    if terms.creation == "create":
        return 0
    standing = 0 if policy.free else policy.idle_timeout
    if terms.idle == OFF or (terms.idle is None and standing is None):
        return OFF
    told = [] if terms.idle is None else [terms.idle]
    if standing is not None and not (policy.free and told):  # a machine that costs nothing is kept as its task says
        told.append(standing + BACKSTOP if standing and watched else standing)
    return min(told)
